package sessiontest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/turnpool/turnpool/session"
)

var readTests = map[string]func(*fixture){
	"LoadNothing":     loadNothing,
	"LoadUpTo":        loadUpTo,
	"LoadTurn":        loadTurn,
	"Create":          createHead,
	"CreateBad":       createBad,
	"NotFound":        readNotFound,
	"EventsPages":     eventsPages,
	"EventsOdd":       eventsOdd,
	"SessionsPages":   sessionsPages,
	"SessionsCreated": sessionsByCreation,
	"TurnsPages":      turnsPages,
	"TurnsOfSession":  turnsOfSession,
	"OwnCopies":       ownCopies,
	"KeepsNoInput":    keepsNoInput,
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// sessions lists the newest.
func (f *fixture) sessions(limit int) []*session.Head {
	f.Helper()
	heads, err := f.store.Sessions(f.ctx, session.PageQuery{Tenant: tenant, Limit: limit})
	if err != nil {
		f.Fatalf("Sessions: %v", err)
	}
	return heads
}

func loadNothing(f *fixture) {
	loaded, err := f.store.Load(f.ctx, session.LoadQuery{Tenant: tenant, SessionID: thread, InvocationID: "inv_1"})
	if err != nil {
		f.Fatalf("Load of nothing: %v", err)
	}
	f.same("loaded", loaded, session.Loaded{})
	if loaded.Head != nil || loaded.Head.Base() != (session.Base{}) {
		f.Fatalf("head of nothing: %+v", loaded.Head)
	}
}

func loadUpTo(f *fixture) {
	var all []session.Event
	for i := range 4 {
		s := slice(fmt.Sprintf("inv_%d", i), int64(100+i), f.base(), user("q"), sets("k", fmt.Sprint(i)), says("a"))
		f.commitAs(session.Committed, s)
		all = append(all, s.Events...)
	}
	head := f.load(thread).Head
	for upTo, want := range map[int64]int{0: 12, 1: 1, 3: 3, 4: 4, 11: 11, 12: 12, 13: 12, math.MaxInt64: 12, -1: 0, math.MinInt64: 0} {
		loaded, err := f.store.Load(f.ctx, session.LoadQuery{Tenant: tenant, SessionID: thread, UpTo: upTo})
		if err != nil {
			f.Fatalf("Load up to %d: %v", upTo, err)
		}
		f.same(fmt.Sprintf("events up to %d", upTo), loaded.Events, all[:want])
		f.same("head", loaded.Head, head) // which is at its head all the same
	}
}

func loadTurn(f *fixture) {
	out := f.commitAs(session.Committed, ask("inv_1", 100, session.Base{}))
	// The row is the invocation's, whatever session is loaded beside it.
	loaded, err := f.store.Load(f.ctx, session.LoadQuery{Tenant: tenant, SessionID: "session_other", InvocationID: "inv_1"})
	if err != nil || loaded.Head != nil || loaded.Turn == nil {
		f.Fatalf("Load: %+v %v", loaded, err)
	}
	f.same("turn", *loaded.Turn, out.Turn)
}

func createHead(f *fixture) {
	made := slice("made", 40, session.Base{}, user("hello"), sets("a", `1`), says("hi"), yields("c1"))
	head := f.create(session.NewSession{Tenant: tenant, ID: thread, Scopes: bound(), Events: made.Events, CreatedAt: 50})
	if head.ID != thread || head.Version != 1 || head.EventCount != 4 || head.LastUserAt != 40 || head.Epoch == "" ||
		head.CreatedAt != 50 || head.UpdatedAt != 50 {
		f.Fatalf("created head: %+v", head)
	}
	f.same("loaded head", f.wantLedger(made).Head, head)
	f.same("state", head.State, state("a", `1`))
	got, err := f.store.Head(f.ctx, tenant, thread)
	if err != nil {
		f.Fatal(err)
	}
	f.same("head", got, head)
	if _, err := f.store.Create(f.ctx, session.NewSession{Tenant: tenant, ID: thread}); !isExists(err) {
		f.Fatalf("second Create: %v", err)
	}
	f.same("head after a second Create", f.wantLedger(made).Head, head)
	next := ask("inv_1", 100, head.Base())
	f.commitAs(session.Committed, next)
	f.wantLedger(made, next)
}

func createBad(f *fixture) {
	for name, n := range map[string]session.NewSession{
		"no id":      {Tenant: tenant},
		"no tenant":  {ID: thread},
		"nil event":  {Tenant: tenant, ID: thread, Events: []session.Event{nil}},
		"bad event":  {Tenant: tenant, ID: thread, Events: []session.Event{badEvent("nonsense")}},
		"bad scoped": {Tenant: tenant, ID: thread, Scoped: []session.ScopedWrite{writes("a", `nonsense`)}},
	} {
		if head, err := f.store.Create(f.ctx, n); err == nil {
			f.Errorf("%s: created %+v", name, head)
		}
	}
	if got := f.sessions(10); len(got) != 0 {
		f.Fatalf("sessions: %+v", got)
	}
}

func readNotFound(f *fixture) {
	if _, err := f.store.Head(f.ctx, tenant, thread); !isNotFound(err) {
		f.Errorf("Head: %v", err)
	}
	if _, err := f.store.Events(f.ctx, session.EventsQuery{Tenant: tenant, SessionID: thread, After: -1, Limit: 1}); !isNotFound(err) {
		f.Errorf("Events: %v", err)
	}
	if _, err := f.store.Turn(f.ctx, tenant, "inv_1"); !isNotFound(err) {
		f.Errorf("Turn: %v", err)
	}
	if turns, err := f.store.Turns(f.ctx, thread, session.PageQuery{Tenant: tenant, Limit: 1}); err != nil || len(turns) != 0 {
		f.Errorf("Turns: %v %v", turns, err)
	}
	if got := f.sessions(10); len(got) != 0 {
		f.Errorf("Sessions: %v", got)
	}
}

// pages walks a ledger from one end to the other.
func (f *fixture) pages(limit int, desc bool) []session.IndexedEvent {
	f.Helper()
	var all []session.IndexedEvent
	for after := int64(-1); ; {
		page, err := f.store.Events(f.ctx, session.EventsQuery{
			Tenant: tenant, SessionID: thread, After: after, Limit: limit, Desc: desc,
		})
		if err != nil {
			f.Fatalf("Events after %d: %v", after, err)
		}
		if len(page) == 0 {
			return all
		}
		if len(page) > limit {
			f.Fatalf("a page of %d with the limit %d", len(page), limit)
		}
		all = append(all, page...)
		after = page[len(page)-1].Index
	}
}

func eventsPages(f *fixture) {
	var want []session.IndexedEvent
	for i, n := range []int{1, 3, 0, 2, 5} { // slices of many sizes
		s := slice(fmt.Sprintf("inv_%d", i), int64(100+i), f.base())
		for j := range n {
			s.Events = append(s.Events, slice("inv", 1, session.Base{}, says(fmt.Sprint(j))).Events...)
			want = append(want, session.IndexedEvent{Index: int64(len(want)), Event: s.Events[j]})
		}
		f.commitAs(session.Committed, s)
	}
	for limit := 1; limit <= len(want)+1; limit++ {
		f.same(fmt.Sprintf("pages of %d", limit), f.pages(limit, false), want)
	}
	slices.Reverse(want)
	for limit := 1; limit <= len(want)+1; limit++ {
		f.same(fmt.Sprintf("pages of %d, newest first", limit), f.pages(limit, true), want)
	}
}

func eventsOdd(f *fixture) {
	f.create(session.NewSession{Tenant: tenant, ID: thread})
	if page := f.pages(10, false); len(page) != 0 {
		f.Fatalf("events of an empty ledger: %v", page)
	}
	s := ask("inv_1", 100, f.base())
	f.commitAs(session.Committed, s)
	for _, c := range []struct {
		after int64
		limit int
		desc  bool
		want  []int
	}{
		{-1, 0, false, nil},
		{-1, -5, false, nil},
		{-1, -5, true, nil},
		{-1, math.MaxInt, false, []int{0, 1}},
		{-1, math.MaxInt, true, []int{1, 0}},
		{math.MinInt64, 1, false, []int{0}},
		{math.MinInt64, 1, true, []int{1}},
		{1, 5, false, nil},
		{math.MaxInt64, 5, false, nil},
		{0, 5, true, nil},
		{math.MaxInt64, 5, true, []int{1, 0}},
	} {
		page, err := f.store.Events(f.ctx, session.EventsQuery{
			Tenant: tenant, SessionID: thread, After: c.after, Limit: c.limit, Desc: c.desc,
		})
		if err != nil {
			f.Fatalf("%+v: %v", c, err)
		}
		var got []int
		for _, e := range page {
			got = append(got, int(e.Index))
		}
		f.same(fmt.Sprintf("page %+v", c), got, c.want)
	}
}

// listed is an entry of a list: when it was made, and its id.
type listed struct {
	At int64
	ID string
}

// newestFirst is the order of lists. Equal times are told apart by the bytes of
// the ids, whatever the database's language.
func newestFirst(list []listed) []listed {
	slices.SortFunc(list, func(a, b listed) int { return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(b.ID, a.ID)) })
	return list
}

