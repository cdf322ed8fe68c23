package sessiontest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/turnpool/turnpool/session"
)

var batchTests = map[string]func(*fixture){
	"OneAfterAnother": batchInOrder,
	"ManySessions":    batchManySessions,
	"AllBad":          batchAllBad,
	"Mixed":           batchMixed,
	"BadRaw":          badSlice(func(s *session.Slice) { s.Events = append(s.Events, badEvent(`{"a":`)) }),
	"NotUTF8NorJSON":  badSlice(func(s *session.Slice) { s.Events = append(s.Events, badEvent("\xff")) }),
	"EmptyUnknown":    badSlice(func(s *session.Slice) { s.Events = append(s.Events, &session.Unknown{TypeName: "new"}) }),
	"TypelessUnknown": badSlice(func(s *session.Slice) { s.Events = append(s.Events, &session.Unknown{Raw: []byte(`{}`)}) }),
	"NilEvent":        badSlice(func(s *session.Slice) { s.Events = append(s.Events, nil) }),
	"NilPointer":      badSlice(func(s *session.Slice) { s.Events = append(s.Events, (*session.User)(nil)) }),
	"NilInitial":      badSlice(func(s *session.Slice) { s.Initial = append(s.Initial, nil) }),
	"BadScoped":       badSlice(func(s *session.Slice) { s.Scoped = append(s.Scoped, writes("k", `nonsense`)) }),
	"NoInvocation":    badSlice(func(s *session.Slice) { s.Turn.InvocationID = "" }),
	"NoOutcome":       badSlice(func(s *session.Slice) { s.Turn.Status = session.StatusRunning }),
	"BadResult": badSlice(func(s *session.Slice) {
		s.Result = func(session.Outcome) (json.RawMessage, error) { return nil, errors.New("no result") }
	}),
	"TooDeep": badSlice(func(s *session.Slice) {
		s.Events = append(s.Events, badEvent(strings.Repeat("[", 9_999)+strings.Repeat("]", 9_999)))
	}),
}

func badEvent(raw string) session.Event {
	return &session.Assistant{Text: "bad", Output: json.RawMessage(raw)}
}

func batchInOrder(f *fixture) {
	a, b, c := ask("inv_a", 100, session.Base{}), ask("inv_b", 100, session.Base{}), ask("inv_c", 90, session.Base{})
	outs := f.settle(a, b, c)
	for i, want := range []session.CommitStatus{session.Committed, session.Merged, session.Skipped} {
		if outs[i].Turn.CommitStatus != want || outs[i].Err != nil {
			f.Fatalf("outcome %d: %s, want %s", i, describe(outs[i]), want)
		}
		f.wantRow(outs[i])
	}
	if outs[0].Head.Version != 1 || outs[1].Head.Version != 2 || outs[1].FirstIndex != 2 {
		f.Fatalf("heads: %+v, %+v", outs[0].Head, outs[1].Head)
	}
	f.wantLedger(a, b)
}

func batchManySessions(f *fixture) {
	var slices []*session.Slice
	for i := range 120 {
		s := rich(fmt.Sprintf("inv_%03d", i), int64(100+i), session.Base{})
		s.Turn.SessionID = fmt.Sprintf("session_%02d", i*7%40)
		slices = append(slices, s)
	}
	for i, out := range f.settle(slices...) {
		if out.Err != nil || out.Head.ID != slices[i].Turn.SessionID || out.Turn.InvocationID != slices[i].Turn.InvocationID {
			f.Fatalf("outcome %d: %s", i, describe(out))
		}
	}
	for i := range 40 {
		loaded := f.load(fmt.Sprintf("session_%02d", i))
		if loaded.Head.Version != 3 || loaded.Head.EventCount != 9 {
			f.Fatalf("head of session %d: %+v", i, loaded.Head)
		}
		f.wantFolded(loaded)
		f.same("usage", loaded.Head.Usage, usage(3))
	}
}

