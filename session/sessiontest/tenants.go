package sessiontest

import (
	"github.com/turnpool/turnpool/session"
)

var tenantTests = map[string]func(*fixture){
	"ReadNothing":  tenantReads,
	"SameIDs":      tenantSameIDs,
	"ChangeNoMore": tenantWrites,
}

const stranger = "globex"

// of puts a slice into the stranger's hands.
func of(owner string, s *session.Slice) *session.Slice {
	s.Turn.Tenant = owner
	return s
}

// A stranger who knows every id reads nothing.
func tenantReads(f *fixture) {
	f.commitAs(session.Committed, rich("inv_1", 100, session.Base{}))
	f.delete(thread, 150)
	f.commitAs(session.Committed, rich("inv_2", 200, session.Base{}))
	loaded, err := f.store.Load(f.ctx, session.LoadQuery{
		Tenant: stranger, SessionID: thread, InvocationID: "inv_2", Scopes: bound(),
	})
	if err != nil {
		f.Fatal(err)
	}
	f.same("loaded", loaded, session.Loaded{Scoped: map[string]session.State{"user": {}, "org": {}}})
	if head, err := f.store.Head(f.ctx, stranger, thread); !isNotFound(err) {
		f.Errorf("Head: %+v %v", head, err)
	}
	if page, err := f.store.Events(f.ctx, session.EventsQuery{Tenant: stranger, SessionID: thread, After: -1, Limit: 9}); !isNotFound(err) {
		f.Errorf("Events: %+v %v", page, err)
	}
	if turn, err := f.store.Turn(f.ctx, stranger, "inv_2"); !isNotFound(err) {
		f.Errorf("Turn: %+v %v", turn, err)
	}
	everything := session.PageQuery{Tenant: stranger, Limit: 9}
	if turns, err := f.store.Turns(f.ctx, thread, everything); err != nil || len(turns) != 0 {
		f.Errorf("Turns: %+v %v", turns, err)
	}
	if heads, err := f.store.Sessions(f.ctx, everything); err != nil || len(heads) != 0 {
		f.Errorf("Sessions: %+v %v", heads, err)
	}
	if err := f.store.Delete(f.ctx, stranger, thread, 300); !isNotFound(err) {
		f.Errorf("Delete: %v", err)
	}
}

// Two tenants use the same ids and do not meet.
func tenantSameIDs(f *fixture) {
	mine := rich("inv_1", 100, session.Base{})
	theirs := of(stranger, slice("inv_1", 50, session.Base{}, user("theirs"), sets("turns", `9`)))
	theirs.Scopes, theirs.Scoped = bound(), []session.ScopedWrite{writes("by", `"them"`)}
	for i, out := range f.settle(mine, theirs) {
		if out.Err != nil || out.Repeat || out.Turn.CommitStatus != session.Committed {
			f.Fatalf("outcome %d: %s", i, describe(out))
		}
	}
	f.wantLedger(mine)
	got, err := f.store.Load(f.ctx, session.LoadQuery{Tenant: stranger, SessionID: thread, InvocationID: "inv_1"})
	if err != nil {
		f.Fatal(err)
	}
	f.same("their events", got.Events, theirs.Events)
	f.same("their state", got.Head.State, state("turns", `9`))
	f.same("their scoped state", got.Scoped["user"], state("by", `"them"`))
	f.same("my scoped state", f.load(thread).Scoped["user"], state("by", `"inv_1"`))
	if got.Turn.Tenant != stranger || got.Head.Epoch == f.load(thread).Head.Epoch {
		f.Fatalf("their turn %+v, head %+v", got.Turn, got.Head)
	}
}

// What a stranger does to the same ids leaves this tenant's alone.
func tenantWrites(f *fixture) {
	mine := rich("inv_1", 100, session.Base{})
	f.commitAs(session.Committed, mine)
	f.claim(attempt("inv_2", 2, 1), 0)
	want, first, second := f.load(thread), *f.row("inv_1"), *f.row("inv_2")

	theirs := attempt("inv_2", 7, 7)
	theirs.Tenant = stranger
	f.claim(theirs, 0)
	if _, err := f.store.Create(f.ctx, session.NewSession{Tenant: stranger, ID: thread}); err != nil {
		f.Fatal(err)
	}
	f.commit(of(stranger, rich("inv_1", 900, want.Head.Base())))
	f.commit(of(stranger, ask("inv_3", 900, session.Base{})))
	if err := f.store.Delete(f.ctx, stranger, thread, 1000); err != nil {
		f.Fatal(err)
	}
	f.same("session", f.load(thread), want)
	f.same("turn", *f.row("inv_1"), first)
	f.same("claim", *f.row("inv_2"), second)
	next := ask("inv_4", 500, want.Head.Base()) // older than their tombstone
	f.commitAs(session.Committed, next)
	f.wantLedger(mine, next)
}
