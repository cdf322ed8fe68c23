package openai_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/openai"
	"github.com/turnpool/turnpool/agent/openai/openaitest"
	"github.com/turnpool/turnpool/session"
)

// sse writes events, one a line of text, as Responses does if named says so.
func sse(named bool, events ...string) string {
	var out strings.Builder
	for _, data := range events {
		if named {
			fmt.Fprintf(&out, "event: %s\n", strings.Split(data, `"`)[3]) // the type comes first
		}
		fmt.Fprintf(&out, "data: %s\n\n", data)
	}
	return out.String()
}

// dense is a short answer with all that can be cut badly: runes of two to four
// bytes, escapes, pairs of surrogates, comments, both line ends.
var dense = map[openai.API]string{
	openai.Responses: ": keep-alive\n\n" + sse(true,
		`{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"r"}}`,
		`{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"Hm… \u00fc"}`,
		`{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"r","summary":[{"text":"Hm… \u00fc"}],"encrypted_content":"ж"}}`,
	) + strings.ReplaceAll(sse(true,
		`{"type":"response.output_text.delta","output_index":1,"delta":"Grüße 🎉\n"}`,
		`{"type":"response.output_text.delta","output_index":1,"delta":"\ud83c\udf89 \"ok\""}`,
		`{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call"}}`,
		`{"type":"response.function_call_arguments.delta","output_index":2,"delta":"{\"q\":\"é\u20ac"}`,
		`{"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","call_id":"c","name":"f","arguments":"{\"q\":\"é\u20ac\"}"}}`,
	), "\n", "\r\n") + sse(true,
		`{"type":"response.completed","response":{"status":"completed","output":[],"usage":{"input_tokens":3,"output_tokens":2}}}`,
	),
	openai.Chat: ": keep-alive\n\n" + sse(false,
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning_content":"Hm… \u00fc"}}]}`,
	) + strings.ReplaceAll(sse(false,
		`{"choices":[{"index":0,"delta":{"content":"Grüße 🎉\n"}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"\ud83c\udf89 \"ok\""}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{\"q\":\"é\u20ac"}}]}}]}`,
	), "\n", "\r\n") + sse(false,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"}"}}]}}]}`,
		`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":null}`,
		`{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}`,
		`[DONE]`,
	),
}

var denseItems = []seen{
	{Kind: "thought", Text: "Hm… ü"},
	{Kind: "text", Text: "Grüße 🎉\n🎉 \"ok\""},
	{Kind: "call", Text: `{"q":"é€"}`, CallID: "c", Name: "f"},
}

// An answer is the same wherever the network cuts it.
func TestCutAnywhere(t *testing.T) {
	t.Parallel()
	apis(t, func(t *testing.T, api openai.API) {
		model, srv := setup(t, openai.Config{API: api})
		body := dense[api]
		for at := range len(body) + 1 {
			srv.Reply(openaitest.Reply{Body: body, Cuts: []int{at}})
			response := mustAsk(t, model, hello())
			if diff := cmp.Diff(denseItems, said(response.Items)); diff != "" {
				t.Fatalf("cut at %d, after %q (-want +got):\n%s", at, body[:at], diff)
			}
			equal(t, "usage", response.Usage, &session.ModelUsage{InputTokens: 3, OutputTokens: 2})
			equal(t, "finish reason", response.FinishReason, "tool_calls")
		}
	})
}

// The network gives one byte at a time.
func TestByteByByte(t *testing.T) {
	t.Parallel()
	apis(t, func(t *testing.T, api openai.API) {
		for _, ascii := range []bool{false, true} {
			model, srv := setup(t, openai.Config{API: api, HTTPClient: &http.Client{Transport: byteByByte{http.DefaultTransport}}})
			srv.Reply(openaitest.Reply{Every: 1, ASCII: ascii, Items: everyItem})
			equal(t, "items", said(mustAsk(t, model, hello()).Items), everySeen)
		}
	})
}

// byteByByte is a network whose reads have one byte.
type byteByByte struct{ http.RoundTripper }

func (b byteByByte) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := b.RoundTripper.RoundTrip(req)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{iotest.OneByteReader(res.Body), res.Body}
	}
	return res, err
}

var everyItem = []openaitest.Item{
	openaitest.Thought("Let me look at both… 🤔"),
	openaitest.Text("One moment, \"Zoë\" <3 🎉"),
	openaitest.Call("call_1", "lookup", `{"ref":"B-42","guest":"Zoë"}`),
	openaitest.Call("call_2", "lookup", `{"ref":"B-43"}`),
	openaitest.Call("call_3", "now", ``),
}

var everySeen = []seen{
	{Kind: "thought", Text: "Let me look at both… 🤔"},
	{Kind: "text", Text: "One moment, \"Zoë\" <3 🎉"},
	{Kind: "call", CallID: "call_1", Name: "lookup", Text: `{"ref":"B-42","guest":"Zoë"}`},
	{Kind: "call", CallID: "call_2", Name: "lookup", Text: `{"ref":"B-43"}`},
	{Kind: "call", CallID: "call_3", Name: "now"},
}

