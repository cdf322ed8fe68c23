// Package openaitest is a provider for tests: a server that speaks OpenAI's two
// streaming APIs as they are on the wire, answers as a test says, and keeps what
// it was asked. It is for tests and examples only; nothing that ships imports it.
//
//	POST /v1/responses           event: response.created, response.output_text.delta, …
//	POST /v1/chat/completions    data: {"object":"chat.completion.chunk", …}, then [DONE]
//
// A [Reply] is an answer in terms of both (texts, thoughts, calls, usage), or a
// body of the test's own. Either can be cut into pieces at any byte, and can hang
// or lose its connection anywhere:
//
//	srv := openaitest.New(t)
//	srv.Reply(
//		openaitest.Reply{Items: []openaitest.Item{openaitest.Call("call_1", "lookup", `{"ref":"B-42"}`)}},
//		openaitest.Reply{Items: []openaitest.Item{openaitest.Text("3 nights.")}, Every: 7},
//		openaitest.Reply{Status: 429, Header: http.Header{"Retry-After": {"3"}}, Body: `{"error":{"message":"slow down"}}`},
//	)
//	// … the model asks srv.URL() …
//	srv.Requests()[0].Body
package openaitest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
)

// Server is a provider on a port of its own. It may be used concurrently.
type Server struct {
	http *httptest.Server
	stop chan struct{} // closed by Close: nothing hangs any longer

	mu          sync.Mutex
	replies     []Reply
	otherwise   func(*Request) Reply
	requests    []*Request
	connections int
	closed      bool
}

// Request is what the server was asked.
type Request struct {
	// Path is /v1/responses or /v1/chat/completions.
	Path   string
	Header http.Header
	// Body is the body's JSON, as [json.Unmarshal] decodes it, and Raw its bytes.
	Body map[string]any
	Raw  []byte
	// Gone is closed once the client has closed the request, or its answer has
	// been sent.
	Gone <-chan struct{}

	nth int // from 1
}

// Reply is an answer. The zero value is one with no items.
type Reply struct {
	// Items are what the model answers, in order, as the API that was asked says it.
	Items []Item
	// Usage is what the call is billed for; nil: 10 tokens in, 5 out.
	Usage *Usage
	// Finish is stop, length, tool_calls or content_filter; empty: tool_calls if
	// there are calls, else stop.
	Finish string
	// ASCII writes other characters as \u escapes.
	ASCII bool

	// Body, if there is one, is sent instead of the items, as it is.
	Body string
	// Status is 200 if it is left out. A reply that has one has no items, and its
	// Body may be empty. Header is added to the answer's own.
	Status int
	Header http.Header

	// Cuts are places in the body to cut it at: what comes before one is sent on
	// its way before the rest is written. Every, if it is not 0, cuts after each so
	// many bytes.
	Cuts  []int
	Every int
	// HangAt and DropAt end the body after so many bytes, and at its end at the
	// latest: the server then sends nothing more until the client has gone, or cuts
	// the connection. At [Headers] nothing is sent at all. 0: neither.
	HangAt int
	DropAt int
	// Before, if it is set, is called before anything is sent.
	Before func(*Request)
}

// Headers is the place before the answer's first byte.
const Headers = -1

// Usage is what a provider bills.
type Usage struct{ Input, Cached, Output, Reasoning int }

// New returns a server that is closed when the test ends.
func New(t testing.TB) *Server {
	s := Start()
	t.Cleanup(s.Close)
	return s
}

// Start returns a server for the caller to close, for examples and whole programs.
func Start() *Server {
	s := &Server{stop: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/responses", s.serve(responsesBody))
	mux.HandleFunc("POST /v1/chat/completions", s.serve(chatBody))
	s.http = httptest.NewUnstartedServer(mux)
	s.http.Config.ConnState = s.connected
	s.http.Start()
	return s
}

// Close ends what hangs, waits for it, and closes every connection. It may be
// called twice.
func (s *Server) Close() {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		close(s.stop)
	}
	s.http.Close()
}

