package sessiontest

import (
	"encoding/json"
	"fmt"

	"github.com/turnpool/turnpool/session"
)

var commitTests = map[string]func(*fixture){
	"Plain":               commitPlain,
	"NoEvents":            commitNoEvents,
	"Nothing":             commitNothing,
	"Row":                 commitRow,
	"Merged":              commitMerged,
	"Skipped":             commitSkipped,
	"EqualTimesMerge":     commitEqualTimes,
	"OlderMessageMerges":  commitOlderMessage,
	"NewestMessageCounts": commitNewestMessage,
	"NoMessage":           commitNoMessage,
	"Refused":             commitRefused,
	"MergePolicy":         commitMergePolicy,
	"Statuses":            commitStatuses,
	"Failed":              commitFailed,
	"Usage":               commitUsage,
	"ResultFunc":          commitResultFunc,
	"StaleFields":         commitStaleFields,
	"State":               commitState,
}

func commitPlain(f *fixture) {
	first := ask("inv_1", 100, session.Base{})
	out := f.commitAs(session.Committed, first)
	if out.Turn.Version != 1 || out.Head.Version != 1 || out.Head.EventCount != 2 || out.FirstIndex != 0 {
		f.Fatalf("first commit: %s, head %+v", describe(out), out.Head)
	}
	if out.Head.ID != thread || out.Head.Epoch == "" || out.Head.CreatedAt != 102 || out.Head.LastUserAt != 100 {
		f.Fatalf("new session's head: %+v", out.Head)
	}
	f.same("head", f.load(thread).Head, out.Head)

	second := ask("inv_2", 200, out.Head.Base())
	next := f.commitAs(session.Committed, second)
	if next.Turn.Version != 2 || next.FirstIndex != 2 || next.Head.Epoch != out.Head.Epoch {
		f.Fatalf("second commit: %s, first index %d, head %+v", describe(next), next.FirstIndex, next.Head)
	}
	if next.Head.CreatedAt != 102 || next.Head.UpdatedAt != 202 {
		f.Fatalf("times after the second commit: %+v", next.Head)
	}
	loaded := f.wantLedger(first, second)
	f.same("events", loaded.Events, append(first.Events, second.Events...))
}

// A turn with nothing to say is a commit like any other.
func commitNoEvents(f *fixture) {
	f.commitAs(session.Committed, slice("inv_1", 100, session.Base{}))
	out := f.commitAs(session.Committed, slice("inv_2", 200, f.base()))
	if out.Head.Version != 2 || out.Head.EventCount != 0 {
		f.Fatalf("head after two commits without events: %+v", out.Head)
	}
	last := ask("inv_3", 300, f.base())
	if out := f.commitAs(session.Committed, last); out.FirstIndex != 0 {
		f.Fatalf("first event has index %d", out.FirstIndex)
	}
	f.wantLedger(last)
}

func commitNothing(f *fixture) {
	if out := f.settle(); len(out) != 0 {
		f.Fatalf("commit of no slices gave %d outcomes", len(out))
	}
}

func commitRow(f *fixture) {
	s := ask("inv_1", 100, session.Base{})
	s.Turn.Lane, s.Turn.Attempt, s.Turn.Failures, s.Turn.Usage = "batch", 3, 2, usage(2)
	out := f.commitAs(session.Committed, s)
	want := s.Turn
	want.CommitStatus, want.Version = session.Committed, 1
	want.Result = json.RawMessage(`{"invocationId":"inv_1","status":"completed","commitStatus":"committed","version":1,"tooLate":false,"eventCount":2}`)
	f.same("outcome's turn", out.Turn, want)
	f.wantRow(out)
	f.same("turn beside the session", *f.row("inv_1"), want)
	if f.row("inv_2") != nil {
		f.Fatal("a turn that nobody committed has a row")
	}
}

// started is a thread with one turn in it, and what a second turn that loaded
// it then commits against after a third has moved it on.
func started(f *fixture) (first *session.Slice, loaded session.Base) {
	first = ask("inv_first", 100, session.Base{})
	return first, f.commitAs(session.Committed, first).Head.Base()
}

func commitMerged(f *fixture) {
	first, loaded := started(f)
	winner, later := ask("inv_winner", 200, loaded), ask("inv_later", 300, loaded)
	f.commitAs(session.Committed, winner)
	out := f.commitAs(session.Merged, later)
	if out.Turn.Version != 3 || out.Head.Version != 3 || out.FirstIndex != 4 {
		f.Fatalf("merge: %s, first index %d", describe(out), out.FirstIndex)
	}
	f.wantLedger(first, winner, later)
	f.wantRow(out)
}