// The test server's whole wire: parallel calls in turns, usage, reasons.
func TestAnswers(t *testing.T) {
	t.Parallel()
	usage := &openaitest.Usage{Input: 120, Cached: 100, Output: 50, Reasoning: 30}
	for name, c := range map[string]struct {
		reply  openaitest.Reply
		items  []seen
		finish string
		usage  session.ModelUsage
	}{
		"nothing": {
			finish: "stop", usage: session.ModelUsage{InputTokens: 10, OutputTokens: 5},
		},
		"everything": {
			reply: openaitest.Reply{Items: everyItem, Usage: usage}, items: everySeen, finish: "tool_calls",
			usage: session.ModelUsage{InputTokens: 120, CachedTokens: 100, OutputTokens: 50, ReasoningTokens: 30},
		},
		"cut by the limit": {
			reply: openaitest.Reply{Items: []openaitest.Item{openaitest.Text("One, two")}, Finish: "length"},
			items: []seen{{Kind: "text", Text: "One, two"}}, finish: "length",
			usage: session.ModelUsage{InputTokens: 10, OutputTokens: 5},
		},
		"cut inside of a call": {
			reply: openaitest.Reply{Items: []openaitest.Item{openaitest.Call("c", "lookup", `{"ref":"B-`)}, Finish: "length"},
			items: []seen{{Kind: "call", CallID: "c", Name: "lookup", Text: `{"ref":"B-`}}, finish: "length",
			usage: session.ModelUsage{InputTokens: 10, OutputTokens: 5},
		},
		"filtered": {
			reply: openaitest.Reply{Items: []openaitest.Item{openaitest.Text("One")}, Finish: "content_filter"},
			items: []seen{{Kind: "text", Text: "One"}}, finish: "content_filter",
			usage: session.ModelUsage{InputTokens: 10, OutputTokens: 5},
		},
		"refusal": {
			reply: openaitest.Reply{Items: []openaitest.Item{openaitest.Refusal("I can't help with that.")}},
			items: []seen{{Kind: "text", Text: "I can't help with that."}}, finish: "content_filter",
			usage: session.ModelUsage{InputTokens: 10, OutputTokens: 5},
		},
		"calls before a text": {
			reply: openaitest.Reply{Items: []openaitest.Item{openaitest.Call("c", "f", `{}`), openaitest.Text("Done?")}},
			items: []seen{{Kind: "call", CallID: "c", Name: "f", Text: `{}`}, {Kind: "text", Text: "Done?"}}, finish: "tool_calls",
			usage: session.ModelUsage{InputTokens: 10, OutputTokens: 5},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			apis(t, func(t *testing.T, api openai.API) {
				model, srv := setup(t, openai.Config{API: api})
				srv.Reply(c.reply)
				response := mustAsk(t, model, hello())
				equal(t, "items", said(response.Items), c.items)
				equal(t, "finish reason", response.FinishReason, c.finish)
				equal(t, "usage", response.Usage, &c.usage)
			})
		})
	}
}

// Deltas come as the server sends them, not when the answer is whole: the server
// sends the rest only after the first one was seen.
func TestStreams(t *testing.T) {
	t.Parallel()
	apis(t, func(t *testing.T, api openai.API) {
		model, srv := setup(t, openai.Config{API: api})
		body := dense[api]
		srv.Reply(openaitest.Reply{Body: body, HangAt: indexOf(t, body, `ok\"`)})
		came := make(chan agent.ModelDelta, 1)
		done := make(chan error, 1)
		go func() {
			_, err := model.Generate(t.Context(), hello(), func(d agent.ModelDelta) {
				if d.Kind == agent.ItemText {
					came <- d
				}
			})
			done <- err
		}()
		equal(t, "delta", within(t, came), agent.ModelDelta{Item: 1, Kind: agent.ItemText, Text: "Grüße 🎉\n"})
		srv.Close() // and the rest never comes
		if err := within(t, done); err == nil {
			t.Error("half an answer is fine")
		}
	})
}

// Calls at the same time are answered apart.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	apis(t, func(t *testing.T, api openai.API) {
		model, srv := setup(t, openai.Config{API: api})
		srv.Otherwise(func(r *openaitest.Request) openaitest.Reply {
			return openaitest.Reply{Items: []openaitest.Item{openaitest.Text("You said " + lastMessage(r))}, Every: 50}
		})
		const askers = 20
		done := make(chan string, askers)
		for i := range askers {
			go func() {
				message := fmt.Sprintf("question %d", i)
				response, err := model.Generate(t.Context(), &agent.ModelRequest{Conversation: []session.Event{user(message)}}, func(agent.ModelDelta) {})
				switch {
				case err != nil:
					done <- err.Error()
				case response.Items[0].Text != "You said "+message:
					done <- response.Items[0].Text
				default:
					done <- ""
				}
			}()
		}
		for range askers {
			if fault := within(t, done); fault != "" {
				t.Error(fault)
			}
		}
	})
}

// lastMessage is the text of a request's last message, in either API.
func lastMessage(r *openaitest.Request) string {
	list, _ := r.Body["messages"].([]any)
	if list == nil {
		list, _ = r.Body["input"].([]any)
	}
	message, _ := list[len(list)-1].(map[string]any)
	if text, ok := message["content"].(string); ok {
		return text
	}
	part, _ := message["content"].([]any)[0].(map[string]any)
	return part["text"].(string)
}