// walk goes through a list in pages.
func (f *fixture) walk(limit int, page func(session.PageQuery) ([]listed, error)) []listed {
	f.Helper()
	var all []listed
	q := session.PageQuery{Tenant: tenant, Limit: limit}
	for {
		got, err := page(q)
		if err != nil {
			f.Fatalf("page after (%d, %s): %v", q.At, q.ID, err)
		}
		if len(got) == 0 {
			return all
		}
		if len(got) > limit {
			f.Fatalf("a page of %d with the limit %d", len(got), limit)
		}
		all = append(all, got...)
		last := got[len(got)-1]
		q.At, q.ID = last.At, last.ID
	}
}

var oddNames = []string{"b", "B", "a", "A", "ä", "10", "9", "_", "-", "Z", "z", "aa"}

func sessionsPages(f *fixture) {
	var want []listed
	for i, name := range oddNames {
		entry := listed{int64(100 + i%3), "session_" + name}
		f.create(session.NewSession{Tenant: tenant, ID: entry.ID, CreatedAt: entry.At})
		want = append(want, entry)
	}
	newestFirst(want)
	for _, limit := range []int{1, 2, 5, len(want), 100} {
		f.same(fmt.Sprintf("pages of %d", limit), f.walk(limit, func(q session.PageQuery) ([]listed, error) {
			heads, err := f.store.Sessions(f.ctx, q)
			var out []listed
			for _, h := range heads {
				out = append(out, listed{h.CreatedAt, h.ID})
			}
			return out, err
		}), want)
	}
	for _, limit := range []int{0, -1} {
		if heads := f.sessions(limit); len(heads) != 0 {
			f.Fatalf("limit %d gave %d sessions", limit, len(heads))
		}
	}
}

