package httptool_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/httptool"
)

// Where arguments go is a matter of the method and the URL alone.
func TestRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method, path, args string
		want               string // method, URI and body
	}{
		"post":                  {"", "/stays", `{"ref":"B-42","n":1.50}`, `POST /stays {"n":1.50,"ref":"B-42"}`},
		"put":                   {"PUT", "/stays", `{"ref":"<&>"}`, `PUT /stays {"ref":"<&>"}`},
		"patch, nothing":        {"PATCH", "/stays", `{}`, `PATCH /stays {}`},
		"no arguments at all":   {"POST", "/stays", ``, `POST /stays {}`},
		"delete":                {"DELETE", "/stays/{ref}", `{"ref":"B-42"}`, `DELETE /stays/B-42 `},
		"delete, a body":        {"DELETE", "/stays/{ref}", `{"ref":"B-42","why":"gone"}`, `DELETE /stays/B-42 {"why":"gone"}`},
		"keys in order":         {"POST", "/", `{"b":{"d":1,"c":12345678901234567890},"a":null}`, `POST / {"a":null,"b":{"c":12345678901234567890,"d":1}}`},
		"get":                   {"GET", "/stays", `{"ref":"B 42&c=d","n":2,"deep":true}`, `GET /stays?deep=true&n=2&ref=B+42%26c%3Dd `},
		"get, a list":           {"GET", "/stays", `{"ref":["a","b",3],"none":null,"empty":[]}`, `GET /stays?ref=a&ref=b&ref=3 `},
		"get, an object":        {"GET", "/stays", `{"q":{"a":[1]},"l":[[1],null]}`, `GET /stays?l=%5B%5B1%5D%2Cnull%5D&q=%7B%22a%22%3A%5B1%5D%7D `},
		"get, the URL's own":    {"GET", "/stays?v=2&x", `{"ref":"a"}`, `GET /stays?v=2&x&ref=a `},
		"get, no arguments":     {"GET", "/stays?v=2", `{}`, `GET /stays?v=2 `},
		"head":                  {"HEAD", "/stays", `{"ref":"a"}`, `HEAD /stays?ref=a `},
		"in the path":           {"GET", "/hotels/{hotel}/stays/{ref}", `{"hotel":7,"ref":"a/b?c#d é","x":1}`, `GET /hotels/7/stays/a%2Fb%3Fc%23d%20%C3%A9?x=1 `},
		"beside text":           {"POST", "/stays/{ref}.json", `{"ref":"B-42"}`, `POST /stays/B-42.json {}`},
		"twice":                 {"POST", "/{a}/{a}", `{"a":true}`, `POST /true/true {}`},
		"in the query":          {"POST", "/stays?ref={ref}&v=2", `{"ref":"a&b=c","x":1}`, `POST /stays?ref=a%26b%3Dc&v=2 {"x":1}`},
		"an escape":             {"POST", "/%7Bstays%7D", `{}`, `POST /%7Bstays%7D {}`},
		"a percent in a value":  {"POST", "/{a}", `{"a":"%2e%2e"}`, `POST /%252e%252e {}`},
		"no placeholder, a dot": {"POST", "/v1.0/..x", `{"a":".."}`, `POST /v1.0/..x {"a":".."}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, say(200, "application/json", `{}`))
			tool := newTool(t, httptool.Config{Method: c.method, URL: s.URL + c.path})
			if _, err := call(t, tool, c.args); err != nil {
				t.Fatal(err)
			}
			req := s.one(t)
			equal(t, "request", req.Method+" "+req.URI+" "+req.Body, c.want)
		})
	}
}

// Arguments that cannot be sent are the model's to mend; nothing is sent.
func TestRequestRefused(t *testing.T) {
	t.Parallel()
	const part = `is part of the URL: want a string, a number or a boolean, not empty`
	for name, c := range map[string]struct{ method, path, args, want string }{
		"no object":      {"POST", "/", `[1]`, `arguments are not a JSON object`},
		"null":           {"POST", "/", `null`, `arguments are not a JSON object`},
		"not JSON":       {"POST", "/", `"{"`, `arguments are not a JSON object`},
		"absent":         {"GET", "/{ref}", `{}`, `argument "ref" ` + part},
		"empty":          {"GET", "/{ref}", `{"ref":""}`, `argument "ref" ` + part},
		"null in a path": {"GET", "/{ref}", `{"ref":null}`, `argument "ref" ` + part},
		"an object":      {"GET", "/{ref}", `{"ref":{}}`, `argument "ref" ` + part},
		"a list":         {"GET", "/?r={ref}", `{"ref":["a"]}`, `argument "ref" ` + part},
		"a way up":       {"GET", "/a/{ref}/b", `{"ref":".."}`, `the arguments ref make "." or ".." of a part of the path`},
		"a way up inside": {"GET", "/a/{ref}", `{"ref":"b/../../c"}`,
			`the arguments ref make "." or ".." of a part of the path`},
		"a way up of two": {"GET", "/{a}{b}/", `{"a":".","b":"."}`, `the arguments a, b make "." or ".." of a part of the path`},
		"a way to stay":   {"GET", "/{ref}", `{"ref":"."}`, `the arguments ref make "." or ".." of a part of the path`},
		"the URL's own":   {"GET", "/?key=s3cret", `{"key":"mine"}`, `argument "key" is part of the URL already`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, say(200, "application/json", `{}`))
			_, err := call(t, newTool(t, httptool.Config{Method: c.method, URL: s.URL + c.path}), c.args)
			wantError(t, err, c.want)
			equal(t, "requests", len(s.requests()), 0)
		})
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	s := serve(t, say(200, "application/json", `{}`))
	tool := newTool(t, httptool.Config{URL: s.URL, Headers: map[string]string{
		"authorization": "Bearer abc", "X-Version": "2", "Accept": "application/vnd.stays+json",
	}})
	if _, err := call(t, tool, `{}`); err != nil {
		t.Fatal(err)
	}
	header := s.one(t).Header
	header.Del("Accept-Encoding")
	header.Del("Content-Length")
	equal(t, "headers", header, http.Header{
		"Authorization": {"Bearer abc"}, "X-Version": {"2"}, "Accept": {"application/vnd.stays+json"},
		"Content-Type": {"application/json"}, "Idempotency-Key": {"tok_1"}, "User-Agent": {"turnpool"},
	})
}

// A GET has no body, and says so.
func TestHeadersWithoutBody(t *testing.T) {
	t.Parallel()
	s := serve(t, say(200, "application/json", `{}`))
	if _, err := call(t, newTool(t, httptool.Config{Method: "GET", URL: s.URL}), `{}`); err != nil {
		t.Fatal(err)
	}
	header := s.one(t).Header
	equal(t, "content type", header.Values("Content-Type"), []string(nil))
	equal(t, "accept", header.Get("Accept"), "application/json, */*;q=0.5")
}

// A tool that stopped to ask sends the answer beside the arguments.
func TestYielding(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ method, path, answer, want string }{
		"post":      {"POST", "/", `{"ok":true}`, `{"answer":{"ok":true},"args":{"n":1,"ref":"B-42"}}`},
		"delete":    {"DELETE", "/", `"yes"`, `{"answer":"yes","args":{"n":1,"ref":"B-42"}}`},
		"in a path": {"POST", "/{ref}", `{}`, `{"answer":{},"args":{"n":1}}`},
		"no answer": {"POST", "/", ``, `{"answer":null,"args":{"n":1,"ref":"B-42"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, say(200, "application/json", `{"booked":true}`))
			tool := newTool(t, httptool.Config{Method: c.method, URL: s.URL + c.path, Yields: &jsonschema.Schema{}})
			result, err := tool.Execute(t.Context(), &agent.Call{
				Args: json.RawMessage(`{"ref":"B-42","n":1}`), Answer: json.RawMessage(c.answer), Token: "tok_2",
			})
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "result", string(result), `{"booked":true}`)
			equal(t, "body", s.one(t).Body, c.want)
			equal(t, "token", s.one(t).Header.Get("Idempotency-Key"), "tok_2")
		})
	}
}

// Calls that follow each other share a connection, also those of several tools.
func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	froms := make(chan string, 4)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		froms <- r.RemoteAddr
		say(200, "text/plain", "fine")(w, r)
	})
	first := newTool(t, httptool.Config{URL: s.URL})
	second := newTool(t, httptool.Config{Method: "GET", URL: s.URL})
	for _, tool := range []*agent.Tool{first, second, first} {
		if _, err := call(t, tool, `{}`); err != nil {
			t.Fatal(err)
		}
	}
	from := within(t, froms)
	equal(t, "second call's connection", within(t, froms), from)
	equal(t, "third call's connection", within(t, froms), from)
}
