package openai_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/openai"
	"github.com/turnpool/turnpool/agent/openai/openaitest"
	"github.com/turnpool/turnpool/session"
)

func contextOf(provider, data string) session.EventBase {
	return session.EventBase{ProviderContext: &session.ProviderContext{Provider: provider, Data: json.RawMessage(data)}}
}

func user(text string) session.Event      { return &session.User{Text: text} }
func assistant(text string) session.Event { return &session.Assistant{Text: text} }

func call(id, args string) session.Event {
	return &session.ToolCall{CallID: id, Name: "lookup", Args: json.RawMessage(args)}
}

func result(id, value string) session.Event {
	return &session.ToolResult{CallID: id, Name: "lookup", Result: json.RawMessage(value)}
}

func media(kind, mimeType, at string) session.Media {
	if mimeType == "" {
		return session.Media{Type: kind, Source: session.MediaSource{Type: "url", URL: at}}
	}
	return session.Media{Type: kind, Source: session.MediaSource{Type: "base64", MimeType: mimeType, Data: at}}
}

const reasoning = `{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"secret"}`

// A conversation as the input of one API and as the messages of the other.
func TestConversations(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events    []session.Event
		responses string
		chat      string
	}{
		"nothing": {
			responses: `[]`,
			chat:      `[]`,
		},
		"texts": {
			events: []session.Event{user("hi"), assistant("Hello <b>"), user("")},
			responses: `[{"role":"user","content":[{"type":"input_text","text":"hi"}]},
				{"role":"assistant","content":"Hello <b>"},
				{"role":"user","content":[{"type":"input_text","text":""}]}]`,
			chat: `[{"role":"user","content":"hi"},{"role":"assistant","content":"Hello <b>"},{"role":"user","content":""}]`,
		},
		"what others have kept is left out": {
			events: []session.Event{
				user("hi"),
				&session.Thought{Text: "nobody's"},
				&session.Thought{EventBase: contextOf("other", reasoning), Text: "another's"},
				&session.Assistant{EventBase: contextOf("other", `{"id":"msg_1","type":"message"}`), Text: "Hello"},
			},
			responses: `[{"role":"user","content":[{"type":"input_text","text":"hi"}]},{"role":"assistant","content":"Hello"}]`,
			chat:      `[{"role":"user","content":"hi"},{"role":"assistant","content":"Hello"}]`,
		},
		"what the other API has kept is left out": {
			events: []session.Event{
				user("hi"),
				&session.Thought{EventBase: contextOf("openai", reasoning), Text: "of Responses"},
				&session.ToolCall{EventBase: contextOf("openai", `{"extra_content":{"of":"Chat"}}`), CallID: "c1", Name: "lookup", Args: json.RawMessage(`{}`)},
				result("c1", `1`),
				&session.Thought{EventBase: contextOf("openai", `{"field":"reasoning_content"}`), Text: "of Chat"},
				&session.Assistant{EventBase: contextOf("openai", `{"id":"msg_1","type":"message","status":"completed"}`), Text: "Hello"},
			},
			responses: `[{"role":"user","content":[{"type":"input_text","text":"hi"}]},
				` + reasoning + `,
				{"type":"function_call","call_id":"c1","name":"lookup","arguments":"{}"},
				{"type":"function_call_output","call_id":"c1","output":"1"},
				{"role":"assistant","content":"Hello"}]`,
			chat: `[{"role":"user","content":"hi"},
				{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"lookup","arguments":"{}"},"extra_content":{"of":"Chat"}}]},
				{"role":"tool","tool_call_id":"c1","content":"1"},
				{"role":"assistant","content":"Hello","reasoning_content":"of Chat"}]`,
		},
		"context that is no JSON object": {
			events:    []session.Event{&session.Thought{EventBase: contextOf("openai", `[1]`)}, &session.Assistant{EventBase: contextOf("openai", `"x"`), Text: "Hello"}},
			responses: `[{"role":"assistant","content":"Hello"}]`,
			chat:      `[{"role":"assistant","content":"Hello"}]`,
		},
		"a step": {
			events: []session.Event{
				user("hi"), assistant("One moment."), call("c1", `{"ref":"B-42"}`), call("c2", `{}`),
				result("c1", `{"nights":3}`), result("c2", `"plain \"text\""`), assistant("3 nights."),
			},
			responses: `[{"role":"user","content":[{"type":"input_text","text":"hi"}]},
				{"role":"assistant","content":"One moment."},
				{"type":"function_call","call_id":"c1","name":"lookup","arguments":"{\"ref\":\"B-42\"}"},
				{"type":"function_call","call_id":"c2","name":"lookup","arguments":"{}"},
				{"type":"function_call_output","call_id":"c1","output":"{\"nights\":3}"},
				{"type":"function_call_output","call_id":"c2","output":"plain \"text\""},
				{"role":"assistant","content":"3 nights."}]`,
			chat: `[{"role":"user","content":"hi"},
				{"role":"assistant","content":"One moment.","tool_calls":[
					{"id":"c1","type":"function","function":{"name":"lookup","arguments":"{\"ref\":\"B-42\"}"}},
					{"id":"c2","type":"function","function":{"name":"lookup","arguments":"{}"}}]},
				{"role":"tool","tool_call_id":"c1","content":"{\"nights\":3}"},
				{"role":"tool","tool_call_id":"c2","content":"plain \"text\""},
				{"role":"assistant","content":"3 nights."}]`,
		},
		"results and arguments of every kind": {
			events: []session.Event{
				call("c1", `"not { JSON"`), call("c2", `[1,"<"]`), call("c3", `7`),
				&session.ToolResult{CallID: "c1", Error: `no "such" <booking>`}, result("c2", `null`), result("c3", ``),
			},
			responses: `[{"type":"function_call","call_id":"c1","name":"lookup","arguments":"not { JSON"},
				{"type":"function_call","call_id":"c2","name":"lookup","arguments":"[1,\"<\"]"},
				{"type":"function_call","call_id":"c3","name":"lookup","arguments":"7"},
				{"type":"function_call_output","call_id":"c1","output":"{\"error\":\"no \\\"such\\\" <booking>\"}"},
				{"type":"function_call_output","call_id":"c2","output":"null"},
				{"type":"function_call_output","call_id":"c3","output":"null"}]`,
			chat: `[{"role":"assistant","tool_calls":[
					{"id":"c1","type":"function","function":{"name":"lookup","arguments":"not { JSON"}},
					{"id":"c2","type":"function","function":{"name":"lookup","arguments":"[1,\"<\"]"}},
					{"id":"c3","type":"function","function":{"name":"lookup","arguments":"7"}}]},
				{"role":"tool","tool_call_id":"c1","content":"{\"error\":\"no \\\"such\\\" <booking>\"}"},
				{"role":"tool","tool_call_id":"c2","content":"null"},
				{"role":"tool","tool_call_id":"c3","content":"null"}]`,
		},
		"several texts of a step": {
			events:    []session.Event{assistant("One."), assistant(""), assistant("Two.")},
			responses: `[{"role":"assistant","content":"One."},{"role":"assistant","content":""},{"role":"assistant","content":"Two."}]`,
			chat:      `[{"role":"assistant","content":"One.\n\nTwo."}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			apis(t, func(t *testing.T, api openai.API) {
				model, srv := setup(t, openai.Config{API: api})
				srv.Reply(openaitest.Reply{})
				mustAsk(t, model, &agent.ModelRequest{Step: 1, Conversation: c.events})
				body := srv.Requests()[0].Body
				if api == openai.Responses {
					equal(t, "input", body["input"], decode(t, c.responses))
				} else {
					equal(t, "messages", body["messages"], decode(t, c.chat))
				}
			})
		})
	}
}

// What Responses wants back with its items, and what it must not get.
func TestReasoningItems(t *testing.T) {
	t.Parallel()
	thought := func(data string) session.Event {
		return &session.Thought{EventBase: contextOf("openai", data)}
	}
	message := func(data string) session.Event {
		return &session.Assistant{EventBase: contextOf("openai", data), Text: "Hello"}
	}
	const kept = `{"id":"msg_1","type":"message","role":"assistant","status":"completed","phase":"final_answer"}`
	const whole = `{"id":"msg_1","type":"message","role":"assistant","status":"completed","phase":"final_answer",
		"content":[{"type":"output_text","text":"Hello","annotations":[]}]}`
	const bare = `{"role":"assistant","content":"Hello","phase":"final_answer"}`
	functionCall := &session.ToolCall{
		EventBase: contextOf("openai", `{"id":"fc_1","type":"function_call","status":"completed","namespace":"n"}`),
		CallID:    "c1", Name: "lookup", Args: json.RawMessage(`{}`),
	}
	for name, c := range map[string]struct {
		events []session.Event
		want   string
	}{
		"as they came": {
			[]session.Event{thought(`{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"<Hm>"}],"encrypted_content":"secret","status":null,"new":[1]}`), message(kept)},
			`[{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"<Hm>"}],"encrypted_content":"secret","status":null,"new":[1]},` + whole + `]`,
		},
		"several before one item": {
			[]session.Event{thought(reasoning), thought(reasoning), message(kept)},
			`[` + reasoning + `,` + reasoning + `,` + whole + `]`,
		},
		"before a call": {
			[]session.Event{thought(reasoning), functionCall, result("c1", `1`)},
			`[` + reasoning + `,
			 {"id":"fc_1","type":"function_call","status":"completed","namespace":"n","call_id":"c1","name":"lookup","arguments":"{}"},
			 {"type":"function_call_output","call_id":"c1","output":"1"}]`,
		},
		"open ones of servers that do not encrypt": {
			[]session.Event{thought(`{"id":"rs_1","type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"Hm"}]}`), message(kept)},
			`[{"id":"rs_1","type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"Hm"}]},` + whole + `]`,
		},
		"nothing follows": {
			[]session.Event{thought(reasoning), user("go on"), thought(reasoning)},
			`[{"role":"user","content":[{"type":"input_text","text":"go on"}]}]`,
		},
		"no content to go by, so what follows has no id": {
			[]session.Event{thought(`{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":null,"content":[]}`), message(kept), functionCall, result("c1", `1`), message(kept)},
			`[` + bare + `,
			 {"type":"function_call","status":"completed","namespace":"n","call_id":"c1","name":"lookup","arguments":"{}"},
			 {"type":"function_call_output","call_id":"c1","output":"1"},` + whole + `]`,
		},
		"a message without an id": {
			[]session.Event{message(`{"type":"message","role":"assistant","status":"completed"}`)},
			`[{"role":"assistant","content":"Hello"}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model, srv := setup(t, openai.Config{API: openai.Responses})
			srv.Reply(openaitest.Reply{})
			mustAsk(t, model, &agent.ModelRequest{Step: 1, Conversation: c.events})
			equal(t, "input", srv.Requests()[0].Body["input"], decode(t, c.want))
		})
	}
}

// Some servers with Chat refuse a conversation whose thoughts are missing.
func TestThoughtsOfChat(t *testing.T) {
	t.Parallel()
	thought := func(field, text string) session.Event {
		return &session.Thought{EventBase: contextOf("openai", `{"field":"`+field+`"}`), Text: text}
	}
	model, srv := setup(t, openai.Config{})
	srv.Reply(openaitest.Reply{})
	mustAsk(t, model, &agent.ModelRequest{Step: 1, Conversation: []session.Event{
		thought("reasoning", "Hm. "), thought("reasoning", "Yes."), call("c1", `{}`), result("c1", `1`),
		thought("reasoning_content", "So."), thought("reasoning", ""), thought("content", "no"), assistant("One."),
		user("go on"), thought("reasoning_content", "cut there"),
	}})
	equal(t, "messages", srv.Requests()[0].Body["messages"], decode(t, `[
		{"role":"assistant","reasoning":"Hm. Yes.","tool_calls":[{"id":"c1","type":"function","function":{"name":"lookup","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"c1","content":"1"},
		{"role":"assistant","reasoning_content":"So.","content":"One."},
		{"role":"user","content":"go on"}]`))
}

func TestMedia(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		medium    session.Media
		responses string // "": refused
		chat      string
	}{
		"image by url": {
			media("image", "", "https://h/a.png"),
			`{"type":"input_image","image_url":"https://h/a.png","detail":"auto"}`,
			`{"type":"image_url","image_url":{"url":"https://h/a.png"}}`,
		},
		"image": {
			media("image", "image/png", "AAAA"),
			`{"type":"input_image","image_url":"data:image/png;base64,AAAA","detail":"auto"}`,
			`{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}`,
		},
		"document by url": {
			media("document", "", "https://h/a.pdf"),
			`{"type":"input_file","file_url":"https://h/a.pdf"}`,
			``,
		},
		"document": {
			media("document", "application/pdf", "AAAA"),
			`{"type":"input_file","filename":"document.pdf","file_data":"data:application/pdf;base64,AAAA"}`,
			`{"type":"file","file":{"filename":"document.pdf","file_data":"data:application/pdf;base64,AAAA"}}`,
		},
		"document with parameters": {
			media("document", "text/plain; charset=utf-8", "AAAA"),
			`{"type":"input_file","filename":"document.txt","file_data":"data:text/plain; charset=utf-8;base64,AAAA"}`,
			`{"type":"file","file":{"filename":"document.txt","file_data":"data:text/plain; charset=utf-8;base64,AAAA"}}`,
		},
		"document of another kind": {
			media("document", "application/x-new", "AAAA"),
			`{"type":"input_file","filename":"document","file_data":"data:application/x-new;base64,AAAA"}`,
			`{"type":"file","file":{"filename":"document","file_data":"data:application/x-new;base64,AAAA"}}`,
		},
		"audio": {
			media("audio", "audio/x-wav", "AAAA"),
			``,
			`{"type":"input_audio","input_audio":{"format":"wav","data":"AAAA"}}`,
		},
		"audio as mp3":          {media("audio", "audio/mpeg", "AAAA"), ``, `{"type":"input_audio","input_audio":{"format":"mp3","data":"AAAA"}}`},
		"audio of another kind": {media("audio", "audio/ogg", "AAAA"), ``, ``},
		"audio by url":          {media("audio", "", "https://h/a.mp3"), ``, ``},
		"no such medium":        {media("video", "video/mp4", "AAAA"), ``, ``},
		"no source":             {session.Media{Type: "image"}, ``, ``},
		"no mime type":          {session.Media{Type: "image", Source: session.MediaSource{Type: "base64", Data: "AAAA"}}, ``, ``},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			apis(t, func(t *testing.T, api openai.API) {
				want, list, text := c.responses, "input", `{"type":"input_text","text":"Look:"}`
				if api == openai.Chat {
					want, list, text = c.chat, "messages", `{"type":"text","text":"Look:"}`
				}
				model, srv := setup(t, openai.Config{API: api})
				srv.Reply(openaitest.Reply{}, openaitest.Reply{})
				both := []session.Event{&session.User{Text: "Look:", Media: []session.Media{c.medium}}}
				alone := []session.Event{&session.User{Media: []session.Media{c.medium}}}
				if want == "" {
					failed := fails(t, model, &agent.ModelRequest{Step: 1, Conversation: both})
					if failed.Status != 400 || len(srv.Requests()) != 0 {
						t.Errorf("error %v after %d requests", failed, len(srv.Requests()))
					}
					return
				}
				mustAsk(t, model, &agent.ModelRequest{Step: 1, Conversation: both})
				mustAsk(t, model, &agent.ModelRequest{Step: 1, Conversation: alone})
				equal(t, "with a text", srv.Requests()[0].Body[list], decode(t, `[{"role":"user","content":[`+text+`,`+want+`]}]`))
				equal(t, "alone", srv.Requests()[1].Body[list], decode(t, `[{"role":"user","content":[`+want+`]}]`))
			})
		})
	}
}

// Everything of a request but the conversation.
func TestSettings(t *testing.T) {
	t.Parallel()
	type query struct {
		Ref string `json:"ref" jsonschema:"the booking's reference"`
	}
	tools := []*agent.Tool{
		agent.NewTool("lookup", "Look up", func(context.Context, query) (int, error) { return 0, nil }),
		agent.NewTool("nothing", "", func(context.Context, struct{}) (int, error) { return 0, nil }),
		{Name: "bare"},
		{Name: "anything", Parameters: &jsonschema.Schema{}},
	}
	const lookup = `{"type":"object","properties":{"ref":{"type":"string","description":"the booking's reference"}},"required":["ref"],"additionalProperties":false}`
	const nothing = `{"type":"object","properties":{},"additionalProperties":false}`
	const none = `{"type":"object","properties":{}}`
	half := 0.5
	full := openai.Config{Model: "m", ReasoningEffort: "high", MaxOutputTokens: 100, Temperature: &half}
	summed := full
	summed.API, summed.ReasoningSummary = openai.Responses, "auto"
	for name, c := range map[string]struct {
		cfg  openai.Config
		req  agent.ModelRequest
		want string
	}{
		"responses, least": {
			openai.Config{Model: "m", API: openai.Responses}, agent.ModelRequest{},
			`{"model":"m","stream":true,"store":false,"include":["reasoning.encrypted_content"],"input":[]}`,
		},
		"responses, most": {
			summed, agent.ModelRequest{Instructions: "Be brief.", Tools: tools},
			`{"model":"m","stream":true,"store":false,"include":["reasoning.encrypted_content"],"input":[],
			  "instructions":"Be brief.","reasoning":{"effort":"high","summary":"auto"},"max_output_tokens":100,"temperature":0.5,
			  "tools":[
			    {"type":"function","name":"lookup","description":"Look up","strict":false,"parameters":` + lookup + `},
			    {"type":"function","name":"nothing","strict":false,"parameters":` + nothing + `},
			    {"type":"function","name":"bare","strict":false,"parameters":` + none + `},
			    {"type":"function","name":"anything","strict":false,"parameters":` + none + `}]}`,
		},
		"chat, least": {
			openai.Config{Model: "m", API: openai.Chat}, agent.ModelRequest{},
			`{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}`,
		},
		"chat, most": {
			full, agent.ModelRequest{Instructions: "Be brief.", Tools: tools},
			`{"model":"m","stream":true,"stream_options":{"include_usage":true},
			  "messages":[{"role":"system","content":"Be brief."}],
			  "reasoning_effort":"high","max_completion_tokens":100,"temperature":0.5,
			  "tools":[
			    {"type":"function","function":{"name":"lookup","description":"Look up","parameters":` + lookup + `}},
			    {"type":"function","function":{"name":"nothing","parameters":` + nothing + `}},
			    {"type":"function","function":{"name":"bare","parameters":` + none + `}},
			    {"type":"function","function":{"name":"anything","parameters":` + none + `}}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model, srv := setup(t, c.cfg)
			srv.Reply(openaitest.Reply{})
			mustAsk(t, model, &c.req)
			equal(t, "body", any(srv.Requests()[0].Body), decode(t, c.want))
		})
	}
}

// A schema keeps the order of its properties, which a model reads in order.
func TestSchemaOrder(t *testing.T) {
	t.Parallel()
	type query struct {
		Zeta  string `json:"zeta"`
		Alpha string `json:"alpha"`
	}
	apis(t, func(t *testing.T, api openai.API) {
		model, srv := setup(t, openai.Config{API: api})
		srv.Reply(openaitest.Reply{})
		mustAsk(t, model, &agent.ModelRequest{Tools: []*agent.Tool{
			agent.NewTool("lookup", "", func(context.Context, query) (int, error) { return 0, nil }),
		}})
		body := string(srv.Requests()[0].Raw)
		equal(t, "zeta comes first", indexOf(t, body, `"zeta":{`) < indexOf(t, body, `"alpha":{`), true)
	})
}

// Models that do not reason refuse to be asked for reasoning items. That is found
// out once.
func TestModelThatDoesNotReason(t *testing.T) {
	t.Parallel()
	model, srv := setup(t, openai.Config{API: openai.Responses})
	refused := openaitest.Reply{
		Status: 400,
		Body:   `{"error":{"message":"Encrypted content is not supported with this model.","type":"invalid_request_error","param":"include","code":null}}`,
	}
	srv.Reply(refused, openaitest.Reply{Items: []openaitest.Item{openaitest.Text("Hello")}}, openaitest.Reply{})
	response := mustAsk(t, model, hello())
	equal(t, "items", said(response.Items), []seen{{Kind: "text", Text: "Hello"}})
	mustAsk(t, model, hello())
	var included []bool
	for _, r := range srv.Requests() {
		_, has := r.Body["include"]
		included = append(included, has)
	}
	equal(t, "requests that ask for reasoning", included, []bool{true, false, false})

	srv.Reply(refused) // a second time it is an error like any other
	equal(t, "status", fails(t, model, hello()).Status, 400)
}
