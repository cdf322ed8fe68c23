package httptool_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/httptool"
)

// got is a request as a server saw it.
type got struct {
	Method, URI, Body string
	Header            http.Header
}

// server keeps the requests that come, and answers them with a function.
type server struct {
	*httptest.Server

	mu   sync.Mutex
	seen []got
}

func serve(t *testing.T, answer http.HandlerFunc) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		s.seen = append(s.seen, got{r.Method, r.RequestURI, string(body), r.Header})
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// say answers every request the same.
func say(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// requests are those that came so far.
func (s *server) requests() []got {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]got{}, s.seen...)
}

// one is the only request that came.
func (s *server) one(t *testing.T) got {
	t.Helper()
	all := s.requests()
	if len(all) != 1 {
		t.Fatalf("%d requests came, want 1", len(all))
	}
	return all[0]
}

// newTool makes a tool that may use the test's own addresses.
func newTool(t *testing.T, cfg httptool.Config) *agent.Tool {
	t.Helper()
	cfg.Name, cfg.AllowPrivate = "lookup_stay", true
	tool, err := httptool.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

// call runs a tool once, and waits a minute at most.
func call(t *testing.T, tool *agent.Tool, args string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	result, err := tool.Execute(ctx, &agent.Call{Args: json.RawMessage(args), Token: "tok_1"})
	return string(result), err
}

// within fails the test if it takes longer than a minute of real time.
func within[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came in a minute")
		panic("unreachable")
	}
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// wantError checks the whole text of an error.
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func contains(t *testing.T, what, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%s: %q, want it to have %q", what, text, part)
	}
}
