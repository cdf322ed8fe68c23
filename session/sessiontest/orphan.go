package sessiontest

import (
	"errors"

	"github.com/turnpool/turnpool/session"
)

var orphanTests = map[string]func(*fixture){
	"ByDeletion":       orphanDeleted,
	"ByRecreation":     orphanRecreated,
	"StoredBefore":     orphanStoredBefore,
	"StoredAtDeletion": orphanStoredAt,
	"LoadedTombstone":  orphanTombstone,
	"WhateverPolicy":   orphanPolicies,
	"Scrubbed":         orphanScrubbed,
	"DeleteTwice":      orphanDeleteTwice,
	"DeleteUnknown":    orphanDeleteUnknown,
	"OthersStay":       orphanOthersStay,
	"NoScopedWrites":   orphanNoScopedWrites,
	"OddBase":          orphanOddBase,
}

func isNotFound(err error) bool { return errors.Is(err, session.ErrNotFound) }
func isExists(err error) bool   { return errors.Is(err, session.ErrExists) }

func orphanDeleted(f *fixture) {
	_, loaded := started(f)
	f.delete(thread, 150)
	out := f.commitAs(session.Orphaned, ask("inv_late", 200, loaded))
	if out.Head != nil || out.Turn.Version != 0 || out.Turn.Status != session.StatusCompleted {
		f.Fatalf("orphaned: %s", describe(out))
	}
	if f.load(thread).Head != nil {
		f.Fatal("an orphaned turn brought its session back")
	}
	f.wantRow(out)
	if out.Turn.Result == nil {
		f.Fatal("the caller of an orphaned turn gets no answer")
	}
}

func orphanRecreated(f *fixture) {
	_, loaded := started(f)
	f.delete(thread, 150)
	fresh := ask("inv_fresh", 200, session.Base{})
	again := f.commitAs(session.Committed, fresh)
	if again.Head.Epoch == loaded.Epoch || again.Head.Version != 1 {
		f.Fatalf("re-created session: %+v", again.Head)
	}
	// The version is the same as the one that was loaded; the epoch is not.
	f.commitAs(session.Orphaned, ask("inv_late", 300, loaded))
	f.same("head", f.wantLedger(fresh).Head, again.Head)
}

func orphanStoredBefore(f *fixture) {
	started(f)
	f.delete(thread, 150)
	f.commitAs(session.Orphaned, ask("inv_waited", 149, session.Base{}))
	if f.load(thread).Head != nil {
		f.Fatal("a turn stored before the deletion created the session again")
	}
	fresh := ask("inv_fresh", 200, session.Base{})
	base := f.commitAs(session.Committed, fresh).Head.Base()
	// Even one that has loaded the new session.
	f.commitAs(session.Orphaned, ask("inv_waited_longer", 149, base))
	f.wantLedger(fresh)
}

func orphanStoredAt(f *fixture) {
	started(f)
	f.delete(thread, 150)
	same := ask("inv_same", 150, session.Base{})
	f.commitAs(session.Committed, same)
	f.wantLedger(same)
}

func orphanTombstone(f *fixture) {
	if got := f.load(thread).DeletedAt; got != 0 {
		f.Fatalf("deleted at %d, never having existed", got)
	}
	for _, at := range []int64{150, 120, 170} { // as deletions may arrive out of order
		f.create(session.NewSession{Tenant: tenant, ID: thread, CreatedAt: 10})
		f.delete(thread, at)
		if got := f.load(thread).DeletedAt; got != max(150, at) {
			f.Fatalf("deleted at %d after a deletion at %d", got, at)
		}
	}
	f.create(session.NewSession{Tenant: tenant, ID: thread, CreatedAt: 10})
	if got := f.load(thread); got.DeletedAt != 170 || got.Head == nil {
		f.Fatalf("after re-creation: %+v", got)
	}
}

func orphanPolicies(f *fixture) {
	_, loaded := started(f)
	f.delete(thread, 150)
	for _, policy := range []session.Policy{session.Resolve, session.Refuse, session.Merge} {
		s := ask("inv_"+string(rune('a'+policy)), 200, loaded)
		s.Policy = policy
		f.wantRow(f.commitAs(session.Orphaned, s))
	}
}

// What a deletion leaves of a turn says that it ran, and nothing of what was
// said; and it stays an outcome.
func orphanScrubbed(f *fixture) {
	s := ask("inv_1", 100, session.Base{})
	s.Turn.Usage = usage(1)
	kept := f.commitAs(session.Committed, s).Turn
	claimed := turnOf("inv_2", 110)
	f.claim(claimed, 0)
	f.delete(thread, 150)

	kept.Result, kept.Usage = nil, nil
	f.same("scrubbed turn", *f.row("inv_1"), kept)
	out := f.commit(s)
	if !out.Repeat {
		f.Fatalf("commit of a scrubbed turn: %s", describe(out))
	}
	f.same("repeated outcome", out.Turn, kept)
	if f.load(thread).Head != nil {
		f.Fatal("a repeated commit brought the session back")
	}
	if got := f.row("inv_2"); got.Status != session.StatusRunning || got.Attempt != 1 {
		f.Fatalf("claim after the deletion: %+v", got)
	}
}

func orphanDeleteTwice(f *fixture) {
	started(f)
	f.delete(thread, 150)
	if err := f.store.Delete(f.ctx, tenant, thread, 160); !isNotFound(err) {
		f.Fatalf("second Delete: %v", err)
	}
	if got := f.load(thread).DeletedAt; got != 150 {
		f.Fatalf("a Delete that found nothing moved the tombstone to %d", got)
	}
}

func orphanDeleteUnknown(f *fixture) {
	if err := f.store.Delete(f.ctx, tenant, thread, 150); !isNotFound(err) {
		f.Fatalf("Delete of nothing: %v", err)
	}
	first := ask("inv_1", 100, session.Base{})
	f.commitAs(session.Committed, first)
	f.wantLedger(first)
}

func orphanOthersStay(f *fixture) {
	first, _ := started(f)
	other := ask("inv_other", 100, session.Base{})
	other.Turn.SessionID = thread + "2"
	kept := f.commitAs(session.Committed, other)
	f.delete(thread+"2", 150)
	f.wantLedger(first)
	f.delete(thread, 150)
	if got := f.row("inv_other"); got.SessionID != thread+"2" || got.Result != nil || kept.Turn.Result == nil {
		f.Fatalf("row of the other session's turn: %+v", got)
	}
}

func orphanNoScopedWrites(f *fixture) {
	_, loaded := started(f)
	f.delete(thread, 150)
	s := begins("inv_late", 200)
	s.Base = loaded
	f.commitAs(session.Orphaned, s)
	if len(f.scopedState("user", "u1")) != 0 {
		f.Fatal("an orphaned turn left scoped writes")
	}
}

// A base that no session ever had is another session's.
func orphanOddBase(f *fixture) {
	f.commitAs(session.Orphaned, ask("inv_1", 100, session.Base{Version: 3}))
	first, _ := started(f)
	f.commitAs(session.Orphaned, ask("inv_2", 200, session.Base{Version: 1, EventCount: 2}))
	f.wantLedger(first)
}