func commitSkipped(f *fixture) {
	first, loaded := started(f)
	winner, late := ask("inv_winner", 300, loaded), ask("inv_late", 200, loaded)
	late.Events = append(late.Events, slice("inv_late", 200, loaded, sets("mood", `"late"`)).Events...)
	late.Scoped = []session.ScopedWrite{writes("seen", `true`)}
	late.Turn.Usage = usage(1)
	won := f.commitAs(session.Committed, winner)
	out := f.commitAs(session.Skipped, late)
	if out.Turn.Version != 0 || out.Turn.Status != session.StatusCompleted {
		f.Fatalf("skipped: %s", describe(out))
	}
	f.same("head beside a skipped slice", out.Head, won.Head)
	f.same("head", f.wantLedger(first, winner).Head, won.Head)
	f.wantRow(out)
	if len(f.scopedState("user", "u1")) != 0 {
		f.Fatal("a skipped slice left a scoped write")
	}
}

func commitEqualTimes(f *fixture) {
	first, loaded := started(f)
	a, b := ask("inv_a", 200, loaded), ask("inv_b", 200, loaded)
	f.commitAs(session.Committed, a)
	f.commitAs(session.Merged, b)
	f.wantLedger(first, a, b)
}

// A message that is older than the turn's own is no reason to drop the turn.
func commitOlderMessage(f *fixture) {
	first, loaded := started(f)
	a, b := ask("inv_a", 200, loaded), ask("inv_b", 201, loaded)
	f.commitAs(session.Committed, a)
	f.commitAs(session.Merged, b)
	f.wantLedger(first, a, b)
}

func commitNewestMessage(f *fixture) {
	first, loaded := started(f)
	winner := slice("inv_winner", 200, loaded, userAt(250, "new"), userAt(150, "old"))
	two := slice("inv_two", 120, loaded, userAt(260, "newer than all"), userAt(120, "old"))
	f.commitAs(session.Committed, winner)
	f.commitAs(session.Merged, two)
	// What had landed before the turn loaded the session counts too: it is in the
	// row and newer.
	base := f.base()
	f.commitAs(session.Committed, slice("inv_quiet", 300, base, says("no message here")))
	f.commitAs(session.Skipped, slice("inv_old", 130, base, userAt(130, "older than 260")))
	got := f.load(thread)
	f.same("ledger", len(got.Events), len(first.Events)+5)
	f.same("newest message", got.Head.LastUserAt, int64(260))
}

func commitNoMessage(f *fixture) {
	first, loaded := started(f)
	winner, quiet := ask("inv_winner", 900, loaded), slice("inv_quiet", 200, loaded, says("an answer to a tool"))
	f.commitAs(session.Committed, winner)
	f.commitAs(session.Merged, quiet)
	f.wantLedger(first, winner, quiet)
}

func commitRefused(f *fixture) {
	first, loaded := started(f)
	winner := ask("inv_winner", 200, loaded)
	won := f.commitAs(session.Committed, winner)
	late := ask("inv_late", 300, loaded)
	late.Policy = session.Refuse
	late.Scoped = []session.ScopedWrite{writes("seen", `true`)}
	late.Result = func(session.Outcome) (json.RawMessage, error) {
		f.Error("the result of a refused slice was asked for")
		return nil, nil
	}
	out := f.commit(late)
	if !out.Conflict || out.Turn.CommitStatus != session.CommitNone || out.Head.Base() != won.Head.Base() {
		f.Fatalf("refused: %s, head %+v", describe(out), out.Head)
	}
	f.same("head", f.wantLedger(first, winner).Head, won.Head)
	if f.row("inv_late") != nil || len(f.scopedState("user", "u1")) != 0 {
		f.Fatal("a refused slice left something")
	}
	again := ask("inv_late", 300, out.Head.Base())
	again.Policy = session.Refuse
	f.commitAs(session.Committed, again)
	f.wantLedger(first, winner, again)
}

// Merge appends whatever has landed.
func commitMergePolicy(f *fixture) {
	first, loaded := started(f)
	winner, late := ask("inv_winner", 900, loaded), ask("inv_late", 200, loaded)
	late.Policy = session.Merge
	f.commitAs(session.Committed, winner)
	f.commitAs(session.Merged, late)
	f.wantLedger(first, winner, late)
}

func commitStatuses(f *fixture) {
	var all []*session.Slice
	for i, status := range []session.Status{
		session.StatusCompleted, session.StatusYieldedTool, session.StatusMaxSteps, session.StatusMaxDuration,
	} {
		s := ask(fmt.Sprintf("inv_%d", i), int64(100+i), f.base())
		s.Turn.Status = status
		out := f.commitAs(session.Committed, s)
		if out.Turn.Status != status {
			f.Fatalf("status %q became %q", status, out.Turn.Status)
		}
		all = append(all, s)
	}
	f.wantLedger(all...)
}

// A turn that failed or was aborted leaves its row, and nothing else: not even
// the session it would have created.
func commitFailed(f *fixture) {
	for _, status := range []session.Status{session.StatusError, session.StatusAborted} {
		s := ask("inv_new_"+string(status), 100, session.Base{})
		s.Turn.Status, s.Turn.Usage = status, usage(1)
		s.Scoped = []session.ScopedWrite{writes("seen", `true`)}
		out := f.commitAs(session.CommitNone, s)
		if out.Turn.Status != status || out.Turn.Version != 0 || out.Head != nil {
			f.Fatalf("%s turn of no session: %s", status, describe(out))
		}
		f.wantRow(out)
	}
	if f.load(thread).Head != nil {
		f.Fatal("a failed turn created a session")
	}
	first, loaded := started(f)
	for _, status := range []session.Status{session.StatusError, session.StatusAborted} {
		s := ask("inv_"+string(status), 200, loaded)
		s.Turn.Status = status
		f.wantRow(f.commitAs(session.CommitNone, s))
	}
	got := f.wantLedger(first)
	if got.Head.Base() != loaded || len(f.scopedState("user", "u1")) != 0 {
		f.Fatalf("failed turns moved the session: %+v", got.Head)
	}
}

