// Package e2e tests the whole system from outside: over HTTP, through a real
// broker and a real store, with workers and ingresses that come and go.
package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agenttest"
	"github.com/turnpool/turnpool/ingress"
	"github.com/turnpool/turnpool/jetstream"
	"github.com/turnpool/turnpool/jetstream/natstest"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/session/sqlite"
	"github.com/turnpool/turnpool/turn"
	"github.com/turnpool/turnpool/worker"
)

// guard bounds every wait of a test. It is no expectation: a test that is right
// never comes near it.
const guard = 5 * time.Minute

// patience is how long a broker may stand still with the machine before its clients
// say that it does not answer. One that is killed is known to be gone at once.
const patience = time.Minute

// system is a broker and a store, to which a test adds workers and ingresses.
type system struct {
	t       *testing.T
	ctx     context.Context
	nats    *natstest.Server
	store   session.Store
	ackWait time.Duration
	log     *slog.Logger
}

func setup(t *testing.T) *system {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	t.Cleanup(cancel)
	store, err := sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(t.TempDir(), "turnpool.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	log := slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return &system{t: t, ctx: ctx, nats: natstest.Run(t), store: store, ackWait: 30 * time.Second, log: log}
}

// testLog keeps a test's log with the test.
type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	if l.t.Context().Err() == nil { // after the test there is nobody to log to
		l.t.Log(strings.TrimRight(string(p), "\n"))
	}
	return len(p), nil
}

func (s *system) connect() *jetstream.Client {
	s.t.Helper()
	client, err := jetstream.Connect(s.ctx, jetstream.Config{URL: s.nats.URL(), Timeout: patience, AckWait: s.ackWait, Logger: s.log})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(client.Close)
	return client
}

// testWorker is a worker with a connection of its own.
type testWorker struct {
	*worker.Pool
	client *jetstream.Client
}

func (s *system) worker(cfg worker.PoolConfig) *testWorker {
	s.t.Helper()
	client := s.connect()
	consumer, err := client.Consumer(s.ctx, "default")
	if err != nil {
		s.t.Fatal(err)
	}
	cfg.Log = s.log
	pool, err := worker.NewPool(cfg, worker.Deps{
		Queue: consumer, Log: client, Control: client, Announcer: client, Dead: client, Store: s.store,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := pool.Start(s.ctx); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		stopNow, cancel := context.WithCancel(context.Background())
		cancel()
		pool.Stop(stopNow)
		consumer.Close()
	})
	return &testWorker{Pool: pool, client: client}
}

// testIngress is an ingress with a connection of its own.
type testIngress struct {
	t      *testing.T
	ctx    context.Context
	url    string
	http   *http.Client
	server *ingress.Server
}

func (s *system) ingress() *testIngress {
	s.t.Helper()
	client := s.connect()
	registry, err := client.WatchAgents(s.ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	server, err := ingress.New(ingress.Config{DefaultAgent: "agent", Wait: guard, Logger: s.log},
		ingress.Deps{Queue: client, Log: client, Control: client, Registry: registry, Dead: client, Keys: client, Store: s.store})
	if err != nil {
		s.t.Fatal(err)
	}
	srv := httptest.NewServer(server)
	s.t.Cleanup(func() {
		server.Shutdown(context.Background())
		srv.Close()
		registry.Close()
	})
	in := &testIngress{t: s.t, ctx: s.ctx, url: srv.URL, http: srv.Client(), server: server}
	in.await(func() bool { return registry.Any() })
	return in
}

// await polls until it holds. It is for what has no event to wait for.
func await(t *testing.T, ctx context.Context, what string, holds func() bool) {
	t.Helper()
	for !holds() {
		if ctx.Err() != nil {
			t.Fatal("waited in vain: ", what)
		}
		pause(ctx)
	}
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Millisecond):
	}
}

func (in *testIngress) pause() { pause(in.ctx) }

func (in *testIngress) await(holds func() bool) {
	in.t.Helper()
	await(in.t, in.ctx, "it does not hold", holds)
}

func (in *testIngress) do(method, path, body string, header ...string) (int, []byte) {
	in.t.Helper()
	resp := in.open(method, path, body, header...)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		in.t.Errorf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, data
}

