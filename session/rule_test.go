package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/session/sessiontest"
)

// TestRule drives [session.Settle] through the suite's random histories with
// nothing around it but maps, so that a failure is the rule's and no store's.
func TestRule(t *testing.T) {
	t.Parallel()
	sessiontest.Model(t, func(*testing.T) session.Store { return newByHand() })
}

// byHand keeps facts and does what settlements say. It implements what the model
// asks for.
type byHand struct {
	session.Store // none; the rest of the interface

	facts  map[[2]string]session.Facts // by tenant and session; no turns
	turns  map[[2]string]session.Turn
	ledger map[[2]string][]session.Event
	scoped map[[3]string]session.State
}

func newByHand() *byHand {
	return &byHand{
		facts: map[[2]string]session.Facts{}, turns: map[[2]string]session.Turn{},
		ledger: map[[2]string][]session.Event{}, scoped: map[[3]string]session.State{},
	}
}

func (b *byHand) known(tenant, id, invocation string) session.Facts {
	f := b.facts[[2]string{tenant, id}]
	if turn, ok := b.turns[[2]string{tenant, invocation}]; ok {
		f.Turn = &turn
	}
	return f
}

func (b *byHand) Load(_ context.Context, q session.LoadQuery) (session.Loaded, error) {
	f := b.known(q.Tenant, q.SessionID, q.InvocationID)
	loaded := session.Loaded{Head: f.Head, DeletedAt: f.DeletedAt, Turn: f.Turn, Events: b.ledger[[2]string{q.Tenant, q.SessionID}]}
	for scope, id := range q.Bound(f.Head) {
		loaded.Scoped = map[string]session.State{scope: b.scoped[[3]string{q.Tenant, scope, id}]}
	}
	return loaded, nil
}

func (b *byHand) Commit(_ context.Context, all []*session.Slice) (outcomes []session.Outcome, err error) {
	for _, s := range all {
		settled, err := session.Settle(b.known(s.Turn.Tenant, s.Turn.SessionID, s.Turn.InvocationID), s)
		if err != nil {
			settled.Outcome.Err = err
		}
		b.write(s.Turn.Tenant, s.Turn.SessionID, settled)
		outcomes = append(outcomes, settled.Outcome)
	}
	return outcomes, nil
}

func (b *byHand) write(tenant, id string, settled session.Settlement) {
	at := [2]string{tenant, id}
	if settled.WriteTurn {
		b.turns[[2]string{tenant, settled.Outcome.Turn.InvocationID}] = settled.Outcome.Turn
	}
	if settled.WriteHead {
		f := b.facts[at]
		f.Head = settled.Outcome.Head
		b.facts[at] = f
		b.ledger[at] = slices.Concat(b.ledger[at], settled.Append)
	}
	for _, w := range settled.Scoped {
		scope := [3]string{tenant, w.Scope, w.ScopeID}
		state := b.scoped[scope].Clone()
		state[w.Key] = w.Value
		b.scoped[scope] = state
	}
}

func (b *byHand) Claim(_ context.Context, turn session.Turn, was int) (session.Turn, bool, error) {
	have := b.turns[[2]string{turn.Tenant, turn.InvocationID}]
	if have.Status.Finished() || have.Attempt != was {
		return have, false, nil
	}
	turn.Status = session.StatusRunning
	b.turns[[2]string{turn.Tenant, turn.InvocationID}] = turn
	return turn, true, nil
}

func (b *byHand) Create(_ context.Context, n session.NewSession) (*session.Head, error) {
	if b.facts[[2]string{n.Tenant, n.ID}].Head != nil {
		return nil, session.ErrExists
	}
	settled, err := n.Settle()
	b.write(n.Tenant, n.ID, settled)
	return settled.Outcome.Head, err
}

func (b *byHand) Delete(_ context.Context, tenant, id string, deletedAt int64) error {
	at := [2]string{tenant, id}
	f := b.facts[at]
	if f.Head == nil {
		return session.ErrNotFound
	}
	b.facts[at] = session.Facts{DeletedAt: max(f.DeletedAt, deletedAt)}
	delete(b.ledger, at)
	for k, turn := range b.turns {
		if k[0] == tenant && turn.SessionID == id {
			turn.Result, turn.Usage = nil, nil
			b.turns[k] = turn
		}
	}
	return nil
}

func (b *byHand) Turns(_ context.Context, id string, q session.PageQuery) (turns []*session.Turn, err error) {
	for k, turn := range b.turns {
		if k[0] == q.Tenant && turn.SessionID == id {
			turns = append(turns, &turn)
		}
	}
	return turns, nil
}

func userAt(ms int64) *session.User { return &session.User{EventBase: at(ms)} }

