package httptool_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/turnpool/turnpool/agent/httptool"
)

func TestResult(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status            int
		contentType, body string
		want              string
	}{
		"an object":        {200, "application/json", ` {"n": 1.0, "m": 12345678901234567890} `, `{"n": 1.0, "m": 12345678901234567890}`},
		"a list":           {201, "application/json; charset=utf-8", `[]`, `[]`},
		"JSON as text":     {200, "text/plain", `{"n":1}`, `{"n":1}`},
		"JSON of no type":  {200, "", `{"n":1}`, `{"n":1}`},
		"a kind of JSON":   {200, "application/problem+json", `null`, `null`},
		"a byte order":     {200, "application/json", "\ufeff{}", `{}`},
		"text":             {200, "text/plain", "It's \"fine\"\n", `"It's \"fine\""`},
		"HTML":             {200, "text/html", "<p>é</p>", `"\u003cp\u003eé\u003c/p\u003e"`},
		"nothing":          {200, "application/json", "", `null`},
		"blanks":           {200, "text/plain", " \n", `null`},
		"no content":       {204, "", "", `null`},
		"a number as text": {200, "text/plain", "42", `42`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, say(c.status, c.contentType, c.body))
			result, err := call(t, newTool(t, httptool.Config{URL: s.URL}), `{}`)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "result", result, c.want)
		})
	}
}

func TestResultOfHead(t *testing.T) {
	t.Parallel()
	s := serve(t, say(200, "application/json", ``))
	result, err := call(t, newTool(t, httptool.Config{Method: "HEAD", URL: s.URL}), `{}`)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "result", result, "null")
}

// What is no result is an error that the model can make something of.
func TestErrorAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status            int
		contentType, body string
		want              string
	}{
		"not found":       {404, "application/json", `{"error":"no such stay"}`, `status 404 Not Found: {"error":"no such stay"}`},
		"no body":         {503, "", "", `status 503 Service Unavailable`},
		"an odd status":   {499, "", "gone", `status 499: gone`},
		"several lines":   {500, "text/plain", "Traceback\n\n\tline  1\n", `status 500 Internal Server Error: Traceback line 1`},
		"long":            {500, "text/plain", "é" + strings.Repeat("ab", 9000), `status 500 Internal Server Error: é` + strings.Repeat("ab", 255) + "…"},
		"long, at an é":   {500, "text/plain", strings.Repeat("aé", 9000), `status 500 Internal Server Error: ` + strings.Repeat("aé", 170) + "a…"},
		"bytes":           {400, "text/plain", "a\xffb", "status 400 Bad Request: a\ufffdb"},
		"not modified":    {304, "", "", `status 304 Not Modified`},
		"leads nowhere":   {302, "", "", `status 302 Found`},
		"no JSON":         {200, "application/json", `{"a":`, `the answer says that it is JSON, and is not`},
		"no kind of JSON": {200, "application/hal+json", `hello`, `the answer says that it is JSON, and is not`},
		"an image":        {200, "image/png", "\x89PNG", `the answer is neither JSON nor text in UTF-8`},
		"JSON in latin 1": {200, "application/json", "\"\xe9\"", `the answer is neither JSON nor text in UTF-8`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, say(c.status, c.contentType, c.body))
			result, err := call(t, newTool(t, httptool.Config{URL: s.URL}), `{}`)
			wantError(t, err, c.want)
			equal(t, "result", result, "")
		})
	}
}

// The limit counts what comes out of a packed body, not what goes over the wire.
func TestResponseLimit(t *testing.T) {
	t.Parallel()
	packed := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		zip := gzip.NewWriter(w)
		io.WriteString(zip, strings.Repeat("a", 101))
		zip.Close()
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string // an error
	}{
		"at the limit": {say(200, "text/plain", strings.Repeat("a", 100)), ""},
		"over it":      {say(200, "text/plain", strings.Repeat("a", 101)), "the answer is longer than 100 bytes, the limit of this tool (maxResponse)"},
		"packed":       {packed, "the answer is longer than 100 bytes, the limit of this tool (maxResponse)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, c.answer)
			result, err := call(t, newTool(t, httptool.Config{URL: s.URL, MaxResponse: 100}), `{}`)
			if c.want != "" {
				wantError(t, err, c.want)
				return
			}
			equal(t, "error", err, nil)
			equal(t, "result", len(result), 102)
		})
	}
}

func TestDefaultResponseLimit(t *testing.T) {
	t.Parallel()
	s := serve(t, say(200, "text/plain", strings.Repeat("a", 1<<20+1)))
	_, err := call(t, newTool(t, httptool.Config{URL: s.URL}), `{}`)
	wantError(t, err, "the answer is longer than 1048576 bytes, the limit of this tool (maxResponse)")
}

// A server that repeats what it was sent does not show the model a key.
func TestErrorsHideSecrets(t *testing.T) {
	t.Parallel()
	echo := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, "%s %s key=%s by=%s %s", r.Header.Get("Authorization"),
			strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), r.URL.Query().Get("key"), r.Header.Get("X-Key"), r.Header.Get("Accept"))
	}
	s := serve(t, echo)
	_, err := call(t, newTool(t, httptool.Config{URL: s.URL + "/?key=url-secret", Headers: map[string]string{
		"Authorization": "Bearer sk-very-secret", "X-Key": "sk-very-secret-2", "Accept": "application/json",
	}}), `{}`)
	wantError(t, err, "status 401 Unauthorized: [redacted] [redacted] key=[redacted] by=[redacted] application/json")
}

// Failures on the way say what failed, and neither where nor with what.
func TestSendErrors(t *testing.T) {
	t.Parallel()
	raw := func(answer string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			io.WriteString(conn, answer)
			conn.Close()
		}
	}
	for name, c := range map[string]struct{ answer, want string }{
		"broken off":   {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "the request failed: unexpected EOF"},
		"a bad header": {"HTTP/1.1 200 OK\r\nsk-very-secret\r\n\r\n", "the request failed: net/http: HTTP/1.x transport connection broken: malformed MIME header: missing colon: \"[redacted]\""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, raw(c.answer))
			_, err := call(t, newTool(t, httptool.Config{URL: s.URL, Headers: map[string]string{"X-Key": "sk-very-secret"}}), `{}`)
			wantError(t, err, c.want)
		})
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	_, err = call(t, newTool(t, httptool.Config{URL: "http://" + ln.Addr().String() + "/?key=secret"}), `{}`)
	wantError(t, err, "the request failed: connect: connection refused")
}

func TestUntrustedCertificate(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(say(200, "", ""))
	s.Config.ErrorLog = quiet
	s.StartTLS()
	t.Cleanup(s.Close)
	_, err := call(t, newTool(t, httptool.Config{URL: s.URL}), `{}`)
	wantError(t, err, "the request failed: the host's certificate is not trusted")
	result, err := call(t, newTool(t, httptool.Config{URL: s.URL, Client: s.Client()}), `{}`)
	equal(t, "error with a client that trusts it", err, nil)
	equal(t, "result", result, "null")
}
