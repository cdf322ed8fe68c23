package worker

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

func equals(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func change(scope, key, value string) *session.StateChange {
	return &session.StateChange{Scope: scope, Changes: []session.Change{{Key: key, NewValue: json.RawMessage(value)}}}
}

// grownSession is a ledger, and its head after the first n events.
func grownSession(n int) ([]session.Event, *session.Head) {
	events := []session.Event{
		&session.User{Text: "one"}, change("session", "k", `1`), change("user", "k", `9`),
		&session.User{Text: "two"}, change("session", "k", `2`),
	}
	head := &session.Head{ID: "session_s", Epoch: "e", Version: 3}
	head.Fold(events[:n])
	return events, head
}

// A job runs on the session as the turn's first attempt loaded it, whatever has
// become of it.
func TestJobOn(t *testing.T) {
	t.Parallel()
	events, now := grownSession(5)
	for name, c := range map[string]struct {
		base   session.Base
		loaded session.Loaded
		events int
		state  string
	}{
		"no session": {state: ``},
		"at its head": {
			base: now.Base(), loaded: session.Loaded{Head: now, Events: events}, events: 5, state: `2`,
		},
		"grown since, read up to then": {
			base:   session.Base{Epoch: "e", Version: 2, EventCount: 3},
			loaded: session.Loaded{Head: now, Events: events[:3]}, events: 3, state: `1`,
		},
		"grown since, read whole": {
			base:   session.Base{Epoch: "e", Version: 2, EventCount: 3},
			loaded: session.Loaded{Head: now, Events: events}, events: 3, state: `1`,
		},
		"empty then": {
			base: session.Base{Epoch: "e", Version: 1}, loaded: session.Loaded{Head: now, Events: events},
		},
		"made since": {
			loaded: session.Loaded{Head: now, Events: events},
		},
		"another one since": {
			base: session.Base{Epoch: "other", Version: 3, EventCount: 5}, loaded: session.Loaded{Head: now, Events: events},
		},
		"deleted since": {
			base: session.Base{Epoch: "e", Version: 3, EventCount: 5},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var j job
			j.on(c.base, c.loaded)
			equals(t, "base", j.base, c.base)
			equals(t, "events", len(j.events), c.events)
			equals(t, "state", string(j.state["k"]), c.state)
			if changes := j.state.Diff(session.State{"k": json.RawMessage(`0`)}); len(changes) != 1 {
				t.Errorf("changes %v", changes)
			}
		})
	}
}

func testJob(in turn.Input, scopes map[string]string) *job {
	return &job{
		Submission: &turn.Submission{
			Tenant: "default", InvocationID: "inv_1", StoredAt: 5,
			Request: turn.Request{Agent: "a", SessionID: "session_s", Lane: turn.LaneBatch, Input: in, Scopes: scopes},
		},
		attempt: 2, failures: 1, startedAt: 6, base: session.Base{Epoch: "e", Version: 3},
	}
}

func TestSlice(t *testing.T) {
	t.Parallel()
	j := testJob(turn.Input{}, map[string]string{"user": "u"})
	usage := &session.Usage{ModelCalls: 1}
	run := agent.Outcome{Status: session.StatusMaxSteps, Usage: usage, Events: []session.Event{&session.User{}}}
	got := j.slice(run, 9)
	equals(t, "turn", got.Turn, session.Turn{
		Tenant: "default", InvocationID: "inv_1", SessionID: "session_s", Agent: "a", Lane: "batch",
		Status: session.StatusMaxSteps, Attempt: 2, Failures: 1, Usage: usage, CreatedAt: 5, StartedAt: 6, FinishedAt: 9,
	})
	equals(t, "base, policy, scopes", []any{got.Base, got.Policy, got.Scopes}, []any{j.base, session.Resolve, j.Request.Scopes})
	equals(t, "events", len(got.Events), 1)
	equals(t, "initial", len(got.Initial), 0)
}

// The first state of a session goes by scope, in order; temp is stored nowhere,
// and neither is a scope that is bound to nobody.
func TestSliceInitialState(t *testing.T) {
	t.Parallel()
	j := testJob(turn.Input{InitialState: map[string]session.State{
		"user":    {"b": json.RawMessage(`2`), "a": json.RawMessage(`1`), "gone": nil},
		"session": {"s": json.RawMessage(`0`)},
		"temp":    {"t": json.RawMessage(`3`)},
		"org":     {"o": json.RawMessage(`4`)},
		"empty":   {},
	}}, map[string]string{"user": "u-1", "empty": "e-1"})
	got := j.slice(agent.Outcome{Status: session.StatusCompleted}, 9)
	var scopes []string
	for _, e := range got.Initial {
		change := e.(*session.StateChange)
		scopes = append(scopes, change.Scope)
		if change.Source != session.SourceDirect || change.InvocationID != "inv_1" || change.CreatedAt != 5 || change.ID == "" || change.AgentName != "a" {
			t.Errorf("change %+v", change)
		}
	}
	equals(t, "scopes", scopes, []string{"session", "user"})
	equals(t, "scoped", got.InitialScoped, []session.ScopedWrite{
		{Scope: "user", ScopeID: "u-1", Key: "a", Value: json.RawMessage(`1`)},
		{Scope: "user", ScopeID: "u-1", Key: "b", Value: json.RawMessage(`2`)},
	})
}

func TestResult(t *testing.T) {
	t.Parallel()
	j := testJob(turn.Input{}, nil)
	j.Request.Response = &turn.Response{Events: true, State: true, Usage: true}
	run := agent.Outcome{
		Output: turn.Output{Text: "hi"},
		Events: []session.Event{&session.User{}, change("user", "k", `1`), change("session", "k", `1`)},
	}

	private := j.result(run, session.Outcome{Turn: session.Turn{CommitStatus: session.Orphaned}})
	var kept []string
	for _, e := range private.Events {
		kept = append(kept, e.Type())
	}
	equals(t, "events that may leave", kept, []string{"user", "state_change"})
	equals(t, "scope", private.Events[1].(*session.StateChange).Scope, "session")
	equals(t, "events of the run", len(run.Events), 3)
	equals(t, "state of no session", private.State, session.State{})
	equals(t, "warning", private.Warning, session.Orphaned.Warning())
	if private.Output.Items == nil {
		t.Error("output.items is null on the wire")
	}

	late := j.result(run, session.Outcome{TooLate: true, Turn: session.Turn{Status: session.StatusError}})
	equals(t, "error", late.Error.Code, turn.CodeAlreadyAnswered)
}

// What was stored of a session that a commit made has its first state too.
func TestResultOfAFirstCommit(t *testing.T) {
	t.Parallel()
	j := testJob(turn.Input{InitialState: map[string]session.State{"session": {"k": json.RawMessage(`1`)}}}, nil)
	j.Request.Response = &turn.Response{Events: true}
	s := j.slice(agent.Outcome{Status: session.StatusCompleted, Events: []session.Event{&session.User{}}}, 9)
	for version, want := range map[int64][]string{0: {"user"}, 1: {"state_change", "user"}, 2: {"user"}} {
		data, err := s.Result(session.Outcome{Turn: session.Turn{Version: version}})
		if err != nil {
			t.Fatal(err)
		}
		var result turn.Result
		if err := json.Unmarshal(data, &result); err != nil {
			t.Fatal(err)
		}
		var got []string
		for e := range slices.Values(result.Events) {
			got = append(got, e.Type())
		}
		equals(t, "events", got, want)
	}
}