// URL is the base URL to configure a model with.
func (s *Server) URL() string { return s.http.URL + "/v1" }

// Reply adds answers, one a request, in the order in which requests come. With
// none left, a request is refused with status 501.
func (s *Server) Reply(replies ...Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies = append(s.replies, replies...)
}

// Otherwise answers every request that finds no reply left.
func (s *Server) Otherwise(answer func(*Request) Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.otherwise = answer
}

// Requests are those that have come so far, in order.
func (s *Server) Requests() []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Connections is how many connections were opened so far.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connections
}

func (s *Server) connected(_ net.Conn, state http.ConnState) {
	if state == http.StateNew {
		s.mu.Lock()
		s.connections++
		s.mu.Unlock()
	}
}

// serve answers requests of one API, whose bodies body writes.
func (s *Server) serve(body func(Reply, int) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		req := &Request{Path: r.URL.Path, Header: r.Header.Clone(), Gone: r.Context().Done()}
		req.Raw, _ = io.ReadAll(r.Body)
		if err := json.Unmarshal(req.Raw, &req.Body); err != nil {
			http.Error(w, `{"error":{"message":"the body is no JSON object"}}`, http.StatusBadRequest)
			return
		}
		reply := s.next(req)
		if reply.Before != nil {
			reply.Before(req)
		}
		if reply.Body == "" && reply.Status == 0 {
			reply.Body = body(reply, req.nth)
		}
		s.send(w, r, reply)
	}
}

// next keeps the request and finds its answer.
func (s *Server) next(req *Request) Reply {
	s.mu.Lock()
	s.requests = append(s.requests, req)
	req.nth = len(s.requests)
	answer := func(*Request) Reply {
		return Reply{
			Status: http.StatusNotImplemented,
			Body:   fmt.Sprintf(`{"error":{"message":"openaitest has no reply for request %d"}}`, req.nth),
		}
	}
	switch {
	case len(s.replies) > 0:
		reply := s.replies[0]
		s.replies = s.replies[1:]
		answer = func(*Request) Reply { return reply }
	case s.otherwise != nil:
		answer = s.otherwise
	}
	s.mu.Unlock()
	return answer(req)
}

func (s *Server) send(w http.ResponseWriter, r *http.Request, reply Reply) {
	body := reply.Body
	if reply.HangAt != 0 {
		body = body[:max(0, min(reply.HangAt, len(body)))]
	}
	if reply.DropAt != 0 {
		body = body[:max(0, min(reply.DropAt, len(body)))]
	}
	if reply.HangAt != Headers && reply.DropAt != Headers {
		reply.writeHeaders(w)
		reply.write(w, body)
	}
	switch {
	case reply.HangAt != 0:
		select {
		case <-r.Context().Done():
		case <-s.stop:
		}
	case reply.DropAt != 0:
		cut(w)
	}
}

func (reply Reply) writeHeaders(w http.ResponseWriter) {
	status := reply.Status
	if status == 0 {
		status = http.StatusOK
	}
	w.Header().Set("Content-Type", "application/json")
	if status == http.StatusOK {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	}
	for name, values := range reply.Header {
		w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	w.WriteHeader(status)
}

// write sends the body piece by piece.
func (reply Reply) write(w http.ResponseWriter, body string) {
	flush := http.NewResponseController(w).Flush
	_ = flush() // the headers alone
	at := 0
	for _, end := range reply.places(len(body)) {
		_, _ = io.WriteString(w, body[at:end]) // the client may have gone
		_ = flush()
		at = end
	}
}

// places are where the pieces of a body of length n end.
func (reply Reply) places(n int) []int {
	places := []int{n}
	for _, at := range reply.Cuts {
		places = append(places, max(0, min(at, n)))
	}
	for at := reply.Every; reply.Every > 0 && at < n; at += reply.Every {
		places = append(places, at)
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// cut ends the connection under the answer, with nothing said.
func cut(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_ = conn.Close()
}
