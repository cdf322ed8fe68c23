package sessiontest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/turnpool/turnpool/session"
)

var raceTests = map[string]func(*fixture){
	"ManyOnOneSession":  raceOneSession,
	"DeleteAndRecreate": raceDelete,
	"ReadersSeeWhole":   raceReaders,
}

// raceOneSession lets many turns load and commit one session at once.
func raceOneSession(f *fixture) {
	const n = 50
	all := make([]*session.Slice, n)
	outs := make([]session.Outcome, n)
	together(n, func(i int) {
		loaded, err := f.store.Load(f.ctx, session.LoadQuery{Tenant: tenant, SessionID: thread})
		if err != nil {
			f.Errorf("Load: %v", err)
			return
		}
		invocation := fmt.Sprintf("inv_%02d", i)
		s := slice(invocation, 100, loaded.Head.Base(), user("q"), sets(invocation, `true`),
			sets("last", `"`+invocation+`"`), calls(invocation+"_c"), closes(invocation+"_c"), says("a"))
		s.Turn.Usage, s.Scopes = usage(1), bound()
		s.Scoped = []session.ScopedWrite{writes(invocation, `true`)}
		all[i] = s
		got, err := f.store.Commit(f.ctx, []*session.Slice{s})
		if err != nil || got[0].Err != nil || got[0].Head == nil {
			f.Errorf("commit %d: %v %v", i, err, got)
			return
		}
		outs[i] = got[0]
	})
	if f.Failed() {
		return
	}
	f.wantSerial(all, outs)
	loaded := f.load(thread)
	f.same("usage", loaded.Head.Usage, usage(n))
	if len(loaded.Head.State) != n+1 || len(loaded.Scoped["user"]) != n {
		f.Fatalf("%d keys of state and %d of scoped state after %d turns", len(loaded.Head.State), len(loaded.Scoped["user"]), n)
	}
}

// wantSerial demands that the slices are in the ledger as if they had come one
// after another, in the order of their versions: each once, whole, and where
// its outcome says.
func (f *fixture) wantSerial(all []*session.Slice, outs []session.Outcome) {
	f.Helper()
	order := make([]*session.Slice, len(all))
	for i, out := range outs {
		v := out.Turn.Version
		if v < 1 || v > int64(len(all)) || order[v-1] != nil {
			f.Fatalf("version %d of %s is taken or out of range", v, out.Turn.InvocationID)
		}
		order[v-1] = all[i]
		if want := session.Committed; v == 1 && out.Turn.CommitStatus != want {
			f.Fatalf("the first commit is %q", out.Turn.CommitStatus)
		}
		f.wantRow(out)
	}
	loaded := f.wantLedger(order...)
	if loaded.Head.Version != int64(len(all)) {
		f.Fatalf("version %d after %d commits", loaded.Head.Version, len(all))
	}
	for i, out := range outs {
		at := out.FirstIndex
		f.same("events at the outcome's index", ids(loaded.Events[at:at+int64(len(all[i].Events))]), ids(all[i].Events))
	}
}

// raceDelete deletes and re-creates a session under the hands of turns that
// commit to it. What an outcome says is in the last session is there, and
// nothing else is.
func raceDelete(f *fixture) {
	const committers, rounds = 6, 8
	var clock atomic.Int64
	now := func() int64 { return clock.Add(1) }
	var mu sync.Mutex
	wrote := map[string][]string{} // by epoch
	f.create(session.NewSession{Tenant: tenant, ID: thread, CreatedAt: now()})
	together(committers+1, func(who int) {
		for round := range rounds {
			if who == committers {
				if err := f.store.Delete(f.ctx, tenant, thread, now()); err != nil && !isNotFound(err) {
					f.Errorf("Delete: %v", err)
				}
				_, err := f.store.Create(f.ctx, session.NewSession{Tenant: tenant, ID: thread, CreatedAt: now()})
				if err != nil && !isExists(err) {
					f.Errorf("Create: %v", err)
				}
				continue
			}
			stored := now()
			loaded, err := f.store.Load(f.ctx, session.LoadQuery{Tenant: tenant, SessionID: thread})
			if err != nil {
				f.Errorf("Load: %v", err)
				continue
			}
			s := slice(fmt.Sprintf("inv_%d_%d", who, round), stored, loaded.Head.Base(), says("no message is newer"), says("x"))
			got, err := f.store.Commit(f.ctx, []*session.Slice{s})
			if err != nil || got[0].Err != nil {
				f.Errorf("commit: %v %v", err, got)
				continue
			}
			switch status := got[0].Turn.CommitStatus; status {
			case session.Committed, session.Merged:
				mu.Lock()
				wrote[got[0].Head.Epoch] = append(wrote[got[0].Head.Epoch], ids(s.Events)...)
				mu.Unlock()
			case session.Orphaned:
			default:
				f.Errorf("commit status %q", status)
			}
		}
	})
	loaded := f.load(thread)
	f.wantFolded(loaded)
	got, want := ids(loaded.Events), wrote[loaded.Head.Base().Epoch]
	for i := 0; i+1 < len(got); i += 2 {
		if got[i][:len(got[i])-1] != got[i+1][:len(got[i+1])-1] {
			f.Fatalf("a slice is torn apart: %s, %s", got[i], got[i+1])
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	f.same("events of the last session", got, want)
}

// raceReaders reads while turns commit: a reader sees whole slices, and a head
// that is theirs.
func raceReaders(f *fixture) {
	const turns, readers, reads = 40, 3, 20
	f.create(session.NewSession{Tenant: tenant, ID: thread, Scopes: bound()})
	together(1+readers, func(who int) {
		if who == 0 {
			for i := range turns {
				s := slice(fmt.Sprintf("inv_%d", i), 100, session.Base{}, user("q"), sets("n", fmt.Sprint(i+1)), says("a"))
				s.Scoped = []session.ScopedWrite{writes("n", fmt.Sprint(i+1))}
				if got, err := f.store.Commit(f.ctx, []*session.Slice{s}); err != nil || got[0].Err != nil {
					f.Errorf("commit: %v %v", err, got)
				}
			}
			return
		}
		for range reads {
			loaded, err := f.store.Load(f.ctx, session.LoadQuery{Tenant: tenant, SessionID: thread})
			if err != nil {
				f.Errorf("Load: %v", err)
				return
			}
			n := loaded.Head.Version - 1
			if int64(len(loaded.Events)) != 3*n || loaded.Head.EventCount != 3*n {
				f.Errorf("version %d with %d events, and the head says %d", n+1, len(loaded.Events), loaded.Head.EventCount)
			}
			if n > 0 && (string(loaded.Head.State["n"]) != fmt.Sprint(n) || string(loaded.Scoped["user"]["n"]) != fmt.Sprint(n)) {
				f.Errorf("version %d with the state %s and the scoped state %s", n+1, loaded.Head.State["n"], loaded.Scoped["user"]["n"])
			}
		}
	})
}