func (in *testIngress) open(method, path, body string, header ...string) *http.Response {
	in.t.Helper()
	req, err := http.NewRequestWithContext(in.ctx, method, in.url+path, strings.NewReader(body))
	if err != nil {
		in.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := in.http.Do(req)
	if err != nil {
		in.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

// ask submits a message and waits for the result.
func (in *testIngress) ask(sessionID, message string) turn.Result {
	in.t.Helper()
	return in.result(in.do("POST", "/v1/turns", requestBody(sessionID, message)))
}

// submit submits a message and returns the turn's id at once.
func (in *testIngress) submit(sessionID, message string) string {
	in.t.Helper()
	return in.submitTo("", sessionID, message)
}

func (in *testIngress) submitTo(agent, sessionID, message string) string {
	in.t.Helper()
	status, body := in.do("POST", "/v1/turns", requestTo(agent, sessionID, message), "Prefer", "respond-async")
	var accepted struct{ InvocationID string }
	if err := json.Unmarshal(body, &accepted); err != nil || status != http.StatusAccepted {
		in.t.Fatalf("submit: %d %s", status, body)
	}
	return accepted.InvocationID
}

// wait waits for the result of a turn, also across an outage.
func (in *testIngress) wait(id string) (result turn.Result) {
	in.t.Helper()
	in.await(func() bool {
		status, body := in.do("GET", "/v1/turns/"+id+"?wait=60", "")
		if status == http.StatusServiceUnavailable {
			return false
		}
		result = in.result(status, body)
		return result.Status.Finished()
	})
	return result
}

func (in *testIngress) result(status int, body []byte) turn.Result {
	in.t.Helper()
	var r turn.Result
	if err := json.Unmarshal(body, &r); err != nil || r.InvocationID == "" {
		in.t.Fatalf("result: %d %s", status, body)
	}
	return r
}

func requestBody(sessionID, message string) string { return requestTo("", sessionID, message) }

func requestTo(agent, sessionID, message string) string {
	body, err := json.Marshal(turn.Request{Agent: agent, SessionID: sessionID, Input: turn.Input{Message: turn.Text(message)}})
	if err != nil {
		panic(err)
	}
	return string(body)
}

// frame is one event of a stream as a client sees it.
type frame struct {
	ID    int
	Event string
	Data  string
}

// stream reads a stream until it ends, or until stop says so.
func (in *testIngress) stream(method, path, body string, stop func(frame) bool, header ...string) []frame {
	in.t.Helper()
	resp := in.open(method, path, body, append(header, "Accept", "text/event-stream")...)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		in.t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
	return readFrames(resp.Body, stop)
}

func readFrames(body io.Reader, stop func(frame) bool) []frame {
	var frames []frame
	var one frame
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case lines.Text() == "" && one.Event != "":
			frames = append(frames, one)
			if stop != nil && stop(one) {
				return frames
			}
			one = frame{}
		case name == "id":
			one.ID, _ = strconv.Atoi(value)
		case name == "event":
			one.Event = value
		case name == "data":
			one.Data = value
		}
	}
	return frames
}

// follow reads a turn's stream from the start to its end.
func (in *testIngress) follow(id string) []frame {
	in.t.Helper()
	return in.stream("GET", "/v1/turns/"+id+"/events", "", nil)
}

// checkStream fails unless the frames are a whole stream: numbered from after+1
// without holes, one result, last.
func checkStream(t *testing.T, frames []frame, after int) {
	t.Helper()
	if len(frames) == 0 {
		t.Error("the stream is empty")
		return
	}
	for i, f := range frames {
		if f.ID != after+1+i {
			t.Errorf("frame %d has id %d, want %d", i, f.ID, after+1+i)
		}
		if last := i == len(frames)-1; (f.Event == turn.TypeResult) != last {
			t.Errorf("frame %d of %d is %s", i, len(frames), f.Event)
		}
	}
}

// spoken is the text that a reader shows who honours rewind.
func spoken(t *testing.T, frames []frame) string {
	t.Helper()
	type piece struct {
		id   int
		text string
	}
	var kept []piece
	for _, f := range frames {
		switch f.Event {
		case turn.TypeAssistantDelta:
			var d struct{ Delta string }
			mustDecode(t, f.Data, &d)
			kept = append(kept, piece{f.ID, d.Delta})
		case turn.TypeRestart:
			var r struct{ RewindTo int }
			mustDecode(t, f.Data, &r)
			for len(kept) > 0 && kept[len(kept)-1].id > r.RewindTo {
				kept = kept[:len(kept)-1]
			}
		}
	}
	var text strings.Builder
	for _, p := range kept {
		text.WriteString(p.text)
	}
	return text.String()
}

func mustDecode(t *testing.T, data string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(data), into); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
}

// ledger is a session's events, read over HTTP page by page.
func (in *testIngress) ledger(sessionID string) []map[string]any {
	in.t.Helper()
	var events []map[string]any
	for after := -1; ; {
		status, body := in.do("GET", "/v1/sessions/"+sessionID+"/events?limit=50&after="+strconv.Itoa(after), "")
		var page struct{ Events []map[string]any }
		if err := json.Unmarshal(body, &page); err != nil || status != http.StatusOK {
			in.t.Fatalf("ledger of %s: %d %s", sessionID, status, body)
		}
		if len(page.Events) == 0 {
			return events
		}
		for _, e := range page.Events {
			after++
			if int(e["idx"].(float64)) != after {
				in.t.Errorf("ledger of %s: idx %v, want %d", sessionID, e["idx"], after)
			}
		}
		events = append(events, page.Events...)
	}
}

// said is who said what in a ledger.
func said(events []map[string]any) []string {
	var lines []string
	for _, e := range events {
		if e["type"] == session.TypeUser || e["type"] == session.TypeAssistant {
			lines = append(lines, e["type"].(string)+": "+e["text"].(string))
		}
	}
	return lines
}

// echoAgent answers each message with "re: " and the message, in small pieces.
func echoAgent(calls *atomic.Int64) *agent.Agent {
	return &agent.Agent{Name: "agent", Model: &agenttest.Model{
		ChunkSize: 3,
		Answer: func(_ context.Context, req *agent.ModelRequest) (*agent.ModelResponse, error) {
			calls.Add(1)
			return agenttest.Text("re: " + agenttest.Message(req)), nil
		},
	}}
}

// gatedAgent answers like echoAgent, once the gate's door of that message opens.
func gatedAgent(gate *agenttest.Gate, calls *atomic.Int64) *agent.Agent {
	a := echoAgent(calls)
	a.Model.(*agenttest.Model).Gated(gate)
	return a
}

func arrived(t *testing.T, ctx context.Context, gate *agenttest.Gate, name string) {
	t.Helper()
	select {
	case <-gate.Arrived(name):
	case <-ctx.Done():
		t.Fatalf("nobody came to %q", name)
	}
}