func TestDecide(t *testing.T) {
	t.Parallel()
	head := &session.Head{ID: "session_1", Epoch: "e1", Version: 4, EventCount: 9, LastUserAt: 200}
	loaded := session.Base{Epoch: "e1", Version: 3, EventCount: 7}
	moved := session.Facts{Head: head}
	done := func(s session.Status, c session.CommitStatus) *session.Turn {
		return &session.Turn{Status: s, CommitStatus: c, Attempt: 9}
	}
	running := func(attempt int) *session.Turn {
		return &session.Turn{Status: session.StatusRunning, Attempt: attempt}
	}
	ask := func(ms int64) session.Slice {
		return session.Slice{
			Turn: session.Turn{Status: session.StatusCompleted, Attempt: 1, CreatedAt: ms}, Base: loaded,
			Events: []session.Event{userAt(ms)},
		}
	}
	with := func(s session.Slice, change func(*session.Slice)) session.Slice { change(&s); return s }
	for name, c := range map[string]struct {
		facts   session.Facts
		slice   session.Slice
		verdict session.Verdict
		commit  session.CommitStatus
	}{
		"first of a new session": {session.Facts{}, with(ask(100), func(s *session.Slice) { s.Base = session.Base{} }),
			session.VerdictAppend, session.Committed},
		"version matches": {moved, with(ask(100), func(s *session.Slice) { s.Base = head.Base() }),
			session.VerdictAppend, session.Committed},
		"version matches, with an older message": {moved, with(ask(100), func(s *session.Slice) { s.Base, s.Policy = head.Base(), session.Refuse }),
			session.VerdictAppend, session.Committed},
		"moved, newest message": {moved, ask(201), session.VerdictAppend, session.Merged},
		"moved, equal times":    {moved, ask(200), session.VerdictAppend, session.Merged},
		"moved, older message":  {moved, ask(199), session.VerdictRecord, session.Skipped},
		"moved, no message": {moved, with(ask(1), func(s *session.Slice) { s.Events = []session.Event{&session.Assistant{}} }),
			session.VerdictAppend, session.Merged},
		"moved, nothing to say": {moved, with(ask(1), func(s *session.Slice) { s.Events = nil }), session.VerdictAppend, session.Merged},
		"moved, older, to be merged": {moved, with(ask(1), func(s *session.Slice) { s.Policy = session.Merge }),
			session.VerdictAppend, session.Merged},
		"moved, newest, to be refused": {moved, with(ask(300), func(s *session.Slice) { s.Policy = session.Refuse }),
			session.VerdictConflict, session.CommitNone},
		"first commit finds a session": {moved, with(ask(300), func(s *session.Slice) { s.Base = session.Base{} }),
			session.VerdictAppend, session.Merged},
		"deleted": {session.Facts{DeletedAt: 50}, ask(100), session.VerdictRecord, session.Orphaned},
		"re-created": {moved, with(ask(300), func(s *session.Slice) { s.Base.Epoch = "e0" }),
			session.VerdictRecord, session.Orphaned},
		"re-created, of the same version": {moved, with(ask(300), func(s *session.Slice) { s.Base.Epoch, s.Base.Version = "e0", 4 }),
			session.VerdictRecord, session.Orphaned},
		"no epoch": {moved, with(ask(300), func(s *session.Slice) { s.Base.Epoch, s.Base.Version = "", 4 }),
			session.VerdictRecord, session.Orphaned},
		"no epoch, no session": {session.Facts{}, with(ask(300), func(s *session.Slice) { s.Base.Epoch = "" }),
			session.VerdictRecord, session.Orphaned},
		"stored before the deletion": {session.Facts{Head: head, DeletedAt: 301}, with(ask(300), func(s *session.Slice) { s.Base = head.Base() }),
			session.VerdictRecord, session.Orphaned},
		"stored at the deletion": {session.Facts{Head: head, DeletedAt: 300}, with(ask(300), func(s *session.Slice) { s.Base = head.Base() }),
			session.VerdictAppend, session.Committed},
		"orphaned, to be refused": {session.Facts{}, with(ask(300), func(s *session.Slice) { s.Policy = session.Refuse }),
			session.VerdictRecord, session.Orphaned},
		"failed": {moved, with(ask(300), func(s *session.Slice) { s.Turn.Status = session.StatusError }),
			session.VerdictRecord, session.CommitNone},
		"aborted, of a deleted session": {session.Facts{DeletedAt: 999}, with(ask(300), func(s *session.Slice) { s.Turn.Status = session.StatusAborted }),
			session.VerdictRecord, session.CommitNone},
		"has an outcome":         {session.Facts{Head: head, Turn: done(session.StatusCompleted, session.Merged)}, ask(300), session.VerdictRepeat, session.Merged},
		"was skipped":            {session.Facts{Head: head, Turn: done(session.StatusCompleted, session.Skipped)}, ask(300), session.VerdictRepeat, session.Skipped},
		"was aborted":            {session.Facts{Head: head, Turn: done(session.StatusAborted, "")}, ask(300), session.VerdictRepeat, session.CommitNone},
		"claimed by a later one": {session.Facts{Head: head, Turn: running(2)}, ask(300), session.VerdictFenced, session.CommitNone},
		"claimed by itself":      {session.Facts{Head: head, Turn: running(1)}, ask(300), session.VerdictAppend, session.Merged},
		"claimed by an earlier one": {session.Facts{Head: head, Turn: running(1)}, with(ask(300), func(s *session.Slice) { s.Turn.Attempt = 2 }),
			session.VerdictAppend, session.Merged},
		"cancel of a claimed one": {session.Facts{Head: head, Turn: running(2)}, with(ask(300), func(s *session.Slice) {
			s.Turn.Attempt, s.Turn.Status = 0, session.StatusAborted
		}), session.VerdictRecord, session.CommitNone},
	} {
		got := session.Decide(c.facts, &c.slice)
		if got.Verdict != c.verdict || got.Commit != c.commit || got.TooLate {
			t.Errorf("%s: %+v, want verdict %d, commit %q", name, got, c.verdict, c.commit)
		}
		if got.Verdict == session.VerdictAppend && len(got.Keep) != len(c.slice.Events) {
			t.Errorf("%s: kept %d of %d events", name, len(got.Keep), len(c.slice.Events))
		}
	}
}