// Commits do not move a session in the list, and its head is all there.
func sessionsByCreation(f *fixture) {
	f.create(session.NewSession{Tenant: tenant, ID: "session_old", CreatedAt: 10})
	f.create(session.NewSession{Tenant: tenant, ID: thread, CreatedAt: 20})
	s := rich("inv_1", 900, f.load("session_old").Head.Base())
	s.Turn.SessionID = "session_old"
	f.commitAs(session.Committed, s)
	f.same("sessions", f.sessions(10), []*session.Head{f.load(thread).Head, f.load("session_old").Head})
	f.delete(thread, 950)
	f.same("sessions", f.sessions(10), []*session.Head{f.load("session_old").Head})
}

func turnsPages(f *fixture) {
	var want []listed
	var batch []*session.Slice
	for i, name := range oddNames {
		entry := listed{int64(100 + i%3), "inv_" + name}
		s := ask(entry.ID, entry.At, session.Base{})
		if i%4 == 0 {
			s.Turn.Status = session.StatusError
		}
		batch = append(batch, s)
		want = append(want, entry)
	}
	for _, out := range f.settle(batch...) {
		if out.Err != nil {
			f.Fatal(out.Err)
		}
	}
	f.claim(attempt("inv_claimed", 2, 1), 0)
	want = newestFirst(append(want, listed{100, "inv_claimed"}))
	for _, limit := range []int{1, 2, 5, len(want), 100} {
		f.same(fmt.Sprintf("pages of %d", limit), f.walk(limit, func(q session.PageQuery) ([]listed, error) {
			turns, err := f.store.Turns(f.ctx, thread, q)
			var out []listed
			for _, t := range turns {
				out = append(out, listed{t.CreatedAt, t.InvocationID})
			}
			return out, err
		}), want)
	}
	if turns, err := f.store.Turns(f.ctx, thread, session.PageQuery{Tenant: tenant, Limit: -1}); err != nil || len(turns) != 0 {
		f.Fatalf("limit -1: %v %v", turns, err)
	}
}

