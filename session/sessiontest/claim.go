package sessiontest

import (
	"sync"

	"github.com/turnpool/turnpool/session"
)

var claimTests = map[string]func(*fixture){
	"Row":              claimRow,
	"CompareAndSet":    claimCompare,
	"SameAttempt":      claimSameAttempt,
	"OneWins":          claimRace,
	"NeverOverOutcome": claimOverOutcome,
	"Fences":           claimFences,
	"LowerClaim":       claimLower,
	"FencedWrites":     claimFencedWrites,
	"RacesCommit":      claimRacesCommit,
	"NoSessionNeeded":  claimNoSession,
}

func attempt(invocation string, n, failures int) session.Turn {
	turn := turnOf(invocation, 100)
	turn.Status, turn.Attempt, turn.Failures, turn.FinishedAt = session.StatusQueued, n, failures, 0
	return turn
}

func claimRow(f *fixture) {
	turn := attempt("inv_1", 2, 1)
	now, claimed := f.claim(turn, 0)
	turn.Status = session.StatusRunning
	if !claimed {
		f.Fatal("the first claim was refused")
	}
	f.same("claimed row", now, turn)
	f.same("stored row", *f.row("inv_1"), turn)
}

func claimCompare(f *fixture) {
	if now, claimed := f.claim(attempt("inv_1", 3, 0), 2); claimed || now.InvocationID != "" {
		f.Fatalf("claim over attempt 2, which never was: %t, %+v", claimed, now)
	}
	first, _ := f.claim(attempt("inv_1", 2, 1), 0)
	for _, was := range []int{0, 1, 3} {
		now, claimed := f.claim(attempt("inv_1", 4, 9), was)
		if claimed {
			f.Fatalf("claim over attempt %d, when it is 2", was)
		}
		f.same("row given back", now, first)
	}
	next, claimed := f.claim(attempt("inv_1", 3, 2), 2)
	if !claimed || next.Attempt != 3 || next.Failures != 2 {
		f.Fatalf("claim over attempt 2: %t, %+v", claimed, next)
	}
	f.same("stored row", *f.row("inv_1"), next)
}

// A retry writes its own row again, with one failure more.
func claimSameAttempt(f *fixture) {
	f.claim(attempt("inv_1", 2, 1), 0)
	now, claimed := f.claim(attempt("inv_1", 2, 2), 2)
	if !claimed || now.Failures != 2 {
		f.Fatalf("claim over its own attempt: %t, %+v", claimed, now)
	}
}

func claimRace(f *fixture) {
	const n = 24
	for was := range 4 {
		var mu sync.Mutex
		var winners []session.Turn
		together(n, func(i int) {
			now, claimed, err := f.store.Claim(f.ctx, attempt("inv_1", was+1, i), was)
			if err != nil {
				f.Errorf("Claim: %v", err)
			}
			if now.Attempt != was+1 {
				f.Errorf("after a claim of attempt %d the row has %d", was+1, now.Attempt)
			}
			mu.Lock()
			defer mu.Unlock()
			if claimed {
				winners = append(winners, now)
			}
		})
		if len(winners) != 1 {
			f.Fatalf("%d of %d claims won", len(winners), n)
		}
		f.same("stored row", *f.row("inv_1"), winners[0])
	}
}

func claimOverOutcome(f *fixture) {
	for _, s := range []*session.Slice{ask("inv_1", 100, session.Base{}), cancels("inv_2", 100)} {
		done := f.commit(s).Turn
		for _, was := range []int{0, done.Attempt} {
			now, claimed := f.claim(attempt(s.Turn.InvocationID, 5, 0), was)
			if claimed {
				f.Fatalf("an outcome was claimed: %+v", now)
			}
			f.same("row given back", now, done)
		}
		f.same("stored row", *f.row(s.Turn.InvocationID), done)
	}
}

func claimFences(f *fixture) {
	first, loaded := started(f)
	f.claim(attempt("inv_1", 2, 1), 0)
	zombie := ask("inv_1", 200, loaded)
	out := f.commit(zombie)
	if !out.Fenced || out.Repeat || out.Conflict || out.Turn.Attempt != 1 {
		f.Fatalf("commit of a fenced attempt: %s", describe(out))
	}
	f.wantLedger(first)
	if row := f.row("inv_1"); row.Status != session.StatusRunning || row.Attempt != 2 {
		f.Fatalf("row after a fenced commit: %+v", row)
	}
	holder := ask("inv_1", 200, loaded)
	holder.Turn.Attempt = 2
	done := f.commitAs(session.Committed, holder)
	if done.Turn.Attempt != 2 || done.Turn.Failures != 1 {
		f.Fatalf("the claim's counts were lost: %+v", done.Turn)
	}
	if out := f.commit(zombie); !out.Repeat {
		f.Fatalf("zombie after the outcome: %s", describe(out))
	}
	f.wantLedger(first, holder)
}

func claimLower(f *fixture) {
	f.claim(attempt("inv_1", 2, 1), 0)
	s := ask("inv_1", 100, session.Base{})
	s.Turn.Attempt, s.Turn.Failures = 3, 0
	if out := f.commitAs(session.Committed, s); out.Turn.Attempt != 3 || out.Turn.Failures != 1 {
		f.Fatalf("outcome over a lower claim: %+v", out.Turn)
	}
}

func claimFencedWrites(f *fixture) {
	f.claim(attempt("inv_1", 2, 1), 0)
	for _, status := range []session.Status{session.StatusCompleted, session.StatusError, session.StatusAborted} {
		s := rich("inv_1", 100, session.Base{})
		s.Turn.Status = status
		if out := f.commit(s); !out.Fenced {
			f.Fatalf("%s of a fenced attempt: %s", status, describe(out))
		}
	}
	if f.load(thread).Head != nil || len(f.scopedState("user", "u1")) != 0 || f.row("inv_1").Status != session.StatusRunning {
		f.Fatal("a fenced attempt left something")
	}
}

// Either the commit came first, and the claim sees an outcome; or the claim did,
// and the commit is fenced. Never both, never neither.
func claimRacesCommit(f *fixture) {
	for round := range 12 {
		invocation := "inv_" + string(rune('a'+round))
		var out session.Outcome
		var claimed bool
		together(2, func(i int) {
			if i == 0 {
				_, won, err := f.store.Claim(f.ctx, attempt(invocation, 2, 1), 0)
				if err != nil {
					f.Errorf("Claim: %v", err)
				}
				claimed = won
				return
			}
			got, err := f.store.Commit(f.ctx, []*session.Slice{ask(invocation, 100, session.Base{})})
			if err != nil {
				f.Errorf("Commit: %v", err)
				return
			}
			out = got[0]
		})
		if out.Err != nil || claimed != out.Fenced {
			f.Fatalf("claimed %t, and the commit: %s", claimed, describe(out))
		}
		if row := f.row(invocation); row.Status.Finished() == claimed {
			f.Fatalf("claimed %t, and the row: %+v", claimed, row)
		}
	}
}

func claimNoSession(f *fixture) {
	f.claim(attempt("inv_1", 2, 1), 0)
	if loaded := f.load(thread); loaded.Head != nil {
		f.Fatalf("a claim created a session: %+v", loaded.Head)
	}
	if heads, err := f.store.Sessions(f.ctx, session.PageQuery{Tenant: tenant, Limit: 10}); err != nil || len(heads) != 0 {
		f.Fatalf("sessions: %v %v", heads, err)
	}
}
