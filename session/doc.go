// Package session holds what a conversation is on disk: its ledger of events,
// the facts folded from it, the rule by which a turn is committed, and the
// Store that every database implements.
//
// A session is guarded by a version, not by a lock. A turn remembers the
// version, event count and epoch that it loaded ([Base]) and hands the store a
// [Slice]: the events it wants to append, its result, and what should happen
// when the version has moved ([Policy]). [Decide] is the whole rule, as a pure
// function; stores lock, read the [Facts], call [Settle], and write what it
// says. A refused commit is data in an [Outcome], never an error.
//
// What a store keeps:
//
//	sessions      (tenant, id)                     the Head: epoch, version, event count, folded state
//	slices        (tenant, session, first index)   the ledger, one row a committed slice
//	tombstones    (tenant, session)                when a session was deleted, by the broker's clock
//	turns         (tenant, invocation)             one row a turn: running (claimed) or its outcome
//	scoped_state  (tenant, scope, scope id, key)   state shared between sessions
//
// The package is a leaf: it imports nothing else of this module. The wire names
// are those of docs/semantics.md.
package session