func turnsOfSession(f *fixture) {
	mine := f.commitAs(session.Committed, rich("inv_1", 100, session.Base{}))
	other := ask("inv_2", 200, session.Base{})
	other.Turn.SessionID = thread + "2"
	f.commitAs(session.Committed, other)
	turns, err := f.store.Turns(f.ctx, thread, session.PageQuery{Tenant: tenant, Limit: 10})
	if err != nil {
		f.Fatal(err)
	}
	f.same("turns", turns, []*session.Turn{&mine.Turn})
	f.delete(thread, 300) // the rows outlive the session
	if turns, err = f.store.Turns(f.ctx, thread, session.PageQuery{Tenant: tenant, Limit: 10}); err != nil || len(turns) != 1 {
		f.Fatalf("turns of a deleted session: %v %v", turns, err)
	}
}

// What a store gives away is the caller's: changing it changes nothing.
func ownCopies(f *fixture) {
	s := rich("inv_1", 100, session.Base{})
	s.Events = append(s.Events, slice("inv_1", 100, session.Base{}, yields("c1")).Events...)
	out := f.commitAs(session.Committed, s)
	want, row := f.load(thread), *f.row("inv_1")
	spoil := func(h *session.Head, t *session.Turn) {
		h.State["spoilt"], h.Scopes["spoilt"] = []byte(`1`), "1"
		h.Usage.AddCall("spoilt", nil)
		h.Usage.Models[0].Calls, h.Pending[0].CallID, h.Version = 99, "spoilt", 99
		t.Result[0], t.Usage.Models[0].Calls, t.Status = 'X', 99, "spoilt"
	}
	spoil(out.Head, &out.Turn)
	loaded := f.load(thread)
	spoil(loaded.Head, f.row("inv_1"))
	loaded.Scoped["user"]["spoilt"] = []byte(`1`)
	loaded.Events[0].(*session.User).Text = "spoilt"
	head, err := f.store.Head(f.ctx, tenant, thread)
	if err != nil {
		f.Fatal(err)
	}
	turns, err := f.store.Turns(f.ctx, thread, session.PageQuery{Tenant: tenant, Limit: 1})
	if err != nil {
		f.Fatal(err)
	}
	spoil(head, turns[0])
	turn, err := f.store.Turn(f.ctx, tenant, "inv_1")
	if err != nil {
		f.Fatal(err)
	}
	spoil(f.sessions(1)[0], turn)
	again := f.commit(s)
	spoil(again.Head, &again.Turn)
	f.same("session", f.load(thread), want)
	f.same("row", *f.row("inv_1"), row)
}

// What a store was given stays the caller's: changing it later changes nothing.
func keepsNoInput(f *fixture) {
	s := rich("inv_1", 100, session.Base{})
	f.commitAs(session.Committed, s)
	want, row := f.load(thread), *f.row("inv_1")
	s.Events[0].(*session.User).Text = "spoilt"
	s.Scopes["spoilt"] = "1"
	s.Scoped[0].Key = "spoilt"
	s.Turn.Usage.AddCall("spoilt", nil)
	s.Turn.Usage.Models[0].Calls = 99
	f.same("session", f.load(thread), want)
	f.same("row", *f.row("inv_1"), row)

	scopes := bound()
	n := session.NewSession{Tenant: tenant, ID: "session_made", Scopes: scopes, Events: []session.Event{says("hi")}}
	f.create(n)
	made := f.load("session_made")
	scopes["spoilt"] = "1"
	n.Events[0].(*session.Assistant).Text = "spoilt"
	f.same("created session", f.load("session_made"), made)

	turn := attempt("inv_2", 1, 0)
	turn.Usage = usage(1)
	claimed, _ := f.claim(turn, 0)
	turn.Usage.Models[0].Calls = 99
	claimed.Usage.Models[0].Calls = 98
	f.same("usage of a claim", f.row("inv_2").Usage, usage(1))
}
