package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
)

// Policy says what a slice wants when the session has moved since its turn
// loaded it.
type Policy int

const (
	// Resolve applies the rule: dropped if a newer user message has landed,
	// appended if not. It is what a worker uses.
	Resolve Policy = iota
	// Refuse writes nothing and answers with the current version.
	Refuse
	// Merge appends at the head, whatever has landed.
	Merge
)

// Slice is what one turn wants to commit.
type Slice struct {
	// Turn names the turn and says how its run ended. CommitStatus, Version
	// and Result are filled in by the store. Attempt 0 stands for somebody who
	// is no attempt (a cancel): only an outcome refuses it.
	Turn Turn
	// Base is the session as the turn's first attempt loaded it.
	Base Base
	// Events are appended together, in order, or not at all. Those of a turn
	// that failed or was aborted are not written.
	Events []Event
	// Initial goes before Events if this commit creates the session, and
	// nowhere if it does not. Scopes binds the new session.
	Initial []Event
	Scopes  map[string]string
	// Scoped are the writes to shared scopes that ride with Events, and
	// InitialScoped those that ride with Initial.
	Scoped        []ScopedWrite
	InitialScoped []ScopedWrite
	Policy        Policy
	// Result returns the turn's result as it is stored and read back by
	// invocation id. It is called once the outcome is known, while the store
	// holds its locks: it must be quick, and do nothing else. Nil stores none.
	Result func(Outcome) (json.RawMessage, error)
}

// ScopedWrite is one key's write to a shared scope. No Value deletes the key.
type ScopedWrite struct {
	Scope   string
	ScopeID string
	Key     string
	Value   json.RawMessage
}

// Facts is what a store knows, under its locks, when a slice arrives.
type Facts struct {
	// Head is the session now, nil if there is none.
	Head *Head
	// DeletedAt is when a session of this id was last deleted, 0 if never.
	DeletedAt int64
	// Turn is the row of this invocation, nil if there is none.
	Turn *Turn
}

// Verdict is what the rule makes of a slice.
type Verdict int

const (
	// VerdictAppend: the events go to the ledger (committed or merged).
	VerdictAppend Verdict = iota
	// VerdictRecord: only the outcome is kept (failed, aborted, skipped,
	// orphaned, or answered too late).
	VerdictRecord
	// VerdictRepeat: this invocation has an outcome; that one stands.
	VerdictRepeat
	// VerdictConflict: refused, as the slice asked. Nothing is written.
	VerdictConflict
	// VerdictFenced: a later attempt has claimed the turn. Nothing is written.
	VerdictFenced
)

// Decision is the rule's answer for one slice.
type Decision struct {
	Verdict Verdict
	Commit  CommitStatus
	// Keep are the slice's own events that are appended, without those that
	// the head has already.
	Keep []Event
	// TooLate says that the head holds the answer or result of a call that
	// this turn answers; the turn ends in error, code already_answered.
	TooLate bool
}

// Decide is the commit rule. It reads its arguments only.
//
// An outcome stands for ever. A later attempt's claim fences earlier ones. A
// turn whose request was stored before the session's deletion, or that loaded
// another epoch, is orphaned. A turn that finds the version it loaded is
// committed. Else the session has moved: under [Resolve] the slice is skipped
// if the session has a user message newer than the slice's own newest one
// (equal times are not newer, and a slice with no user message is never
// skipped), and merged if not.
func Decide(f Facts, s *Slice) Decision {
	switch {
	case f.Turn != nil && f.Turn.Status.Finished():
		return Decision{Verdict: VerdictRepeat, Commit: f.Turn.CommitStatus}
	case f.Turn != nil && s.Turn.Attempt > 0 && f.Turn.Attempt > s.Turn.Attempt:
		return Decision{Verdict: VerdictFenced}
	case !s.Turn.Status.Commits():
		return Decision{Verdict: VerdictRecord}
	case f.DeletedAt > s.Turn.CreatedAt, s.Base != (Base{}) && (f.Head == nil || f.Head.Epoch != s.Base.Epoch):
		return Decision{Verdict: VerdictRecord, Commit: Orphaned}
	case f.Head.Base().Version == s.Base.Version:
		return Decision{Verdict: VerdictAppend, Commit: Committed, Keep: s.Events}
	case s.Policy == Refuse:
		return Decision{Verdict: VerdictConflict}
	case s.Policy == Resolve && overtaken(f.Head, s.Events):
		return Decision{Verdict: VerdictRecord, Commit: Skipped}
	}
	keep, tooLate := withoutClosed(f.Head, s.Events)
	if tooLate {
		return Decision{Verdict: VerdictRecord, TooLate: true}
	}
	return Decision{Verdict: VerdictAppend, Commit: Merged, Keep: keep}
}

