package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agenttest"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

const invocation = "inv_0123456789abcdef0123456789abcdef"

// sink keeps what a run streams.
type sink struct {
	// flush, if it is set, answers the nth flush, from 1.
	flush func(ctx context.Context, nth int) error

	mu      sync.Mutex
	events  []turn.Event
	flushes int
	came    chan turn.Event
}

func newSink() *sink {
	return &sink{came: make(chan turn.Event, 10_000)} // more than any test streams
}

func (s *sink) Emit(e turn.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
	s.came <- e
}

func (s *sink) Flush(ctx context.Context) error {
	s.mu.Lock()
	s.flushes++
	nth := s.flushes
	s.mu.Unlock()
	if s.flush == nil {
		return nil
	}
	return s.flush(ctx, nth)
}

func (s *sink) all() []turn.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// awaitResult waits until the result of a call was streamed.
func (s *sink) awaitResult(t *testing.T, callID string) {
	t.Helper()
	guard := time.After(time.Minute)
	for {
		select {
		case e := <-s.came:
			if result, ok := e.(*session.ToolResult); ok && result.CallID == callID {
				return
			}
		case <-guard:
			t.Fatalf("no result of %s came", callID)
		}
	}
}

// one is a run of an agent that a test makes its changes to.
type one struct {
	agent.Run
	sink *sink
	log  *logs
}

func newOne(a *agent.Agent, message string) *one {
	o := &one{sink: newSink(), log: &logs{}}
	if a.Name == "" {
		a.Name = "concierge"
	}
	var mu sync.Mutex
	clock := int64(1_000)
	o.Run = agent.Run{
		Agent: a, InvocationID: invocation, SessionID: "session_s", Attempt: 1, UserAt: 500,
		State: session.State{}, Sink: o.sink,
		Log: slog.New(slog.NewJSONHandler(o.log, nil)),
		Now: func() int64 {
			mu.Lock()
			defer mu.Unlock()
			clock++
			return clock
		},
	}
	if message != "" {
		o.Input.Message = turn.Text(message)
	}
	return o
}

// do runs to the end.
func (o *one) do(t *testing.T) agent.Outcome {
	t.Helper()
	return await(t, o.start(t.Context()))
}

// start runs beside the test.
func (o *one) start(ctx context.Context) <-chan agent.Outcome {
	done := make(chan agent.Outcome, 1)
	go func() { done <- o.Do(ctx) }()
	return done
}

// await waits for what a channel brings, or its end.
func await[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came in a minute")
		panic("unreachable")
	}
}

// logs are the log lines of a run.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) lines(t *testing.T) (lines []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	dec := json.NewDecoder(bytes.NewReader(l.buf.Bytes()))
	for dec.More() {
		var line map[string]any
		if err := dec.Decode(&line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	return lines
}

// types are the types of events, in one line.
func types[E turn.Event](events []E) string {
	names := make([]string, len(events))
	for i, e := range events {
		names[i] = e.Type()
	}
	return strings.Join(names, " ")
}

// of returns the events of one type.
func of[E turn.Event, From turn.Event](events []From) (found []E) {
	for _, e := range events {
		if one, ok := any(e).(E); ok {
			found = append(found, one)
		}
	}
	return found
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// paired checks that every call of the ledger has one result, after it.
func paired(t *testing.T, events []session.Event) {
	t.Helper()
	open := map[string]bool{}
	for _, e := range events {
		switch e := e.(type) {
		case *session.ToolCall:
			if open[e.CallID] {
				t.Errorf("call %s is there twice", e.CallID)
			}
			open[e.CallID] = true
		case *session.ToolResult:
			if !open[e.CallID] {
				t.Errorf("result of %s has no call before it", e.CallID)
			}
			delete(open, e.CallID)
		}
	}
	if len(open) > 0 {
		t.Errorf("calls without a result: %v", open)
	}
}

type noArgs struct{}

// tool returns a tool that runs do and answers "done".
func tool(name string, do func(ctx context.Context) error) *agent.Tool {
	return agent.NewTool(name, "does "+name, func(ctx context.Context, _ noArgs) (string, error) {
		return "done", do(ctx)
	})
}

// raw returns a tool with no schema that answers what it is told.
func raw(name, result string) *agent.Tool {
	return &agent.Tool{Name: name, Execute: func(context.Context, *agent.Call) (json.RawMessage, error) {
		return json.RawMessage(result), nil
	}}
}

// gated returns a tool that waits at the door of its name.
func gated(name string, gate *agenttest.Gate) *agent.Tool {
	return tool(name, func(ctx context.Context) error { return gate.Pass(ctx, name) })
}
