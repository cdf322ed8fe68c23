package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
)

// Errors of a [Store]. Anything else is a fault of the store itself.
var (
	// ErrNotFound: no such session or turn, or not this tenant's.
	ErrNotFound = errors.New("not found")
	// ErrExists: a session of that id is there already.
	ErrExists = errors.New("session exists")
)

// Turn is the row of one turn: a running one that was claimed, or an outcome.
// First attempts write no claim, so most turns get their row with their
// outcome.
type Turn struct {
	Tenant       string
	InvocationID string
	SessionID    string
	Agent        string
	Lane         string
	Status       Status
	CommitStatus CommitStatus
	// Version is the session's after this turn's commit, 0 if nothing was kept.
	Version  int64
	Attempt  int
	Failures int
	// Result is the turn's result as the wire has it; nil while it runs, and
	// after its session was deleted.
	Result json.RawMessage
	// Usage is the turn's own.
	Usage      *Usage
	CreatedAt  int64 // when the broker stored the request
	StartedAt  int64
	FinishedAt int64
}

// Clone returns a copy that shares nothing that is changed later.
func (t *Turn) Clone() *Turn {
	if t == nil {
		return nil
	}
	out := *t
	out.Result = bytes.Clone(t.Result)
	if t.Usage != nil {
		out.Usage = t.Usage.Clone()
	}
	return &out
}

// Outcome is what became of a slice. The zero flags say that it was accepted.
type Outcome struct {
	// Turn is the row as the store has it now: on Repeat the first commit's, on
	// Conflict and Fenced the slice's own, which was not written.
	Turn Turn
	// Head is the session after the slice, nil if there is none.
	Head *Head
	// FirstIndex is the ledger index of the slice's first event.
	FirstIndex int64
	// Repeat: the invocation had an outcome already, and that one stands.
	Repeat bool
	// Conflict: the session has moved (its version is in Head) and the slice
	// asked to be refused then.
	Conflict bool
	// Fenced: a later attempt has claimed this turn.
	Fenced bool
	// TooLate: a call that this turn answers was answered by another.
	TooLate bool
	// Err: this slice alone could not be written; others were.
	Err error
}

// MarshalJSON gives the wire form of a commit's answer:
// {"ok", "conflict", "currentVersion"}, with the commit status when there is one.
func (o Outcome) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		OK             bool         `json:"ok"`
		Conflict       bool         `json:"conflict,omitempty"`
		CommitStatus   CommitStatus `json:"commitStatus,omitempty"`
		CurrentVersion int64        `json:"currentVersion"`
	}{!o.Conflict && !o.Fenced && o.Err == nil, o.Conflict, o.Turn.CommitStatus, o.Head.Base().Version})
}

// LoadQuery asks for all that a turn needs to begin.
type LoadQuery struct {
	Tenant       string
	SessionID    string
	InvocationID string
	// UpTo, when it is not 0, is the number of ledger events wanted: a later
	// attempt reads the ledger that its first one saw. Negative: none of them.
	UpTo int64
	// Scopes are those that the session will be bound to if it is new.
	Scopes map[string]string
}

// Bound returns the scopes, by id, whose state the answer has: those of the
// session, or those asked for if there is none.
func (q LoadQuery) Bound(head *Head) map[string]string {
	if head != nil {
		return head.Scopes
	}
	return validScopes(q.Scopes)
}

// Loaded answers a [LoadQuery].
type Loaded struct {
	// Head is the session at its head, nil if there is none.
	Head *Head
	// Events are the ledger, oldest first, cut at UpTo.
	Events []Event
	// Turn is the row of the invocation, nil if there is none.
	Turn *Turn
	// DeletedAt is when a session of this id was last deleted, 0 if never.
	DeletedAt int64
	// Scoped has the state of the scopes that the session is bound to, or is
	// to be bound to.
	Scoped map[string]State
}

// NewSession is a session to create.
type NewSession struct {
	Tenant    string
	ID        string
	Scopes    map[string]string
	Events    []Event
	Scoped    []ScopedWrite
	CreatedAt int64
}

// EventsQuery asks for a page of a session's ledger.
type EventsQuery struct {
	Tenant    string
	SessionID string
	// After is the index to go on from, not included. Oldest first it starts
	// before the first event with -1; newest first it starts at the head with
	// -1 too, and goes down.
	After int64
	// Limit is the greatest number of events. No limit gives none.
	Limit int
	Desc  bool
}

// IndexedEvent is a ledger event with its place, counted from 0.
type IndexedEvent struct {
	Index int64
	Event Event
}

// PageQuery asks for a page of a list, newest first: what comes after the entry
// (At, ID) of the page before. The zero cursor starts at the newest. No limit
// gives nothing.
type PageQuery struct {
	Tenant string
	At     int64
	ID     string
	Limit  int
}

// Store keeps sessions and turns. Every implementation passes
// session/sessiontest. All methods may be called concurrently, also from
// several processes on one database. An error that is none of this package's
// says that the store could not be reached or is broken: nothing may be
// concluded about what it wrote, and the call may be repeated.
type Store interface {
	// Load reads a session and an invocation's row, in one round trip and at
	// one point in time. A session that does not exist is no error.
	Load(ctx context.Context, q LoadQuery) (Loaded, error)

	// Commit settles many turns in one transaction and answers in their order.
	// Slices of one session apply one after another, and so do slices of one
	// invocation. A bad slice fails alone, in its Outcome. Committing an
	// invocation again changes nothing and answers with its first outcome.
	Commit(ctx context.Context, slices []*Slice) ([]Outcome, error)

	// Claim writes a running turn's row (status running, its attempt and
	// failures) if the stored attempt is still was, 0 standing for no row. It
	// returns the row as it is now, and whether this call wrote it. An outcome
	// is never overwritten.
	Claim(ctx context.Context, turn Turn, was int) (Turn, bool, error)

	// ClaimCalls lets a turn answer or close calls that wait in its session,
	// before it does anything, by the rule of [CallClaim.Settle]. The version
	// stays. It may be repeated by the same turn. What a turn holds it holds until
	// its outcome is committed.
	ClaimCalls(ctx context.Context, c CallClaim) (ClaimedCalls, error)

	// Create makes a session at version 1, or fails with [ErrExists].
	Create(ctx context.Context, s NewSession) (*Head, error)

	// Delete removes a session and its ledger, and scrubs the results of its
	// turns, whose rows stay so that a redelivery does not run them again.
	// Turns whose request was stored before at end orphaned. [ErrNotFound] if
	// there is no session, so a second Delete fails so.
	Delete(ctx context.Context, tenant, id string, at int64) error

	// Head returns the session at its head, or [ErrNotFound].
	Head(ctx context.Context, tenant, id string) (*Head, error)

	// Sessions lists sessions by creation, newest first. State, usage and
	// pending calls are included.
	Sessions(ctx context.Context, q PageQuery) ([]*Head, error)

	// Events returns a page of a ledger, or [ErrNotFound].
	Events(ctx context.Context, q EventsQuery) ([]IndexedEvent, error)

	// Turn returns the row of an invocation, or [ErrNotFound].
	Turn(ctx context.Context, tenant, invocationID string) (*Turn, error)

	// Turns lists the rows of a session's turns by creation, newest first. An
	// unknown session has none.
	Turns(ctx context.Context, sessionID string, q PageQuery) ([]*Turn, error)

	// Ping reports whether the store can be reached.
	Ping(ctx context.Context) error

	// Close waits for calls under way and releases what the store holds. It
	// may be called twice.
	Close() error
}