// badSlice puts one bad slice among 300, all of which but that one are written.
func badSlice(spoil func(*session.Slice)) func(*fixture) {
	return func(f *fixture) {
		const n, badAt, sessions = 300, 137, 20
		slices := make([]*session.Slice, n)
		for i := range slices {
			slices[i] = rich(fmt.Sprintf("inv_%03d", i), int64(100+i), session.Base{})
			slices[i].Scoped[0].ScopeID = fmt.Sprintf("u%03d", i)
			slices[i].Turn.SessionID = fmt.Sprintf("session_%02d", i%sessions)
		}
		bad := slices[badAt]
		invocation := bad.Turn.InvocationID
		spoil(bad)
		for i, out := range f.settle(slices...) {
			if (out.Err != nil) != (i == badAt) {
				f.Fatalf("outcome %d: %s", i, describe(out))
			}
		}
		if row := f.row(invocation); row != nil {
			f.Fatalf("the bad slice left a row: %+v", row)
		}
		if left := f.scopedState("user", bad.Scoped[0].ScopeID); len(left) != 0 {
			f.Fatalf("the bad slice left scoped state: %v", left)
		}
		f.wantWhole(slices, badAt, sessions)
	}
}

// wantWhole demands that each session has its slices but the bad one, in order.
func (f *fixture) wantWhole(slices []*session.Slice, badAt, sessions int) {
	f.Helper()
	for at := range sessions {
		var want []string
		commits := 0
		for i := at; i < len(slices); i += sessions {
			if i != badAt {
				want = append(want, ids(slices[i].Events)...)
				commits++
			}
		}
		loaded := f.load(fmt.Sprintf("session_%02d", at))
		f.same("ledger", ids(loaded.Events), want)
		f.wantFolded(loaded)
		if loaded.Head.Version != int64(commits) {
			f.Fatalf("session %d has version %d after %d commits", at, loaded.Head.Version, commits)
		}
	}
}

func batchAllBad(f *fixture) {
	bad := func(invocation string) *session.Slice {
		s := ask(invocation, 100, session.Base{})
		s.Events = append(s.Events, nil)
		return s
	}
	for i, out := range f.settle(bad("inv_1"), bad("inv_2")) {
		if out.Err == nil || out.Turn.InvocationID == "" {
			f.Fatalf("outcome %d: %s", i, describe(out))
		}
	}
	if f.load(thread).Head != nil {
		f.Fatal("bad slices created a session")
	}
	// A bad slice is not an outcome: the same turn can still commit.
	s := ask("inv_1", 100, session.Base{})
	f.commitAs(session.Committed, s)
	f.wantLedger(s)
}

// One commit with one of each kind of outcome.
func batchMixed(f *fixture) {
	first, loaded := started(f)
	f.claim(attempt("inv_fenced", 2, 1), 0)
	good, older := ask("inv_good", 300, loaded), ask("inv_older", 200, loaded)
	refused := ask("inv_refused", 400, loaded)
	refused.Policy = session.Refuse
	bad := ask("inv_bad", 400, loaded)
	bad.Events = []session.Event{badEvent("nonsense")}
	merged := ask("inv_merged", 500, loaded)
	elsewhere := ask("inv_elsewhere", 100, session.Base{Epoch: "gone", Version: 1})
	elsewhere.Turn.SessionID = thread + "2"
	outs := f.settle(good, older, ask("inv_fenced", 400, loaded), refused, bad, merged, good, cancels("inv_cancel", 1), elsewhere)
	want := []string{"committed", "skipped", "fenced", "conflict", "error", "merged", "repeat", "", "orphaned"}
	for i, out := range outs {
		if got := kind(out); got != want[i] {
			f.Errorf("outcome %d is %q, want %q: %s", i, got, want[i], describe(out))
		}
	}
	f.wantLedger(first, good, merged)
}

func kind(o session.Outcome) string {
	switch {
	case o.Err != nil:
		return "error"
	case o.Repeat:
		return "repeat"
	case o.Conflict:
		return "conflict"
	case o.Fenced:
		return "fenced"
	default:
		return string(o.Turn.CommitStatus)
	}
}
