package session_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/session"
)

func at(ms int64) session.EventBase { return session.EventBase{CreatedAt: ms} }

func by(invocation string) session.EventBase { return session.EventBase{InvocationID: invocation} }

func TestFold(t *testing.T) {
	t.Parallel()
	var h session.Head
	h.Fold([]session.Event{
		&session.User{EventBase: at(30)},
		&session.User{EventBase: at(20)}, // older, and later in the ledger
		&session.ToolYield{EventBase: by("inv_1"), CallID: "c1", Name: "ask", Args: raw(`{}`)},
		&session.ToolYield{EventBase: by("inv_1"), CallID: "c2", Name: "ask", Args: raw(`{}`)},
		&session.ToolInput{EventBase: by("inv_2"), CallID: "c2"},
		&session.ToolInput{EventBase: by("inv_2"), CallID: "unknown"},
		&session.StateChange{Scope: session.ScopeSession, Changes: []session.Change{{Key: "a", NewValue: raw(`1`)}}},
		&session.StateChange{Scope: "user", Changes: []session.Change{{Key: "b", NewValue: raw(`1`)}}},
		&session.Unknown{TypeName: "dream"},
	})
	want := session.Head{
		EventCount: 9, LastUserAt: 30, State: session.State{"a": raw(`1`)},
		Pending: []session.PendingCall{
			{CallID: "c1", Name: "ask", Args: raw(`{}`), InvocationID: "inv_1"},
			{CallID: "c2", Name: "ask", Args: raw(`{}`), InvocationID: "inv_1", AnsweredBy: "inv_2", Hold: session.Hold{AnsweredBy: "inv_2"}},
		},
	}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("head differs (-want +got):\n%s", diff)
	}
	if open := h.Open(); len(open) != 1 || open[0].CallID != "c1" {
		t.Errorf("open: %+v", open)
	}
}

// Folding a clone further changes nothing in the head it was made from.
func TestCloneHead(t *testing.T) {
	t.Parallel()
	h := session.Head{Scopes: map[string]string{"user": "u1"}, Usage: &session.Usage{}}
	h.Fold([]session.Event{
		&session.ToolYield{CallID: "c1"}, &session.ToolYield{CallID: "c2"},
		&session.StateChange{Scope: session.ScopeSession, Changes: []session.Change{{Key: "a", NewValue: raw(`1`)}}},
	})
	want := *h.Clone()
	c := h.Clone()
	c.Fold([]session.Event{
		&session.ToolInput{EventBase: by("inv_2"), CallID: "c2"}, &session.ToolResult{CallID: "c1"}, &session.ToolYield{CallID: "c3"},
		&session.StateChange{Scope: session.ScopeSession, Changes: []session.Change{{Key: "a", NewValue: raw(`2`)}}},
	})
	c.Usage.AddCall("a", nil)
	c.Scopes["user"] = "u2"
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("the original changed (-want +got):\n%s", diff)
	}
}

func TestNilHead(t *testing.T) {
	t.Parallel()
	var h *session.Head
	if h.Clone() != nil || h.Base() != (session.Base{}) {
		t.Error("a nil head is something")
	}
}

func TestRange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		after      int64
		limit      int
		desc       bool
		count      int64
		first, end int64
	}{
		{-1, 10, false, 0, 0, 0},
		{-1, 10, true, 0, 0, 0},
		{-1, 3, false, 10, 0, 3},
		{2, 3, false, 10, 3, 6},
		{8, 3, false, 10, 9, 10},
		{9, 3, false, 10, 10, 10},
		{99, 3, false, 10, 10, 10},
		{-1, 3, true, 10, 7, 10},
		{7, 3, true, 10, 4, 7},
		{1, 3, true, 10, 0, 1},
		{0, 3, true, 10, 0, 0},
		{99, 3, true, 10, 7, 10},
		{math.MaxInt64, 3, false, 10, 10, 10},
		{math.MinInt64, 3, false, 10, 0, 3},
		{-1, math.MaxInt, false, 10, 0, 10},
		{-1, math.MaxInt, true, 10, 0, 10},
		{-1, -3, false, 10, 0, 0},
		{-1, -3, true, 10, 10, 10},
	} {
		first, end := session.EventsQuery{After: c.after, Limit: c.limit, Desc: c.desc}.Range(c.count)
		if first != c.first || end != c.end {
			t.Errorf("%+v: [%d, %d)", c, first, end)
		}
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	for status, want := range map[session.Status][2]bool{ // finished, commits
		"": {}, session.StatusQueued: {}, session.StatusRunning: {},
		session.StatusError: {true, false}, session.StatusAborted: {true, false},
		session.StatusCompleted: {true, true}, session.StatusYieldedTool: {true, true},
		session.StatusMaxSteps: {true, true}, session.StatusMaxDuration: {true, true},
	} {
		if got := [2]bool{status.Finished(), status.Commits()}; got != want {
			t.Errorf("%q finished and commits: %v", status, got)
		}
	}
	for _, s := range []session.CommitStatus{session.Merged, session.Skipped, session.Orphaned} {
		if s.Warning() == "" {
			t.Errorf("%s has no warning", s)
		}
	}
	if session.Committed.Warning() != "" || session.CommitNone.Warning() != "" {
		t.Error("a plain commit has a warning")
	}
}

func TestOutcomeJSON(t *testing.T) {
	t.Parallel()
	head := &session.Head{Version: 7}
	for want, out := range map[string]session.Outcome{
		`{"ok":true,"commitStatus":"merged","currentVersion":7}`:    {Head: head, Turn: session.Turn{CommitStatus: session.Merged}},
		`{"ok":false,"conflict":true,"currentVersion":7}`:           {Head: head, Conflict: true},
		`{"ok":true,"commitStatus":"orphaned","currentVersion":0}`:  {Turn: session.Turn{CommitStatus: session.Orphaned}},
		`{"ok":false,"currentVersion":7}`:                           {Head: head, Fenced: true},
		`{"ok":true,"commitStatus":"committed","currentVersion":7}`: {Head: head, Repeat: true, Turn: session.Turn{CommitStatus: session.Committed}},
	} {
		if got := string(mustMarshal(t, out)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
