package sessiontest

import (
	"fmt"
	"sync"

	"github.com/turnpool/turnpool/session"
)

var firstTests = map[string]func(*fixture){
	"InitialApplied":        firstInitial,
	"InitialLeftOut":        firstInitialLeftOut,
	"FindsCreatedSession":   firstFindsCreated,
	"FindsNewerMessage":     firstSkipped,
	"Refused":               firstRefused,
	"RacingFirstCommits":    firstRace,
	"RacingCreateAndCommit": firstCreateRace,
}

// begins is a first turn with initial state of both kinds.
func begins(invocation string, at int64) *session.Slice {
	s := ask(invocation, at, session.Base{})
	s.Initial = slice(invocation+"_initial", at, session.Base{}, sets("origin", fmt.Sprintf("%q", invocation))).Events
	s.Scopes = bound()
	s.Scoped = []session.ScopedWrite{writes("last", fmt.Sprintf("%q", invocation))}
	s.InitialScoped = []session.ScopedWrite{writes("first", fmt.Sprintf("%q", invocation))}
	return s
}

func firstInitial(f *fixture) {
	s := begins("inv_1", 100)
	out := f.commitAs(session.Committed, s)
	if out.FirstIndex != 0 || out.Head.EventCount != 3 {
		f.Fatalf("first index %d, head %+v", out.FirstIndex, out.Head)
	}
	loaded := f.load(thread)
	f.same("ledger", ids(loaded.Events), []string{"inv_1_initial/0", "inv_1/0", "inv_1/1"})
	f.same("scopes", loaded.Head.Scopes, bound())
	f.same("state", loaded.Head.State, state("origin", `"inv_1"`))
	f.same("scoped", loaded.Scoped, map[string]session.State{
		"user": state("first", `"inv_1"`, "last", `"inv_1"`), "org": {},
	})
}

func firstInitialLeftOut(f *fixture) {
	one, two := begins("inv_1", 100), begins("inv_2", 200)
	two.Scopes = map[string]string{"user": "u2"}
	f.commitAs(session.Committed, one)
	out := f.commitAs(session.Merged, two)
	if out.FirstIndex != 3 || out.Head.EventCount != 5 {
		f.Fatalf("first index %d, head %+v", out.FirstIndex, out.Head)
	}
	loaded := f.load(thread)
	f.same("ledger", ids(loaded.Events), []string{"inv_1_initial/0", "inv_1/0", "inv_1/1", "inv_2/0", "inv_2/1"})
	f.same("scopes", loaded.Head.Scopes, bound())
	f.same("state", loaded.Head.State, state("origin", `"inv_1"`))
	f.same("user's state", loaded.Scoped["user"], state("first", `"inv_1"`, "last", `"inv_2"`))
}

func firstFindsCreated(f *fixture) {
	made := slice("made", 50, session.Base{}, sets("origin", `"form"`))
	f.create(session.NewSession{Tenant: tenant, ID: thread, Events: made.Events, CreatedAt: 50})
	s := begins("inv_1", 100)
	out := f.commitAs(session.Merged, s)
	if out.Turn.Version != 2 {
		f.Fatalf("merge into a created session: %s", describe(out))
	}
	f.wantLedger(made, s)
	f.same("state", f.load(thread).Head.State, state("origin", `"form"`))
	f.same("state of a scope the session is not bound to", f.scopedState("user", "u1"), state("last", `"inv_1"`))
}

func firstSkipped(f *fixture) {
	newer, older := ask("inv_newer", 200, session.Base{}), ask("inv_older", 100, session.Base{})
	f.commitAs(session.Committed, newer)
	f.commitAs(session.Skipped, older)
	f.wantLedger(newer)
}

func firstRefused(f *fixture) {
	one, two := ask("inv_1", 100, session.Base{}), ask("inv_2", 200, session.Base{})
	two.Policy = session.Refuse
	f.commitAs(session.Committed, one)
	if out := f.commit(two); !out.Conflict || out.Head.Version != 1 {
		f.Fatalf("refused first commit: %s", describe(out))
	}
	f.wantLedger(one)
}

// Of first commits that race one creates the session and the others are merged
// or skipped. None fails, and the initial state is there once.
func firstRace(f *fixture) {
	const n = 16
	var mu sync.Mutex
	got := map[session.CommitStatus]int{}
	together(n, func(i int) {
		s := begins(fmt.Sprintf("inv_%d", i), int64(100+i%4))
		outcomes, err := f.store.Commit(f.ctx, []*session.Slice{s})
		if err != nil || outcomes[0].Err != nil {
			f.Errorf("commit %d: %v %v", i, err, outcomes)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		got[outcomes[0].Turn.CommitStatus]++
	})
	if got[session.Committed] != 1 || got[session.Committed]+got[session.Merged]+got[session.Skipped] != n {
		f.Fatalf("commit statuses: %v", got)
	}
	loaded := f.load(thread)
	f.wantFolded(loaded)
	kept := got[session.Committed] + got[session.Merged]
	if loaded.Head.Version != int64(kept) || len(loaded.Events) != 1+2*kept {
		f.Fatalf("version %d and %d events after %d commits", loaded.Head.Version, len(loaded.Events), kept)
	}
	origin := loaded.Events[1].Base().InvocationID
	f.same("state", loaded.Head.State, state("origin", fmt.Sprintf("%q", origin)))
	f.same("first writer", loaded.Scoped["user"]["first"], state("first", fmt.Sprintf("%q", origin))["first"])
}

func firstCreateRace(f *fixture) {
	const n = 8
	var mu sync.Mutex
	created, committed := 0, 0
	together(2*n, func(i int) {
		if i%2 == 0 {
			_, err := f.store.Create(f.ctx, session.NewSession{Tenant: tenant, ID: thread, CreatedAt: 50})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				created++
			} else if !isExists(err) {
				f.Errorf("Create: %v", err)
			}
			return
		}
		outcomes, err := f.store.Commit(f.ctx, []*session.Slice{ask(fmt.Sprintf("inv_%d", i), 100, session.Base{})})
		if err != nil || outcomes[0].Err != nil {
			f.Errorf("commit %d: %v %v", i, err, outcomes)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if outcomes[0].Turn.CommitStatus == session.Committed {
			committed++
		}
	})
	if created+committed != 1 {
		f.Fatalf("%d created and %d first commits", created, committed)
	}
	loaded := f.load(thread)
	f.wantFolded(loaded)
	if len(loaded.Events) != 2*n || loaded.Head.Version != int64(n+created) {
		f.Fatalf("%d events, version %d", len(loaded.Events), loaded.Head.Version)
	}
}