func commitUsage(f *fixture) {
	one, two, three := ask("inv_1", 100, session.Base{}), ask("inv_2", 200, session.Base{}), ask("inv_3", 50, session.Base{})
	one.Turn.Usage, two.Turn.Usage, three.Turn.Usage = usage(1), usage(2), usage(4)
	two.Turn.Usage.AddCall("model-b", nil)
	f.commitAs(session.Committed, one)
	f.commitAs(session.Merged, two)
	f.commitAs(session.Skipped, three)
	want := usage(3)
	want.AddCall("model-b", nil)
	f.same("session's usage", f.load(thread).Head.Usage, want)
	f.same("skipped turn's usage", f.row("inv_3").Usage, usage(4))
}

// The result is made from the final outcome, once, and read back byte by byte.
func commitResultFunc(f *fixture) {
	_, loaded := started(f)
	seen := map[string]int{}
	watched := func(s *session.Slice) *session.Slice {
		s.Result = func(o session.Outcome) (json.RawMessage, error) {
			seen[o.Turn.InvocationID]++
			return json.RawMessage(fmt.Sprintf(`{ "status":%q,"commit":%q, "version":%d,"head":%d, "first":%d,"a<b":"é" }`,
				o.Turn.Status, o.Turn.CommitStatus, o.Turn.Version, o.Head.Base().Version, o.FirstIndex)), nil
		}
		return s
	}
	failed := ask("inv_failed", 400, loaded)
	failed.Turn.Status = session.StatusError
	silent := ask("inv_silent", 500, loaded)
	silent.Result = nil
	outs := f.settle(watched(ask("inv_a", 300, loaded)), watched(ask("inv_b", 300, loaded)),
		watched(ask("inv_c", 200, loaded)), watched(failed), silent)
	want := []string{
		`{ "status":"completed","commit":"committed", "version":2,"head":2, "first":2,"a<b":"é" }`,
		`{ "status":"completed","commit":"merged", "version":3,"head":3, "first":4,"a<b":"é" }`,
		`{ "status":"completed","commit":"skipped", "version":0,"head":3, "first":0,"a<b":"é" }`,
		`{ "status":"error","commit":"", "version":0,"head":3, "first":0,"a<b":"é" }`,
		``,
	}
	for i, out := range outs {
		got, err := f.store.Turn(f.ctx, tenant, out.Turn.InvocationID)
		if err != nil {
			f.Fatalf("Turn %s: %v", out.Turn.InvocationID, err)
		}
		if string(got.Result) != want[i] || string(out.Turn.Result) != want[i] {
			f.Errorf("result of %s:\n got %s\nsaid %s\nwant %s", got.InvocationID, got.Result, out.Turn.Result, want[i])
		}
	}
	f.same("calls of the result functions", seen, map[string]int{"inv_a": 1, "inv_b": 1, "inv_c": 1, "inv_failed": 1})
}

// What the store fills in is the store's to say.
func commitStaleFields(f *fixture) {
	first, loaded := started(f)
	s := ask("inv_late", 50, loaded)
	s.Turn.CommitStatus, s.Turn.Version, s.Turn.Result = session.Committed, 77, json.RawMessage(`"stale"`)
	s.Result = nil
	winner := ask("inv_winner", 200, loaded)
	f.commitAs(session.Committed, winner)
	out := f.commitAs(session.Skipped, s)
	if out.Turn.Version != 0 || out.Turn.Result != nil {
		f.Fatalf("stale fields were kept: %s, result %s", describe(out), out.Turn.Result)
	}
	f.wantRow(out)
	f.wantLedger(first, winner)
}

func commitState(f *fixture) {
	one := slice("inv_1", 100, session.Base{}, sets("a", `1`), sets("b", `{"x": [1, 2]}`), sets("c", `null`))
	two := slice("inv_2", 200, session.Base{}, sets("a", `2`), sets("b", ``), sets("d", `"<&>"`))
	shared := &session.StateChange{Scope: "user", Changes: []session.Change{{Key: "a", NewValue: json.RawMessage(`9`)}}}
	f.commitAs(session.Committed, one)
	f.commitAs(session.Merged, two)
	f.commitAs(session.Committed, slice("inv_3", 300, f.base(), shared))
	f.same("state", f.load(thread).Head.State, session.State{
		"a": json.RawMessage(`2`), "c": json.RawMessage(`null`), "d": json.RawMessage(`"<&>"`),
	})
	f.wantFolded(f.load(thread))
}
