package sessiontest

import (
	"encoding/json"
	"sync"

	"github.com/turnpool/turnpool/session"
)

var onceTests = map[string]func(*fixture){
	"Again":           onceAgain,
	"AgainDropped":    onceAgainDropped,
	"InOneCommit":     onceInOneCommit,
	"Concurrently":    onceConcurrently,
	"CancelRaces":     onceCancelRaces,
	"CancelThenTurn":  onceCancelThenTurn,
	"TurnThenCancel":  onceTurnThenCancel,
	"OtherSession":    onceOtherSession,
	"AfterOtherMoved": onceAfterOtherMoved,
}

// rich is a slice that leaves something in every table.
func rich(invocation string, at int64, base session.Base) *session.Slice {
	s := slice(invocation, at, base, user("question"), sets("turns", `1`), says("answer"))
	s.Scopes = bound()
	s.Scoped = []session.ScopedWrite{writes("by", `"`+invocation+`"`)}
	s.Turn.Usage = usage(1)
	return s
}

func onceAgain(f *fixture) {
	s := rich("inv_1", 100, session.Base{})
	first := f.commitAs(session.Committed, s)
	other := rich("inv_1", 900, first.Head.Base()) // another attempt, with another answer
	other.Turn.Attempt, other.Turn.Usage = 2, usage(5)
	other.Result = func(session.Outcome) (json.RawMessage, error) {
		f.Error("the result of a repeat was asked for")
		return nil, nil
	}
	for _, again := range []*session.Slice{s, s, other} {
		out := f.commit(again)
		if !out.Repeat || out.Conflict || out.Fenced {
			f.Fatalf("repeat: %s", describe(out))
		}
		f.same("repeated outcome", out.Turn, first.Turn)
		f.same("head beside it", out.Head, first.Head)
	}
	f.same("head", f.wantLedger(s).Head, first.Head)
	f.same("scoped state", f.scopedState("user", "u1"), state("by", `"inv_1"`))
}

// The outcomes that wrote nothing to the ledger stand as well.
func onceAgainDropped(f *fixture) {
	first, loaded := started(f)
	winner := ask("inv_winner", 300, loaded)
	f.commitAs(session.Committed, winner)
	skipped, failed := ask("inv_skipped", 200, loaded), ask("inv_failed", 400, loaded)
	failed.Turn.Status = session.StatusError
	for _, s := range []*session.Slice{skipped, failed} {
		once := f.commit(s)
		again := *s
		again.Base, again.Turn.Status = f.base(), session.StatusCompleted
		out := f.commit(&again)
		if !out.Repeat {
			f.Fatalf("repeat of %s: %s", s.Turn.InvocationID, describe(out))
		}
		f.same("repeated outcome", out.Turn, once.Turn)
	}
	f.wantLedger(first, winner)
}

func onceInOneCommit(f *fixture) {
	s := rich("inv_1", 100, session.Base{})
	between := ask("inv_2", 100, session.Base{})
	outs := f.settle(s, s, between, s)
	for i, repeat := range []bool{false, true, false, true} {
		if outs[i].Err != nil || outs[i].Repeat != repeat {
			f.Fatalf("outcome %d: %s", i, describe(outs[i]))
		}
	}
	f.same("repeated outcome", outs[3].Turn, outs[0].Turn)
	f.wantLedger(s, between)
	f.same("usage", f.load(thread).Head.Usage, usage(1))
}

func onceConcurrently(f *fixture) {
	const n = 24
	first, loaded := started(f)
	s := rich("inv_1", 200, loaded)
	outs := make([]session.Outcome, n)
	together(n, func(i int) {
		mine := *s // each delivery has its own slice
		got, err := f.store.Commit(f.ctx, []*session.Slice{&mine})
		if err != nil || got[0].Err != nil {
			f.Errorf("commit %d: %v %v", i, err, got)
			return
		}
		outs[i] = got[0]
	})
	wrote := 0
	for _, out := range outs {
		if !out.Repeat {
			wrote++
		}
		f.same("outcome", out.Turn, outs[0].Turn)
	}
	if wrote != 1 {
		f.Fatalf("%d of %d commits of one turn wrote it", wrote, n)
	}
	f.wantLedger(first, s)
	f.same("usage", f.load(thread).Head.Usage, usage(1))
}