// overtaken reports whether the head has a user message newer than the newest
// of the events.
func overtaken(head *Head, events []Event) bool {
	var newest int64
	asked := false
	for _, e := range events {
		if user, ok := e.(*User); ok {
			newest, asked = max(newest, user.CreatedAt), true
		}
	}
	return asked && head.LastUserAt > newest
}

// withoutClosed leaves out the answers and results, for calls of earlier turns,
// that the head has already: an answer of this turn's that another turn wrote
// for it, and the result that closed a superseded call. An answer that the head
// has from somebody else makes the whole slice too late.
func withoutClosed(head *Head, events []Event) (keep []Event, tooLate bool) {
	own := map[string]bool{}
	answers := map[string]bool{}
	for _, e := range events {
		switch e := e.(type) {
		case *ToolCall:
			own[e.CallID] = true
		case *ToolInput:
			answers[e.CallID] = true
		}
	}
	for _, e := range events {
		switch e := e.(type) {
		case *ToolInput:
			pending := head.entry(e.CallID) // also one that is closed, with this answer
			switch {
			case own[e.CallID]:
			case pending == nil:
				return nil, true
			case pending.AnsweredBy == "":
			case pending.AnsweredBy == validText(e.InvocationID):
				continue
			default:
				return nil, true
			}
		case *ToolResult:
			if !own[e.CallID] && head.pending(e.CallID) == nil {
				if answers[e.CallID] {
					return nil, true
				}
				continue
			}
		}
		keep = append(keep, e)
	}
	return keep, false
}

// Settlement is what a store writes for one slice.
type Settlement struct {
	Outcome Outcome
	// WriteTurn says that Outcome.Turn is the row to write.
	WriteTurn bool
	// WriteHead says that the session becomes Outcome.Head, by appending Append
	// (maybe nothing) to the ledger at index Outcome.FirstIndex, with the scoped
	// writes beside it. A turn of which nothing is kept may still write the head:
	// it no longer holds the calls that it claimed.
	WriteHead bool
	Append    []Event
	Scoped    []ScopedWrite
}

// Settle decides a slice and works out all that follows from it: the new head,
// the turn's row with its result, the rows to write. It changes none of its
// arguments. It fails when the slice itself is bad (an event that cannot be
// encoded is left for the store to find).
func Settle(f Facts, s *Slice) (Settlement, error) {
	if err := s.check(); err != nil {
		return Settlement{}, err
	}
	d := Decide(f, s)
	out := Outcome{Turn: s.Turn, Head: f.Head, TooLate: d.TooLate}
	switch d.Verdict {
	case VerdictRepeat:
		out.Turn, out.Repeat = *f.Turn, true
		return Settlement{Outcome: out}, nil
	case VerdictConflict, VerdictFenced:
		out.Conflict, out.Fenced = d.Verdict == VerdictConflict, d.Verdict == VerdictFenced
		return Settlement{Outcome: out}, nil
	}
	settled := Settlement{WriteTurn: true}
	out.Turn.Version, out.Turn.Result = 0, nil
	if d.Verdict == VerdictRecord && f.Head != nil {
		if head := f.Head.Clone(); head.release(s.Turn.InvocationID) {
			settled.WriteHead, out.Head = true, head
		}
	}
	if d.Verdict == VerdictAppend {
		settled.WriteHead = true
		out.Head, settled.Append, settled.Scoped = s.grow(f.Head, d.Keep)
		out.FirstIndex = out.Head.EventCount - int64(len(settled.Append))
		out.Turn.Version = out.Head.Version
	}
	if f.Turn != nil { // a claim: what it counted stays
		out.Turn.Attempt = max(out.Turn.Attempt, f.Turn.Attempt)
		out.Turn.Failures = max(out.Turn.Failures, f.Turn.Failures)
	}
	out.Turn.CommitStatus = d.Commit
	if d.TooLate {
		out.Turn.Status = StatusError
	}
	if s.Result != nil {
		result, err := s.Result(out)
		if err != nil {
			return Settlement{}, fmt.Errorf("result of %s: %w", s.Turn.InvocationID, err)
		}
		out.Turn.Result = validJSON(result)
	}
	settled.Outcome = out
	return settled, nil
}

