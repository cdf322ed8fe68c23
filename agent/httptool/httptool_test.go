package httptool_test

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agenttest"
	"github.com/turnpool/turnpool/agent/httptool"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

var quiet = log.New(io.Discard, "", 0)

func TestNew(t *testing.T) {
	t.Parallel()
	parameters := &jsonschema.Schema{Type: "object", Required: []string{"ref"}, Properties: map[string]*jsonschema.Schema{"ref": {Type: "string"}}}
	tool, err := httptool.New(httptool.Config{
		Name: "lookup_stay", Description: "Look up a booking", Parameters: parameters, URL: "https://api.example.com/stays/{ref}",
	})
	if err != nil {
		t.Fatal(err)
	}
	if tool.Name != "lookup_stay" || tool.Description != "Look up a booking" || tool.Parameters != parameters || tool.Yields != nil {
		t.Errorf("the tool is %q, %q, %v, %v", tool.Name, tool.Description, tool.Parameters, tool.Yields)
	}
	equal(t, "timeout", tool.Timeout, 30*time.Second)
	equal(t, "check", tool.Check(), nil)
}

func TestNewErrors(t *testing.T) {
	t.Parallel()
	const noURL = "url: it is no URL; want http:// or https:// with a host, such as https://api.example.com/stays/{ref}, with placeholders in path and query only"
	object := func(required ...string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "object", Required: required, Properties: map[string]*jsonschema.Schema{"ref": {}}}
	}
	for name, c := range map[string]struct {
		cfg  httptool.Config
		want string
	}{
		"no URL":               {httptool.Config{}, noURL},
		"no scheme":            {httptool.Config{URL: "api.example.com/x"}, noURL},
		"a file":               {httptool.Config{URL: "file:///etc/passwd"}, noURL},
		"no host":              {httptool.Config{URL: "http:///x"}, noURL},
		"no host, a port":      {httptool.Config{URL: "http://:80/x"}, noURL},
		"opaque":               {httptool.Config{URL: "http:x"}, noURL},
		"a port that is not":   {httptool.Config{URL: "http://h:99999/x"}, noURL},
		"a port of letters":    {httptool.Config{URL: "http://h:http/x"}, noURL},
		"a bad escape":         {httptool.Config{URL: "http://h/%zz"}, noURL},
		"a placeholder host":   {httptool.Config{URL: "http://{host}/x"}, noURL},
		"a placeholder port":   {httptool.Config{URL: "http://h:{port}/x"}, noURL},
		"a placeholder user":   {httptool.Config{URL: "http://{user}@h/x"}, noURL},
		"a placeholder scheme": {httptool.Config{URL: "{scheme}://h/x"}, noURL},
		"a control character":  {httptool.Config{URL: "http://h/\n"}, noURL},
		"a fragment":           {httptool.Config{URL: "http://h/x#y"}, "url: want no fragment (#…), which is not sent"},
		"a way up":             {httptool.Config{URL: "http://h/../x"}, `url: want no "." or ".." in the path`},
		"an open brace":        {httptool.Config{URL: "http://h/{x"}, "url: a { opens no {name}; as text it is %7B"},
		"no name":              {httptool.Config{URL: "http://h/{}"}, "url: a { opens no {name}; as text it is %7B"},
		"a brace in one":       {httptool.Config{URL: "http://h/{{x}}"}, "url: a { opens no {name}; as text it is %7B"},
		"over two parts":       {httptool.Config{URL: "http://h/{a/b}"}, "url: a { opens no {name}; as text it is %7B"},
		"a close brace":        {httptool.Config{URL: "http://h/?x}"}, "url: a } has no {; as text it is %7D"},
		"no property":          {httptool.Config{URL: "http://h/{x}", Parameters: object("ref")}, "url: {x} is no required property of parameters"},
		"not required":         {httptool.Config{URL: "http://h/{ref}", Parameters: object()}, "url: {ref} is no required property of parameters"},
		"method":               {httptool.Config{URL: "http://h", Method: "post"}, "method: there is no such method; want one of GET, HEAD, POST, PUT, PATCH, DELETE"},
		"yields of a GET":      {httptool.Config{URL: "http://h", Method: "GET", Yields: object()}, "yields: the answer goes in the body; want a method that has one, such as POST"},
		"timeout":              {httptool.Config{URL: "http://h", Timeout: -1}, "timeout: want a positive duration"},
		"limit":                {httptool.Config{URL: "http://h", MaxResponse: -1}, "maxResponse: want a number of bytes from 1 to 1 GiB"},
		"limit too far":        {httptool.Config{URL: "http://h", MaxResponse: 1<<30 + 1}, "maxResponse: want a number of bytes from 1 to 1 GiB"},
		"header name":          {httptool.Config{URL: "http://h", Headers: map[string]string{"X Key": "s3cret"}}, "headers.X Key: it is no header name; want letters, digits and -"},
		"no header name":       {httptool.Config{URL: "http://h", Headers: map[string]string{"": "s3cret"}}, "headers.: it is no header name; want letters, digits and -"},
		"header value":         {httptool.Config{URL: "http://h", Headers: map[string]string{"X-Key": "s3cret\nHost: x"}}, "headers.X-Key: want a value without line breaks and control characters"},
		"own header":           {httptool.Config{URL: "http://h", Headers: map[string]string{"idempotency-key": "s3cret"}}, "headers.idempotency-key: the request sets it itself"},
		"header twice":         {httptool.Config{URL: "http://h", Headers: map[string]string{"X-Key": "a", "x-key": "b"}}, "headers.x-key: the header is there twice"},
		"client":               {httptool.Config{URL: "http://h", Client: &http.Client{}}, "client: nothing checks its addresses; want AllowPrivate with it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.cfg.Name = "t"
			tool, err := httptool.New(c.cfg)
			wantError(t, err, `http tool "t": `+c.want)
			if tool != nil {
				t.Error("a tool beside an error")
			}
		})
	}
}

