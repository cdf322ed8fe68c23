package sessiontest

import (
	"context"
	"errors"

	"github.com/turnpool/turnpool/session"
)

var lifeTests = map[string]func(*fixture){
	"Cancelled":  lifeCancelled,
	"CloseTwice": lifeCloseTwice,
	"CloseWaits": lifeCloseWaits,
	"Ping":       func(f *fixture) { f.ping() },
}

func (f *fixture) ping() {
	f.Helper()
	if err := f.store.Ping(f.ctx); err != nil {
		f.Fatalf("Ping: %v", err)
	}
}

// A call with a context that is done already does nothing and says why.
func lifeCancelled(f *fixture) {
	first, loaded := started(f)
	want := f.load(thread)
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	calls := map[string]func() error{
		"Load": func() error {
			_, err := f.store.Load(ctx, session.LoadQuery{Tenant: tenant, SessionID: thread})
			return err
		},
		"Commit": func() error {
			_, err := f.store.Commit(ctx, []*session.Slice{rich("inv_late", 200, loaded)})
			return err
		},
		"Claim": func() error { _, _, err := f.store.Claim(ctx, attempt("inv_late", 2, 0), 0); return err },
		"Create": func() error {
			_, err := f.store.Create(ctx, session.NewSession{Tenant: tenant, ID: "session_late"})
			return err
		},
		"Delete": func() error { return f.store.Delete(ctx, tenant, thread, 300) },
		"Head":   func() error { _, err := f.store.Head(ctx, tenant, thread); return err },
		"Sessions": func() error {
			_, err := f.store.Sessions(ctx, session.PageQuery{Tenant: tenant, Limit: 1})
			return err
		},
		"Events": func() error {
			_, err := f.store.Events(ctx, session.EventsQuery{Tenant: tenant, SessionID: thread, After: -1, Limit: 1})
			return err
		},
		"Turn": func() error { _, err := f.store.Turn(ctx, tenant, "inv_first"); return err },
		"Turns": func() error {
			_, err := f.store.Turns(ctx, thread, session.PageQuery{Tenant: tenant, Limit: 1})
			return err
		},
		"Ping": func() error { return f.store.Ping(ctx) },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, context.Canceled) {
			f.Errorf("%s with a cancelled context: %v", name, err)
		}
	}
	f.same("session", f.wantLedger(first), want)
	if got := f.sessions(10); len(got) != 1 || f.row("inv_late") != nil {
		f.Fatalf("a cancelled call wrote something: %+v", got)
	}
	f.ping()
}

func lifeCloseTwice(f *fixture) {
	f.commitAs(session.Committed, ask("inv_1", 100, session.Base{}))
	for range 2 {
		if err := f.store.Close(); err != nil {
			f.Fatalf("Close: %v", err)
		}
	}
}

// Close waits for the calls under way: each has its answer, which is an error if
// it came too late.
func lifeCloseWaits(f *fixture) {
	const n = 8
	together(n, func(i int) {
		if i == n/2 {
			if err := f.store.Close(); err != nil {
				f.Errorf("Close: %v", err)
			}
			return
		}
		s := ask("inv_"+string(rune('a'+i)), 100, session.Base{})
		if got, err := f.store.Commit(f.ctx, []*session.Slice{s}); err == nil && got[0].Err != nil {
			f.Errorf("commit beside Close: %s", describe(got[0]))
		}
		f.store.Head(f.ctx, tenant, thread)
	})
}
