package sessiontest

import (
	"fmt"

	"github.com/turnpool/turnpool/session"
)

var scopedTests = map[string]func(*fixture){
	"WithCommit":      scopedWithCommit,
	"ByCreate":        scopedByCreate,
	"SharedByBinding": scopedShared,
	"NewSession":      scopedNewSession,
	"Deletes":         scopedDeletes,
	"OutlivesSession": scopedOutlives,
	"LastWriterWins":  scopedLastWriter,
}

func scopedWithCommit(f *fixture) {
	s := rich("inv_1", 100, session.Base{})
	s.Scoped = []session.ScopedWrite{
		writes("a", `1`), writes("b", `{"x":[1,2]}`), writes("a", `2`),
		{Scope: "org", ScopeID: "o1", Key: "a", Value: []byte(`null`)},
		{Scope: "user", ScopeID: "u2", Key: "a", Value: []byte(`"other"`)},
	}
	f.commitAs(session.Committed, s)
	f.same("scoped", f.load(thread).Scoped, map[string]session.State{
		"user": state("a", `2`, "b", `{"x":[1,2]}`), "org": state("a", `null`),
	})
	f.same("another id", f.scopedState("user", "u2"), state("a", `"other"`))
}

func scopedByCreate(f *fixture) {
	head := f.create(session.NewSession{
		Tenant: tenant, ID: thread, Scopes: bound(), CreatedAt: 50,
		Scoped: []session.ScopedWrite{writes("a", `1`)},
	})
	f.same("head", f.load(thread).Head, head)
	f.same("scoped", f.load(thread).Scoped, map[string]session.State{"user": state("a", `1`), "org": {}})
	_, err := f.store.Create(f.ctx, session.NewSession{
		Tenant: tenant, ID: thread, Scoped: []session.ScopedWrite{writes("a", `2`)},
	})
	if !isExists(err) {
		f.Fatalf("second Create: %v", err)
	}
	f.same("scoped", f.scopedState("user", "u1"), state("a", `1`))
}

func scopedShared(f *fixture) {
	f.create(session.NewSession{Tenant: tenant, ID: "session_a", Scopes: map[string]string{"user": "u1"}})
	f.create(session.NewSession{Tenant: tenant, ID: "session_b", Scopes: map[string]string{"user": "u1"}})
	f.create(session.NewSession{Tenant: tenant, ID: "session_c", Scopes: map[string]string{"user": "u2"}})
	f.create(session.NewSession{Tenant: tenant, ID: "session_d"})
	s := ask("inv_1", 100, f.load("session_a").Head.Base())
	s.Turn.SessionID, s.Scoped = "session_a", []session.ScopedWrite{writes("diet", `"vegan"`)}
	f.commitAs(session.Committed, s)
	for id, want := range map[string]map[string]session.State{
		"session_a": {"user": state("diet", `"vegan"`)},
		"session_b": {"user": state("diet", `"vegan"`)},
		"session_c": {"user": {}},
		"session_d": nil,
	} {
		f.same(id, f.load(id).Scoped, want)
	}
}

// A turn that is about to start a session reads the scopes it will be bound to.
func scopedNewSession(f *fixture) {
	f.commitAs(session.Committed, rich("inv_1", 100, session.Base{}))
	query := session.LoadQuery{Tenant: tenant, SessionID: "session_new", Scopes: bound()}
	loaded, err := f.store.Load(f.ctx, query)
	if err != nil || loaded.Head != nil {
		f.Fatalf("Load: %+v %v", loaded, err)
	}
	f.same("scoped", loaded.Scoped, map[string]session.State{"user": state("by", `"inv_1"`), "org": {}})
	// A session that exists has its own.
	query.SessionID, query.Scopes = thread, map[string]string{"user": "u2"}
	if loaded, err = f.store.Load(f.ctx, query); err != nil {
		f.Fatal(err)
	}
	f.same("scoped", loaded.Scoped, map[string]session.State{"user": state("by", `"inv_1"`), "org": {}})
}

func scopedDeletes(f *fixture) {
	s := rich("inv_1", 100, session.Base{})
	s.Scoped = []session.ScopedWrite{writes("a", `1`), writes("b", `2`)}
	f.commitAs(session.Committed, s)
	gone := rich("inv_2", 200, f.base())
	gone.Scoped = []session.ScopedWrite{writes("a", ``), {Scope: "user", ScopeID: "u1", Key: "c"}, writes("d", `3`), writes("d", ``)}
	f.commitAs(session.Committed, gone)
	f.same("scoped", f.scopedState("user", "u1"), state("b", `2`))
}

func scopedOutlives(f *fixture) {
	f.commitAs(session.Committed, rich("inv_1", 100, session.Base{}))
	f.delete(thread, 150)
	f.same("scoped", f.scopedState("user", "u1"), state("by", `"inv_1"`))
}

func scopedLastWriter(f *fixture) {
	const n = 16
	together(n, func(i int) {
		s := rich(fmt.Sprintf("inv_%d", i), 100, session.Base{})
		s.Scoped = append(s.Scoped, writes(fmt.Sprintf("k%d", i), `true`))
		if got, err := f.store.Commit(f.ctx, []*session.Slice{s}); err != nil || got[0].Err != nil {
			f.Errorf("commit %d: %v %v", i, err, got)
		}
	})
	loaded := f.load(thread)
	last := loaded.Events[len(loaded.Events)-1].Base().InvocationID
	f.same("last writer", loaded.Scoped["user"]["by"], state("by", `"`+last+`"`)["by"])
	if len(loaded.Scoped["user"]) != n+1 {
		f.Fatalf("scoped state: %v", loaded.Scoped["user"])
	}
}