// Settle reads its arguments only, so that a store may hand it what it caches.
func TestSettleChangesNothing(t *testing.T) {
	t.Parallel()
	head := &session.Head{ID: "session_1", Epoch: "e1", Version: 1, Scopes: map[string]string{"user": "u1"}, Usage: &session.Usage{}}
	head.Fold([]session.Event{
		userAt(100), &session.ToolYield{CallID: "c1"}, &session.ToolYield{CallID: "c2"},
		&session.StateChange{Scope: session.ScopeSession, Changes: []session.Change{{Key: "a", NewValue: raw(`1`)}}},
	})
	before := head.Clone()
	facts := session.Facts{Head: head, Turn: &session.Turn{Status: session.StatusRunning, Attempt: 1, Failures: 1}}
	usage := &session.Usage{}
	usage.AddCall("a", &session.ModelUsage{InputTokens: 3})
	s := &session.Slice{
		Turn: session.Turn{Tenant: "t", SessionID: "session_1", InvocationID: "inv_1", Status: session.StatusCompleted, Attempt: 2, Usage: usage},
		Events: []session.Event{
			&session.ToolResult{CallID: "gone"}, &session.ToolInput{CallID: "c1"}, &session.ToolResult{CallID: "c1"}, userAt(300),
			&session.StateChange{Scope: session.ScopeSession, Changes: []session.Change{{Key: "a", NewValue: raw(`2`)}}},
		},
		Scoped: []session.ScopedWrite{{Scope: "us\xff", ScopeID: "u1", Key: "k", Value: raw(`1`)}},
	}
	events := slices.Clone(s.Events)
	settled, err := session.Settle(facts, s)
	if err != nil {
		t.Fatal(err)
	}
	if settled.Outcome.Turn.CommitStatus != session.Merged || len(settled.Append) != 4 || settled.Outcome.Turn.Failures != 1 {
		t.Errorf("settled: %+v", settled)
	}
	if diff := cmp.Diff(before, head); diff != "" {
		t.Errorf("the head changed (-want +got):\n%s", diff)
	}
	if !slices.Equal(events, s.Events) || s.Scoped[0].Scope != "us\xff" || usage.ModelCalls != 1 || facts.Turn.Attempt != 1 {
		t.Error("the slice changed")
	}
	settled.Outcome.Head.Usage.AddCall("b", nil)
	settled.Outcome.Head.State["b"] = raw(`1`)
	if diff := cmp.Diff(before, head); diff != "" {
		t.Errorf("the settled head shares something with the head before (-want +got):\n%s", diff)
	}
}

func TestSettleFails(t *testing.T) {
	t.Parallel()
	good := session.Turn{Tenant: "t", SessionID: "session_1", InvocationID: "inv_1", Status: session.StatusCompleted}
	fails := func(session.Outcome) (json.RawMessage, error) { return nil, errors.New("no result") }
	for name, change := range map[string]func(*session.Slice){
		"no tenant":        func(s *session.Slice) { s.Turn.Tenant = "" },
		"no session":       func(s *session.Slice) { s.Turn.SessionID = "" },
		"no invocation":    func(s *session.Slice) { s.Turn.InvocationID = "" },
		"no status":        func(s *session.Slice) { s.Turn.Status = "" },
		"queued":           func(s *session.Slice) { s.Turn.Status = session.StatusQueued },
		"running":          func(s *session.Slice) { s.Turn.Status = session.StatusRunning },
		"nil event":        func(s *session.Slice) { s.Events = []session.Event{nil} },
		"nil pointer":      func(s *session.Slice) { s.Events = []session.Event{(*session.StateChange)(nil)} },
		"nil initial":      func(s *session.Slice) { s.Initial = []session.Event{nil} },
		"scoped nonsense":  func(s *session.Slice) { s.Scoped = []session.ScopedWrite{{Key: "a", Value: raw(`{`)}} },
		"initial nonsense": func(s *session.Slice) { s.InitialScoped = []session.ScopedWrite{{Key: "a", Value: raw(`{`)}} },
		"no result":        func(s *session.Slice) { s.Result = fails },
	} {
		s := &session.Slice{Turn: good}
		change(s)
		if settled, err := session.Settle(session.Facts{}, s); err == nil {
			t.Errorf("%s: settled as %+v", name, settled)
		}
	}
}
