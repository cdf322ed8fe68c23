package worker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agenttest"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/session/sqlite"
	"github.com/turnpool/turnpool/turn"
	"github.com/turnpool/turnpool/worker"
)

// stores are those that a handler is tested on.
var stores = map[string]func(t *testing.T) session.Store{
	"memory": func(*testing.T) session.Store { return session.NewMemory() },
	"sqlite": openSQLite,
}

func openSQLite(t *testing.T) session.Store {
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "sessions.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// onStores runs a test on each store.
func onStores(t *testing.T, test func(t *testing.T, store session.Store)) {
	t.Parallel()
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// house is a handler with one agent, whose model answers "re: <message>". With a
// gate each call waits at the door of its message.
type house struct {
	*worker.Handler
	store session.Store
	model *agenttest.Model
	clock atomic.Int64
	log   syncBuffer
}

func newHouse(t *testing.T, store session.Store, change ...func(*worker.HandlerConfig)) *house {
	t.Helper()
	h := &house{store: store, model: &agenttest.Model{Answer: answerBack}}
	h.clock.Store(1)
	cfg := worker.HandlerConfig{
		Agents: []*agent.Agent{{Name: "concierge", Model: h.model}},
		Store:  store, Now: h.clock.Load, Log: slog.New(slog.NewTextHandler(&h.log, nil)),
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if h.Handler, err = worker.NewHandler(cfg); err != nil {
		t.Fatal(err)
	}
	return h
}

func answerBack(_ context.Context, req *agent.ModelRequest) (*agent.ModelResponse, error) {
	return agenttest.Text("re: " + agenttest.Message(req)), nil
}

// gated makes the model wait at the door of its message.
func (h *house) gated() *agenttest.Gate {
	gate := agenttest.NewGate()
	h.model.Gated(gate)
	return gate
}

// say is a request with a message.
func say(sessionID, text string) turn.Request {
	return turn.Request{SessionID: sessionID, Input: turn.Input{Message: turn.Text(text)}}
}

// rest runs a turn to its end.
func (h *house) rest(t *testing.T, req turn.Request) *turn.Result {
	t.Helper()
	return inTime(t, resultOf(h.Turn(t.Context(), req)))
}

// begin starts a turn at the given time of the clock, and returns once its
// model is asked.
func (h *house) begin(t *testing.T, gate *agenttest.Gate, at int64, req turn.Request) <-chan *turn.Result {
	t.Helper()
	h.clock.Store(at)
	result := resultOf(h.Turn(t.Context(), req))
	inTime(t, gate.Arrived(req.Input.Message.Text))
	return result
}

// resultOf starts a turn and brings its result.
func resultOf(s *worker.Stream) <-chan *turn.Result {
	c := make(chan *turn.Result, 1)
	go func() { c <- s.Result() }()
	return c
}

// ledger is what a session holds of what was said, one line an event.
func (h *house) ledger(t *testing.T, sessionID string) string {
	t.Helper()
	page, err := h.store.Events(t.Context(), session.EventsQuery{
		Tenant: turn.DefaultTenant, SessionID: turn.NormalizeSessionID(sessionID), After: -1, Limit: 10_000,
	})
	if errors.Is(err, session.ErrNotFound) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for i, e := range page {
		if e.Index != int64(i) {
			t.Errorf("event %d has the index %d", i, e.Index)
		}
		switch e := e.Event.(type) {
		case *session.User:
			lines = append(lines, e.Text)
		case *session.Assistant:
			lines = append(lines, e.Text)
		}
	}
	return strings.Join(lines, "\n")
}

func (h *house) head(t *testing.T, sessionID string) *session.Head {
	t.Helper()
	head, err := h.store.Head(t.Context(), turn.DefaultTenant, turn.NormalizeSessionID(sessionID))
	if err != nil {
		t.Fatal(err)
	}
	return head
}

// stored is the result that can be read by the turn's id, nil if there is none.
func (h *house) stored(t *testing.T, invocationID string) *turn.Result {
	t.Helper()
	row, err := h.store.Turn(t.Context(), turn.DefaultTenant, invocationID)
	if errors.Is(err, session.ErrNotFound) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	result, err := turn.ResultOf(row)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// endedAs checks a result's status, commit status and error code.
func endedAs(t *testing.T, r *turn.Result, status session.Status, commit session.CommitStatus, code string) {
	t.Helper()
	got := ""
	if r.Error != nil {
		got = r.Error.Code
	}
	same(t, "status, commit, code", []any{r.Status, r.CommitStatus, got}, []any{status, commit, code})
	same(t, "warning", r.Warning, commit.Warning())
	if (r.Version > 0) != (commit == session.Committed || commit == session.Merged) {
		t.Errorf("version %d of a turn that is %q", r.Version, commit)
	}
}

// inTime waits for what a channel brings, or its end.
func inTime[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came in a minute")
		panic("unreachable")
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// typesOf are the types of events, in one line.
func typesOf[E turn.Event](events []E) string {
	names := make([]string, len(events))
	for i, e := range events {
		names[i] = e.Type()
	}
	return strings.Join(names, " ")
}

// syncBuffer is a log.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