func TestNewErrorsAllAtOnce(t *testing.T) {
	t.Parallel()
	faults := (&httptool.Config{URL: "ftp://h", Method: "FETCH", Timeout: -1, Headers: map[string]string{"Host": "x", "A B": ""}}).Check()
	var fields []string
	for _, f := range faults {
		fields = append(fields, f.Field)
	}
	equal(t, "fields", strings.Join(fields, " "), "method timeout headers.A B headers.Host url")
}

// A call whose context ends returns, and closes its request.
func TestCancel(t *testing.T) {
	t.Parallel()
	for name, begun := range map[string]bool{"before an answer": false, "in the body": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived, closed := make(chan struct{}), make(chan struct{})
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if begun {
					io.WriteString(w, `{"a":`)
					http.NewResponseController(w).Flush()
				}
				close(arrived)
				<-r.Context().Done()
				close(closed)
			})
			tool := newTool(t, httptool.Config{URL: s.URL})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			failed := make(chan error, 1)
			go func() {
				_, err := tool.Execute(ctx, &agent.Call{Args: json.RawMessage(`{}`)})
				failed <- err
			}()
			within(t, arrived)
			cancel()
			wantError(t, within(t, failed), "context canceled")
			within(t, closed)
		})
	}
}

// In a run, a call that takes too long is marked, its request closed, and the
// model goes on; the token is the call's.
func TestInARun(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
			close(closed)
			return
		}
		say(200, "application/json", `{"nights":3}`)(w, r)
	})
	slow := newTool(t, httptool.Config{URL: s.URL + "/slow", Timeout: 20 * time.Millisecond})
	slow.Name = "slow"
	model := agenttest.NewModel(agenttest.Calls("lookup_stay", `{"ref":"B-42"}`, "slow", `{}`), agenttest.Text("Three."))
	run := agent.Run{
		Agent:        &agent.Agent{Name: "a", Model: model, Tools: []*agent.Tool{newTool(t, httptool.Config{URL: s.URL}), slow}},
		InvocationID: turn.NewInvocationID(), SessionID: "s", Attempt: 1, State: session.State{}, Sink: nowhere{},
		Input: turn.Input{Message: turn.Text("How long?")},
	}
	done := make(chan agent.Outcome, 1)
	go func() { done <- run.Do(t.Context()) }()
	outcome := within(t, done)
	within(t, closed)
	equal(t, "status", outcome.Status, session.StatusCompleted)
	results := map[string]*session.ToolResult{}
	for _, e := range outcome.Events {
		if result, ok := e.(*session.ToolResult); ok {
			results[result.Name] = result
		}
	}
	equal(t, "result", string(results["lookup_stay"].Result), `{"nights":3}`)
	equal(t, "slow timed out", results["slow"].TimedOut, true)
	equal(t, "slow's error", results["slow"].Error, "timed out after 20ms")
	tokens := map[string]bool{}
	for _, req := range s.requests() {
		token := req.Header.Get("Idempotency-Key")
		contains(t, "token", token, "tok_")
		tokens[token] = true
	}
	equal(t, "tokens", len(tokens), 2)
}

// nowhere is a sink that keeps nothing.
type nowhere struct{}

func (nowhere) Emit(turn.Event)             {}
func (nowhere) Flush(context.Context) error { return nil }

func FuzzCall(f *testing.F) {
	f.Add("https://api.example.com/stays/{ref}?v={v}", `{"ref":"B-42","v":[1]}`)
	f.Add("http://u:p@[::1]:80/%7B{a}{b}", `{"a":".","b":true}`)
	f.Add("http://h/{a}?{b}", `{"a":"../x","b":1e99}`)
	f.Fuzz(func(t *testing.T, url, args string) {
		var sent *http.Request
		client := &http.Client{Transport: transportFunc(func(req *http.Request) (*http.Response, error) {
			sent = req
			return &http.Response{StatusCode: 204, Body: http.NoBody, Request: req}, nil
		})}
		tool, err := httptool.New(httptool.Config{Name: "t", Method: "GET", URL: url, AllowPrivate: true, Client: client})
		if err != nil {
			return
		}
		_, err = tool.Execute(t.Context(), &agent.Call{Args: json.RawMessage(args)})
		if err != nil {
			return
		}
		// Whatever the arguments are, the host is the one that was written.
		base, _, _ := strings.Cut(url, "{")
		plain, err := http.NewRequest("GET", base, nil)
		if err != nil {
			t.Fatalf("%q: %v", base, err)
		}
		if sent.URL.Host != plain.URL.Host || sent.URL.Scheme != plain.URL.Scheme {
			t.Errorf("%q with %s goes to %s", url, args, sent.URL)
		}
		for part := range strings.SplitSeq(sent.URL.EscapedPath(), "/") {
			if part == ".." {
				t.Errorf("%q with %s has a way up: %s", url, args, sent.URL)
			}
		}
	})
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