// cancels is the outcome that somebody who is no attempt gives to a turn.
func cancels(invocation string, at int64) *session.Slice {
	s := slice(invocation, at, session.Base{})
	s.Turn.Status, s.Turn.Attempt = session.StatusAborted, 0
	return s
}

func onceCancelRaces(f *fixture) {
	const n = 12
	var want []string
	for round := range 8 {
		invocation := "inv_" + string(rune('a'+round))
		s := ask(invocation, 100, session.Base{})
		var mu sync.Mutex
		var wrote []session.Outcome
		together(n, func(i int) {
			one := cancels(invocation, 100)
			if i%2 == 0 {
				mine := *s
				one = &mine
			}
			got, err := f.store.Commit(f.ctx, []*session.Slice{one})
			if err != nil || got[0].Err != nil {
				f.Errorf("commit: %v %v", err, got)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if !got[0].Repeat {
				wrote = append(wrote, got[0])
			}
		})
		if len(wrote) != 1 {
			f.Fatalf("a turn has %d outcomes", len(wrote))
		}
		f.wantRow(wrote[0])
		if wrote[0].Turn.Status == session.StatusCompleted {
			want = append(want, ids(s.Events)...)
		}
	}
	loaded := f.load(thread)
	f.same("ledger", ids(loaded.Events), append([]string{}, want...))
	f.wantFolded(loaded)
}

func onceCancelThenTurn(f *fixture) {
	turn := turnOf("inv_1", 100)
	turn.Attempt, turn.Failures = 3, 2
	f.claim(turn, 0) // a cancel is refused by no claim, and keeps what it counted
	aborted := f.commitAs(session.CommitNone, cancels("inv_1", 100))
	if aborted.Turn.Status != session.StatusAborted || aborted.Turn.Attempt != 3 || aborted.Turn.Failures != 2 {
		f.Fatalf("cancelled: %+v", aborted.Turn)
	}
	s := ask("inv_1", 100, session.Base{})
	s.Turn.Attempt = 3
	if out := f.commit(s); !out.Repeat || out.Turn.Status != session.StatusAborted {
		f.Fatalf("commit after a cancel: %s", describe(out))
	}
	if f.load(thread).Head != nil {
		f.Fatal("a cancelled turn created a session")
	}
	f.wantRow(aborted)
}

func onceTurnThenCancel(f *fixture) {
	s := ask("inv_1", 100, session.Base{})
	done := f.commitAs(session.Committed, s)
	if out := f.commit(cancels("inv_1", 100)); !out.Repeat || out.Turn.Status != session.StatusCompleted {
		f.Fatalf("cancel after a commit: %s", describe(out))
	}
	f.wantLedger(s)
	f.wantRow(done)
}

// An invocation has one outcome, whatever session a second commit names.
func onceOtherSession(f *fixture) {
	s := ask("inv_1", 100, session.Base{})
	done := f.commitAs(session.Committed, s)
	other := ask("inv_1", 100, session.Base{})
	other.Turn.SessionID = thread + "2"
	if out := f.commit(other); !out.Repeat || out.Turn.SessionID != thread {
		f.Fatalf("commit of the turn in another session: %s", describe(out))
	}
	if f.load(thread+"2").Head != nil {
		f.Fatal("a repeated commit created a session")
	}
	f.wantRow(done)
}

// A redelivery that comes after others have moved the session changes nothing.
func onceAfterOtherMoved(f *fixture) {
	first, loaded := started(f)
	s, other := rich("inv_1", 200, loaded), ask("inv_2", 300, loaded)
	done := f.commitAs(session.Committed, s)
	moved := f.commitAs(session.Merged, other)
	again := rich("inv_1", 200, moved.Head.Base())
	out := f.commit(again)
	if !out.Repeat {
		f.Fatalf("repeat: %s", describe(out))
	}
	f.same("repeated outcome", out.Turn, done.Turn)
	f.same("head beside it", out.Head, moved.Head)
	f.wantLedger(first, s, other)
}
