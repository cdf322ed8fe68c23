package ingress

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

func TestDecodeRequest(t *testing.T) {
	t.Parallel()
	request := func(change func(*turn.Request)) turn.Request {
		r := turn.Request{Lane: turn.LaneInteractive, Input: turn.Input{Message: turn.Text("hi")}}
		change(&r)
		return r
	}
	tests := map[string]struct {
		body string
		want turn.Request
	}{
		"shortest":         {`{"input":{"message":"hi"}}`, request(func(*turn.Request) {})},
		"space everywhere": {" {\n\t\"input\" : { \"message\" : \"hi\" } }\r\n ", request(func(*turn.Request) {})},
		"all": {
			`{"agent":"echo","sessionId":"thread-42","input":{"message":{"text":"hi","media":[
				{"type":"image","source":{"type":"url","url":"https://x.example/a.png"}},
				{"type":"audio","source":{"type":"base64","mimeType":"audio/wav","data":"AAEC"}}]},
				"tools":[{"callId":"call_1","input":{"a":[1, 2]}},{"callId":"call_2","input":null}],
				"state":{"k":{"deep":[null]},"gone":null},"initialState":{"session":{"a":1},"user":{"b":"x"}}},
			"response":{"events":true,"usage":true,"state":false,"deltas":true},"timeout":1500,"lane":"batch",
			"onDisconnect":"continue","scopes":{"user":"u1"},"metadata":{"ticket":"7"}}`,
			turn.Request{
				Agent: "echo", SessionID: "session_thread-42", Lane: turn.LaneBatch, Timeout: 1500, OnDisconnect: turn.OnDisconnectContinue,
				Scopes: map[string]string{"user": "u1"}, Metadata: map[string]string{"ticket": "7"},
				Response: &turn.Response{Events: true, Usage: true, Deltas: true},
				Input: turn.Input{
					Message: &turn.Message{Text: "hi", Media: []session.Media{
						{Type: "image", Source: session.MediaSource{Type: "url", URL: "https://x.example/a.png"}},
						{Type: "audio", Source: session.MediaSource{Type: "base64", MimeType: "audio/wav", Data: "AAEC"}},
					}},
					Tools: []turn.ToolAnswer{{CallID: "call_1", Input: json.RawMessage(`{"a":[1, 2]}`)}, {CallID: "call_2", Input: json.RawMessage(`null`)}},
					State: session.State{"k": json.RawMessage(`{"deep":[null]}`), "gone": json.RawMessage(`null`)},
					InitialState: map[string]session.State{
						"session": {"a": json.RawMessage(`1`)}, "user": {"b": json.RawMessage(`"x"`)},
					},
				},
			},
		},
		"null is absent": {
			`{"agent":null,"sessionId":null,"input":{"message":"hi","tools":null,"state":null},"response":null,"timeout":null,"metadata":null}`,
			request(func(*turn.Request) {}),
		},
		"empty is absent": {
			`{"agent":"","sessionId":"","input":{"message":"hi","tools":[]},"lane":""}`,
			request(func(*turn.Request) {}),
		},
		"tools of the caller's own": {
			`{"input":{"message":"hi"},"frontendTools":[{"name":"pick","description":"d","parameters":{"type":"object"}},{"name":"go"}]}`,
			request(func(r *turn.Request) {
				r.FrontendTools = []turn.FrontendTool{
					{Name: "pick", Description: "d", Parameters: json.RawMessage(`{"type":"object"}`)}, {Name: "go"},
				}
			}),
		},
		"only answers": {
			`{"input":{"message":"","tools":[{"callId":"c","input":1}]}}`,
			request(func(r *turn.Request) {
				r.Input = turn.Input{Tools: []turn.ToolAnswer{{CallID: "c", Input: json.RawMessage(`1`)}}}
			}),
		},
		"only state": {
			`{"input":{"state":{"a":1}}}`,
			request(func(r *turn.Request) { r.Input = turn.Input{State: session.State{"a": json.RawMessage(`1`)}} }),
		},
		"escapes": {
			`{"input":{"mess\u0061ge":"NUL \u0000, half \ud800, pair \ud83d\ude00, literal \\u0000"}}`,
			request(func(r *turn.Request) {
				r.Input.Message = turn.Text("NUL \x00, half \ufffd, pair 😀, literal \\u0000")
			}),
		},
		"the prefix is put once": {
			`{"sessionId":"session_a b/ç","input":{"message":"hi"}}`,
			request(func(r *turn.Request) { r.SessionID = "session_a b/ç" }),
		},
		"the longest session id, as it was given out": {
			`{"sessionId":"session_` + strings.Repeat("é", 200) + `","input":{"message":"hi"}}`,
			request(func(r *turn.Request) { r.SessionID = "session_" + strings.Repeat("é", 200) }),
		},
		"a timeout above all": {
			`{"timeout":99999999999999999999,"input":{"message":"hi"}}`,
			request(func(r *turn.Request) { r.Timeout = maxTimeout }),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := decodeRequest([]byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeRequestRefuses(t *testing.T) {
	t.Parallel()
	deep := func(n int) string {
		return `{"input":{"state":{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}}}`
	}
	tests := map[string]struct {
		body   string
		code   string
		path   string
		detail string
	}{
		"nothing":          {"", codeMalformedJSON, "", "the body is empty; expected a JSON object"},
		"space":            {" \n", codeMalformedJSON, "", "the body is empty; expected a JSON object"},
		"no JSON":          {"hello", codeMalformedJSON, "", "invalid character 'h' looking for beginning of value, at byte 1"},
		"cut":              {`{"input":`, codeMalformedJSON, "", "unexpected end of JSON input, at byte 9"},
		"trailing":         {`{"input":{"message":"hi"}} {}`, codeMalformedJSON, "", "invalid character '{' after top-level value, at byte 28"},
		"not UTF-8":        {"{\"input\":{\"message\":\"a\xff\"}}", codeMalformedJSON, "", "the body is not UTF-8: byte 22"},
		"byte order mark":  {"\ufeff{}", codeMalformedJSON, "", "invalid character 'ï' looking for beginning of value, at byte 1"},
		"twice":            {`{"input":{"message":"a","message":"b"}}`, codeMalformedJSON, "/input/message", "input.message: given twice"},
		"twice, escaped":   {`{"input":{"message":"a","m\u0065ssage":"b"}}`, codeMalformedJSON, "/input/message", "input.message: given twice"},
		"twice, passed on": {`{"input":{"state":{"a":[{"b":1,"b":2}]}}}`, codeMalformedJSON, "/input/state/a/0/b", "input.state.a[0].b: given twice"},
		"twice, of many":   {`{"metadata":{"a":"","b":"","c":"","d":"","e":"","f":"","g":"","h":"","i":"","j":"","i":""}}`, codeMalformedJSON, "/metadata/i", "metadata.i: given twice"},
		"too deep":         {deep(62), codeMalformedJSON, "/input/state/a" + strings.Repeat("/0", 61), "input.state.a" + strings.Repeat("[0]", 61) + ": nested deeper than 64"},

		"no object":         {`[]`, codeInvalidField, "", "expected an object, got an array"},
		"agent":             {`{"agent":1}`, codeInvalidField, "/agent", "agent: expected a string, got a number"},
		"agent's name":      {`{"agent":"a.b"}`, codeInvalidField, "/agent", `agent: expected 1 to 64 letters, digits, "_" and "-"`},
		"sessionId":         {`{"sessionId":["x"]}`, codeInvalidField, "/sessionId", "sessionId: expected a string, got an array"},
		"sessionId control": {`{"sessionId":"a\u0007"}`, codeInvalidField, "/sessionId", "sessionId: expected 1 to 200 characters, none of them a control character"},
		"sessionId long":    {`{"sessionId":"` + strings.Repeat("x", 201) + `"}`, codeInvalidField, "/sessionId", "sessionId: expected 1 to 200 characters, none of them a control character"},
		"input":             {`{"input":"hi"}`, codeInvalidField, "/input", "input: expected an object, got a string"},
		"message":           {`{"input":{"message":7}}`, codeInvalidField, "/input/message", "input.message: expected a string, or an object with text and media; got a number"},
		"text":              {`{"input":{"message":{"text":true}}}`, codeInvalidField, "/input/message/text", "input.message.text: expected a string, got a boolean"},
		"media":             {`{"input":{"message":{"media":{}}}}`, codeInvalidField, "/input/message/media", "input.message.media: expected an array, got an object"},
		"media type":        {`{"input":{"message":{"media":[{"type":"video","source":{"type":"url","url":"http://a.b"}}]}}}`, codeInvalidField, "/input/message/media/0/type", "input.message.media[0].type: expected image, audio or document"},
		"media source":      {`{"input":{"message":{"media":[{"type":"image"}]}}}`, codeInvalidField, "/input/message/media/0/source", "input.message.media[0].source: missing; expected {type: url, url} or {type: base64, mimeType, data}"},
		"source type":       {`{"input":{"message":{"media":[{"type":"image","source":{"type":"file"}}]}}}`, codeInvalidField, "/input/message/media/0/source/type", "input.message.media[0].source.type: expected url or base64"},
		"url":               {`{"input":{"message":{"media":[{"type":"image","source":{"type":"url","url":"file:///etc/passwd"}}]}}}`, codeInvalidField, "/input/message/media/0/source/url", "input.message.media[0].source.url: expected an absolute http or https address"},
		"url and data":      {`{"input":{"message":{"media":[{"type":"image","source":{"type":"url","url":"http://a.b","data":"AA=="}}]}}}`, codeInvalidField, "/input/message/media/0/source/data", "input.message.media[0].source.data: a source of type url has none"},
		"base64":            {`{"input":{"message":{"media":[{"type":"image","source":{"type":"base64","mimeType":"image/png","data":"?"}}]}}}`, codeInvalidField, "/input/message/media/0/source/data", "input.message.media[0].source.data: expected bytes in base64"},
		"mimeType":          {`{"input":{"message":{"media":[{"type":"image","source":{"type":"base64","data":"AA=="}}]}}}`, codeInvalidField, "/input/message/media/0/source/mimeType", "input.message.media[0].source.mimeType: expected a media type, like image/png"},
		"tools":             {`{"input":{"tools":{"callId":"c"}}}`, codeInvalidField, "/input/tools", "input.tools: expected an array, got an object"},
		"tool":              {`{"input":{"tools":[null]}}`, codeInvalidField, "/input/tools/0", "input.tools[0]: expected an object, got null"},
		"callId":            {`{"input":{"tools":[{"input":1}]}}`, codeInvalidField, "/input/tools/0/callId", "input.tools[0].callId: missing; expected the id of a call that waits"},
		"callId null":       {`{"input":{"tools":[{"callId":null,"input":1}]}}`, codeInvalidField, "/input/tools/0/callId", "input.tools[0].callId: expected a string, got null"},
		"answer":            {`{"input":{"tools":[{"callId":"c"}]}}`, codeInvalidField, "/input/tools/0/input", "input.tools[0].input: missing; expected the answer"},
		"two answers":       {`{"input":{"tools":[{"callId":"c","input":1},{"callId":"c","input":2}]}}`, codeInvalidField, "/input/tools/1/callId", "input.tools[1].callId: another answer is for the same call"},
		"frontend tool":     {`{"frontendTools":[{"description":"d"}]}`, codeInvalidField, "/frontendTools/0/name", "frontendTools[0].name: missing; expected the tool's name"},
		"frontend twice":    {`{"frontendTools":[{"name":"a"},{"name":"a"}]}`, codeInvalidField, "/frontendTools/1/name", "frontendTools[1].name: another tool has this name"},
		"frontend schema":   {`{"frontendTools":[{"name":"a","parameters":[]}]}`, codeInvalidField, "/frontendTools/0/parameters", "frontendTools[0].parameters: expected a JSON schema, an object, got an array"},
		"state":             {`{"input":{"state":[1]}}`, codeInvalidField, "/input/state", "input.state: expected an object, got an array"},
		"initialState":      {`{"input":{"initialState":{"session":1}}}`, codeInvalidField, "/input/initialState/session", "input.initialState.session: expected an object, got a number"},
		"initialState temp": {`{"input":{"initialState":{"temp":{}}}}`, codeInvalidField, "/input/initialState/temp", `input.initialState.temp: not the name of a shared scope: expected 1 to 64 letters, digits, "_" and "-", not "session" or "temp"`},
		"unbound scope":     {`{"input":{"message":"hi","initialState":{"user":{}}}}`, codeInvalidField, "/input/initialState/user", "input.initialState.user: scopes does not say which user: a new session binds its scopes by id"},
		"response":          {`{"response":true}`, codeInvalidField, "/response", "response: expected an object, got a boolean"},
		"response flag":     {`{"response":{"usage":"yes"}}`, codeInvalidField, "/response/usage", "response.usage: expected a boolean, got a string"},
		"timeout":           {`{"timeout":"5s"}`, codeInvalidField, "/timeout", "timeout: expected a number of milliseconds, got a string"},
		"timeout negative":  {`{"timeout":-1}`, codeInvalidField, "/timeout", "timeout: expected a number of milliseconds that is not negative"},
		"timeout fraction":  {`{"timeout":1.5}`, codeInvalidField, "/timeout", "timeout: expected a whole number of milliseconds"},
		"lane":              {`{"lane":"fast"}`, codeInvalidField, "/lane", "lane: expected interactive or batch"},
		"onDisconnect":      {`{"onDisconnect":"cancel"}`, codeInvalidField, "/onDisconnect", "onDisconnect: cancel is not supported yet; expected continue"},
		"onDisconnect odd":  {`{"onDisconnect":"x"}`, codeInvalidField, "/onDisconnect", "onDisconnect: expected continue"},
		"scope session":     {`{"scopes":{"session":"x"}}`, codeInvalidField, "/scopes/session", `scopes.session: not the name of a shared scope: expected 1 to 64 letters, digits, "_" and "-", not "session" or "temp"`},
		"scope name":        {`{"scopes":{"a b":"x"}}`, codeInvalidField, "/scopes/a b", `scopes.a b: not the name of a shared scope: expected 1 to 64 letters, digits, "_" and "-", not "session" or "temp"`},
		"scope id":          {`{"scopes":{"user":""}}`, codeInvalidField, "/scopes/user", "scopes.user: expected an id of 1 to 200 characters, none of them a control character"},
		"metadata":          {`{"metadata":{"n":1}}`, codeInvalidField, "/metadata/n", "metadata.n: expected a string, got a number"},
		"metadata null":     {`{"metadata":{"n":null}}`, codeInvalidField, "/metadata/n", "metadata.n: expected a string, got null"},
		"pointer escapes":   {`{"metadata":{"a/b~c":1}}`, codeInvalidField, "/metadata/a~1b~0c", "metadata.a/b~c: expected a string, got a number"},

		"elsewhere":      {`{"message":"hi"}`, codeUnknownField, "/message", "message: did you mean input.message?"},
		"deep elsewhere": {`{"input":{"message":"hi","sessionId":"x"}}`, codeUnknownField, "/input/sessionId", "input.sessionId: did you mean sessionId?"},
		"misspelt":       {`{"inptu":{}}`, codeUnknownField, "/inptu", "inptu: did you mean input?"},
		"snake case":     {`{"session_id":"x"}`, codeUnknownField, "/session_id", "session_id: did you mean sessionId?"},
		"in an array":    {`{"input":{"tools":[{"call_id":"c","input":1}]}}`, codeUnknownField, "/input/tools/0/call_id", "input.tools[0].call_id: did you mean input.tools[].callId?"},
		"deepest":        {`{"input":{"message":{"media":[{"type":"image","source":{"type":"url","uri":"x"}}]}}}`, codeUnknownField, "/input/message/media/0/source/uri", "input.message.media[0].source.uri: did you mean input.message.media[].source.url?"},
		"nothing near":   {`{"input":{"message":"hi","temperature":1}}`, codeUnknownField, "/input/temperature", "input.temperature: unknown field; known here: message, tools, state, initialState"},
		"a huge name":    {`{"` + strings.Repeat("x", 1000) + `":1}`, codeUnknownField, "/" + strings.Repeat("x", 64) + "…", strings.Repeat("x", 64) + "…: unknown field; known here: agent, sessionId, input, frontendTools, response, timeout, lane, onDisconnect, scopes, metadata"},
		"several":        {`{"agent":1,"lanes":"batch","timeout":-1}`, codeUnknownField, "/agent", "agent: expected a string, got a number (and 2 more)"},

		"no input":      {`{"agent":"echo"}`, codeEmptyInput, "", "input needs a message, tools or state"},
		"empty input":   {`{"input":{}}`, codeEmptyInput, "", "input needs a message, tools or state"},
		"empty all":     {`{"input":{"message":"","tools":[],"state":{}}}`, codeEmptyInput, "", "input needs a message, tools or state"},
		"empty object":  {`{"input":{"message":{"text":"","media":[]}}}`, codeEmptyInput, "", "input needs a message, tools or state"},
		"initial alone": {`{"input":{"initialState":{"session":{"a":1}}}}`, codeEmptyInput, "", "input needs a message, tools or state"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := decodeRequest([]byte(tt.body))
			var f *fault
			if !errors.As(err, &f) {
				t.Fatalf("not refused: %v", err)
			}
			path := ""
			if len(f.fields) > 0 {
				path = f.fields[0].Path
			}
			if f.code != tt.code || path != tt.path || f.detail != tt.detail {
				t.Errorf("got  %s %q %q\nwant %s %q %q", f.code, path, f.detail, tt.code, tt.path, tt.detail)
			}
		})
	}
}

func TestDecodeRequestGoesOn(t *testing.T) {
	t.Parallel()
	_, err := decodeRequest([]byte(`{"agent":1,"input":{"mesage":"hi","tools":[{"input":1}]},"timeout":-1}`))
	var f *fault
	if !errors.As(err, &f) {
		t.Fatal(err)
	}
	want := []fieldError{
		{"/agent", "expected a string, got a number"},
		{"/input/mesage", "did you mean input.message?"},
		{"/input/tools/0/callId", "missing; expected the id of a call that waits"},
		{"/timeout", "expected a number of milliseconds that is not negative"},
	}
	if diff := cmp.Diff(want, f.fields); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeRequestBoundsItsAnswer(t *testing.T) {
	t.Parallel()
	_, err := decodeRequest([]byte(`{"input":{"tools":[` + strings.Repeat("1,", 1000) + `1]}}`))
	var f *fault
	if !errors.As(err, &f) || len(f.fields) != maxFieldErrors || !strings.HasSuffix(f.detail, "(and 1000 more)") {
		t.Errorf("%d errors, %v", len(f.fields), err)
	}
}

func TestDeepestBody(t *testing.T) {
	t.Parallel()
	body := `{"input":{"state":{"a":` + strings.Repeat("[", 61) + strings.Repeat("]", 61) + `}}}`
	if _, err := decodeRequest([]byte(body)); err != nil {
		t.Error(err)
	}
}

// The tree of known fields is written out, so it must be kept like the types.
func TestShapesFollowTheTypes(t *testing.T) {
	t.Parallel()
	var names func(of reflect.Type) *shape
	names = func(of reflect.Type) *shape {
		out := &shape{}
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			out.list = out.list || of.Kind() == reflect.Slice
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct {
			return &shape{}
		}
		for i := range of.NumField() {
			f := names(of.Field(i).Type)
			f.name, _, _ = strings.Cut(of.Field(i).Tag.Get("json"), ",")
			out.fields = append(out.fields, f)
		}
		return out
	}
	lines := func(s *shape) []string {
		var out []string
		s.walk("", 0, func(c candidate) { out = append(out, c.path) })
		slices.Sort(out)
		return out
	}
	if diff := cmp.Diff(lines(names(reflect.TypeFor[turn.Request]())), lines(requestShape)); diff != "" {
		t.Errorf("(-type +shape):\n%s", diff)
	}
}

// FuzzDecodeRequest: whatever comes in is refused as the caller's fault, or
// becomes a request that can be queued and read back.
func FuzzDecodeRequest(f *testing.F) {
	for _, seed := range []string{
		"", "{", "null", `"x"`, "0", "[]", message,
		`{"agent":"echo","sessionId":"s","input":{"message":{"text":"t","media":[{"type":"image","source":{"type":"url","url":"http://x.y"}}]}}}`,
		`{"input":{"tools":[{"callId":"c","input":{"a":[1,{"b":"\ud800\u0000"}]}}],"state":{"k":1e400},"initialState":{"session":{}}}}`,
		`{"timeout":-9223372036854775809,"lane":"batch","scopes":{"user":"x"},"metadata":{"":""},"response":{"deltas":true}}`,
		`{"a\u0000":{"b":[[[[]]]]},"":"","\ud800":1}`, "{\"input\":{\"message\":\"\xff\"}}", ` { "input" : { "message" : "x" } } `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		request, err := decodeRequest(body)
		if err != nil {
			if status := meanings[faultOf(err).code].status; status != http.StatusBadRequest {
				t.Errorf("status %d: %v", status, err)
			}
			if _, err := encodeJSON(faultOf(err).fields); err != nil {
				t.Error(err)
			}
			return
		}
		if request.SessionID == "" {
			request.SessionID = turn.NewSessionID()
		}
		sub := &turn.Submission{Tenant: turn.DefaultTenant, InvocationID: turn.NewInvocationID(), Pool: "p", Request: request}
		encoded, err := sub.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := turn.DecodeSubmission(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := back.Encode(); err != nil || string(again) != string(encoded) {
			t.Errorf("%s\n%s\n%v", encoded, again, err)
		}
	})
}

func FuzzDecodeSession(f *testing.F) {
	f.Add([]byte(`{"sessionId":"s","scopes":{"user":"u"},"state":{"a":1},"initialState":{"user":{"b":2},"session":{"a":0}}}`))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, err := decodeSession(body); err != nil && meanings[faultOf(err).code].status != http.StatusBadRequest {
			t.Error(err)
		}
	})
}

func BenchmarkDecodeRequest(b *testing.B) {
	body := []byte(`{"agent":"echo","sessionId":"thread-42","input":{"message":"How long is my stay, and when do I have to check out?"},"response":{"usage":true},"metadata":{"ticket":"4711"}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeRequest(body); err != nil {
			b.Fatal(err)
		}
	}
}
