package ingress

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a server on a listener in memory, with a broker and a store in
// memory behind it.
type harness struct {
	t      *testing.T
	broker *broker
	store  *store
	server *Server
	client *http.Client
	logs   *lockedBuffer
}

// now is the harness's clock, and the broker's.
var now = time.UnixMilli(1_800_000_000_000)

func setup(t *testing.T, change ...func(*Config, *Deps)) *harness {
	t.Helper()
	h := &harness{t: t, broker: newBroker(), store: &store{Store: session.NewMemory()}, logs: &lockedBuffer{}}
	cfg := Config{
		DefaultAgent: "echo", Clock: func() time.Time { return now },
		Logger: slog.New(slog.NewTextHandler(h.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	deps := Deps{Queue: h.broker, Log: h.broker, Control: h.broker, Registry: h.broker, Dead: h.broker, Keys: h.broker, Store: h.store}
	for _, f := range change {
		f(&cfg, &deps)
	}
	server, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	h.server = server
	h.client = serve(t, server)
	return h
}

// serve serves a handler on pipes until the test ends.
func serve(t *testing.T, handler http.Handler) *http.Client {
	listener := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	hs := &http.Server{Handler: handler, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	served := make(chan struct{})
	go func() { defer close(served); hs.Serve(listener) }()
	transport := &http.Transport{DialContext: listener.dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		hs.Close()
		<-served
	})
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// answer is a response that was read whole.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) code() string {
	var p problem
	json.Unmarshal(a.body, &p)
	return p.Code
}

func decodeBody[T any](t *testing.T, a answer) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("body %q: %v", a.body, err)
	}
	return v
}

// open sends a request and leaves the body to the caller. Headers are given as
// "Name: value".
func (h *harness) open(ctx context.Context, method, path, body string, headers ...string) *http.Response {
	h.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://ingress"+path, reader)
	if err != nil {
		h.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if value == "" {
			req.Header.Del(name)
			continue
		}
		req.Header.Set(name, value)
	}
	resp, err := h.client.Do(req)
	if err != nil {
		h.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

func (h *harness) do(method, path, body string, headers ...string) answer {
	h.t.Helper()
	resp := h.open(h.t.Context(), method, path, body, headers...)
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{resp.StatusCode, resp.Header, read}
}

func (h *harness) want(a answer, status int, code string) {
	h.t.Helper()
	if a.status != status || a.code() != code {
		h.t.Fatalf("got %d %q, want %d %q; body %s", a.status, a.code(), status, code, a.body)
	}
}

// submitAsync submits a turn and returns its id.
func (h *harness) submitAsync(body string) string {
	h.t.Helper()
	a := h.do("POST", "/v1/turns", body, "Prefer: respond-async")
	h.want(a, http.StatusAccepted, "")
	return decodeBody[turnSummary](h.t, a).InvocationID
}

// frame is one frame of an event stream as a client sees it.
type frame struct {
	ID, Event, Data, Retry, Comment string
}

// frames reads an event stream to its end.
type sse struct {
	t    *testing.T
	resp *http.Response
	scan *bufio.Scanner
}

func (h *harness) stream(ctx context.Context, method, path, body string, headers ...string) *sse {
	h.t.Helper()
	resp := h.open(ctx, method, path, body, append([]string{"Accept: text/event-stream"}, headers...)...)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		read, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		h.t.Fatalf("%s %s: no stream: %d %s", method, path, resp.StatusCode, read)
	}
	scan := bufio.NewScanner(resp.Body)
	scan.Buffer(nil, 8<<20)
	h.t.Cleanup(func() { resp.Body.Close() })
	return &sse{t: h.t, resp: resp, scan: scan}
}

// next returns the next frame, or false at the end of the stream.
func (s *sse) next() (frame, bool) {
	var f frame
	any := false
	for s.scan.Scan() {
		line := s.scan.Text()
		if strings.Contains(line, "\r") {
			s.t.Errorf("carriage return in %q", line)
		}
		if line == "" {
			return f, true
		}
		any = true
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			f.ID = value
		case "event":
			f.Event = value
		case "data":
			f.Data += value
		case "retry":
			f.Retry = value
		case "":
			f.Comment = value
		default:
			s.t.Errorf("unknown line %q", line)
		}
	}
	if any {
		s.t.Errorf("the stream was cut inside a frame: %+v", f)
	}
	return f, false
}

// event returns the next frame that is no comment.
func (s *sse) event() (frame, bool) {
	for {
		f, ok := s.next()
		if !ok || f.Comment == "" {
			return f, ok
		}
	}
}

// events reads to the end and returns what is no comment.
func (s *sse) events() []frame {
	var all []frame
	for f, ok := s.event(); ok; f, ok = s.event() {
		all = append(all, f)
	}
	return all
}

func eventTypes(frames []frame) []string {
	types := make([]string, len(frames))
	for i, f := range frames {
		types[i] = f.Event
	}
	return types
}

var mintedIDs = regexp.MustCompile(`inv_[0-9a-f]{32}|session_[0-9a-f]{8}-[0-9a-f-]{27}|event_[0-9a-f]{8}-[0-9a-f-]{27}`)

// golden compares a body with a file, leaving minted ids aside.
func golden(t *testing.T, name string, body []byte) {
	t.Helper()
	body = mintedIDs.ReplaceAllFunc(body, func(id []byte) []byte {
		kind, _, _ := bytes.Cut(id, []byte("_"))
		return append(bytes.Clone(kind), "_ID"...)
	})
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, body, "", "  "); err != nil {
		t.Fatalf("%s: %v in %s", name, err, body)
	}
	pretty.WriteByte('\n')
	path := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, pretty.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), pretty.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// message is the shortest request.
const message = `{"input":{"message":"hello"}}`

func mustEncode(t testing.TB, e turn.Event) json.RawMessage {
	t.Helper()
	data, err := turn.EncodeEvent(e)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