func (s *Slice) check() error {
	switch {
	case s.Turn.Tenant == "" || s.Turn.SessionID == "" || s.Turn.InvocationID == "":
		return fmt.Errorf("slice of %q: tenant, session and invocation must be given", s.Turn.InvocationID)
	case !s.Turn.Status.Finished():
		return fmt.Errorf("slice of %s: status %q is no outcome", s.Turn.InvocationID, s.Turn.Status)
	}
	if err := checkContent(slices.Concat(s.Initial, s.Events), slices.Concat(s.InitialScoped, s.Scoped)); err != nil {
		return fmt.Errorf("slice of %s: %w", s.Turn.InvocationID, err)
	}
	return nil
}

func checkContent(events []Event, scoped []ScopedWrite) error {
	if slices.ContainsFunc(events, isNil) {
		return errors.New("an event is nil")
	}
	for _, w := range scoped {
		if len(w.Value) > 0 && !json.Valid(w.Value) {
			return fmt.Errorf("value of %s %q is no JSON", w.Scope, w.Key)
		}
	}
	return nil
}

// grow returns the head after the events, the events with the initial ones if
// the session is new, and the scoped writes likewise.
func (s *Slice) grow(head *Head, keep []Event) (*Head, []Event, []ScopedWrite) {
	scoped := s.Scoped
	grown := head.Clone()
	if grown == nil {
		grown = newHead(s.Turn.SessionID, s.Scopes, s.Turn.FinishedAt)
		keep = slices.Concat(s.Initial, keep)
		scoped = slices.Concat(s.InitialScoped, scoped)
	}
	grown.Version++
	grown.UpdatedAt = max(grown.UpdatedAt, s.Turn.FinishedAt)
	grown.Fold(keep)
	if head != nil {
		grown.keepClosed(head, s.Turn.InvocationID, keep)
		grown.release(s.Turn.InvocationID)
	}
	if s.Turn.Usage != nil {
		if grown.Usage == nil {
			grown.Usage = &Usage{}
		}
		grown.Usage.Add(s.Turn.Usage)
	}
	return grown, keep, validWrites(scoped)
}

// Settle works out what a store writes for a session that is not there yet: its
// head at version 1, of a new epoch, the events and the scoped writes.
func (n NewSession) Settle() (Settlement, error) {
	if n.Tenant == "" || n.ID == "" {
		return Settlement{}, fmt.Errorf("new session %q: tenant and id must be given", n.ID)
	}
	if err := checkContent(n.Events, n.Scoped); err != nil {
		return Settlement{}, fmt.Errorf("new session %s: %w", n.ID, err)
	}
	head := newHead(n.ID, n.Scopes, n.CreatedAt)
	head.Version = 1
	head.Fold(n.Events)
	return Settlement{
		Outcome: Outcome{Head: head}, WriteHead: true, Append: n.Events, Scoped: validWrites(n.Scoped),
	}, nil
}

func newHead(id string, scopes map[string]string, at int64) *Head {
	return &Head{ID: id, Epoch: uuid.NewString(), Scopes: validScopes(scopes), CreatedAt: at, UpdatedAt: at}
}

// validScopes and validWrites are what can be stored of names that may hold any
// text. Both copy.
func validScopes(scopes map[string]string) map[string]string {
	if len(scopes) == 0 {
		return nil
	}
	out := make(map[string]string, len(scopes))
	for scope, id := range scopes {
		out[validText(scope)] = validText(id)
	}
	return out
}

func validWrites(writes []ScopedWrite) []ScopedWrite {
	out := slices.Clone(writes)
	for i, w := range out {
		out[i] = ScopedWrite{validText(w.Scope), validText(w.ScopeID), validText(w.Key), validJSON(w.Value)}
	}
	return out
}
