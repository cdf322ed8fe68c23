// Package sessiontest is the suite that every [session.Store] passes. A store's
// own tests call [Run] with a function that opens an empty store.
//
// The suite looks at stores through their interface alone. It never sleeps and
// never measures time: what must happen at once is held back by a gate and then
// let go, and what must hold holds under every order. [Model] drives a store
// through random histories and compares it, step by step, with a model that
// knows nothing but the sentences of the rule.
package sessiontest

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/turnpool/turnpool/session"
)

// guard is how long a test may take before the process is stopped with all its
// stacks. A store that hangs must not hide among those that are slow.
const guard = 5 * time.Minute

// Run runs the suite. open returns an empty store, and closes it in a cleanup of
// its own; the tests run in parallel, each on a store of its own.
func Run(t *testing.T, open func(t *testing.T) session.Store) {
	for _, group := range []struct {
		name  string
		tests map[string]func(*fixture)
	}{
		{"Commit", commitTests},
		{"First", firstTests},
		{"Orphaned", orphanTests},
		{"Once", onceTests},
		{"Claim", claimTests},
		{"Batch", batchTests},
		{"Answers", answerTests},
		{"Calls", callTests},
		{"Scoped", scopedTests},
		{"Text", textTests},
		{"Read", readTests},
		{"Tenants", tenantTests},
		{"Life", lifeTests},
		{"Race", raceTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for name, test := range group.tests {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(newFixture(t, open))
				})
			}
		})
	}
	t.Run("Model", func(t *testing.T) {
		t.Parallel()
		Model(t, open)
	})
}

// watch stops the process if the test outlasts the guard.
func watch(t *testing.T) {
	name := t.Name()
	timer := time.AfterFunc(guard, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("%s: still running after %v", name, guard))
	})
	t.Cleanup(func() { timer.Stop() })
}

// fixture is a test with a store. Most tests talk about one session, thread, of
// one tenant.
type fixture struct {
	*testing.T
	ctx   context.Context
	store session.Store
}

const (
	tenant = "acme"
	thread = "session_thread"
)

func newFixture(t *testing.T, open func(t *testing.T) session.Store) *fixture {
	watch(t)
	return &fixture{T: t, ctx: t.Context(), store: open(t)}
}

// settle commits slices and demands an answer for each.
func (f *fixture) settle(slices ...*session.Slice) []session.Outcome {
	f.Helper()
	outcomes, err := f.store.Commit(f.ctx, slices)
	if err != nil {
		f.Fatalf("Commit: %v", err)
	}
	if len(outcomes) != len(slices) {
		f.Fatalf("Commit of %d slices gave %d outcomes", len(slices), len(outcomes))
	}
	return outcomes
}

// commit commits one slice, which must not fail.
func (f *fixture) commit(s *session.Slice) session.Outcome {
	f.Helper()
	out := f.settle(s)[0]
	if out.Err != nil {
		f.Fatalf("commit of %s: %v", s.Turn.InvocationID, out.Err)
	}
	return out
}

// commitAs commits one slice, which must get the status.
func (f *fixture) commitAs(want session.CommitStatus, s *session.Slice) session.Outcome {
	f.Helper()
	out := f.commit(s)
	if out.Turn.CommitStatus != want || out.Repeat || out.Conflict || out.Fenced {
		f.Fatalf("commit of %s: got %s, want %q", s.Turn.InvocationID, describe(out), want)
	}
	return out
}

func describe(o session.Outcome) string {
	return fmt.Sprintf("status %q commit %q version %d repeat %t conflict %t fenced %t too late %t err %v",
		o.Turn.Status, o.Turn.CommitStatus, o.Turn.Version, o.Repeat, o.Conflict, o.Fenced, o.TooLate, o.Err)
}

func (f *fixture) load(id string) session.Loaded {
	f.Helper()
	loaded, err := f.store.Load(f.ctx, session.LoadQuery{Tenant: tenant, SessionID: id})
	if err != nil {
		f.Fatalf("Load %s: %v", id, err)
	}
	return loaded
}

// base is what a turn that loads the thread now commits against.
func (f *fixture) base() session.Base { return f.load(thread).Head.Base() }

func (f *fixture) create(n session.NewSession) *session.Head {
	f.Helper()
	head, err := f.store.Create(f.ctx, n)
	if err != nil {
		f.Fatalf("Create %s: %v", n.ID, err)
	}
	return head
}

func (f *fixture) delete(id string, at int64) {
	f.Helper()
	if err := f.store.Delete(f.ctx, tenant, id, at); err != nil {
		f.Fatalf("Delete %s: %v", id, err)
	}
}

// row returns the row of a turn, nil if there is none.
func (f *fixture) row(invocation string) *session.Turn {
	f.Helper()
	loaded, err := f.store.Load(f.ctx, session.LoadQuery{Tenant: tenant, SessionID: thread, InvocationID: invocation})
	if err != nil {
		f.Fatalf("Load turn %s: %v", invocation, err)
	}
	return loaded.Turn
}

// wantRow demands that the stored row is the outcome's.
func (f *fixture) wantRow(out session.Outcome) {
	f.Helper()
	got, err := f.store.Turn(f.ctx, out.Turn.Tenant, out.Turn.InvocationID)
	if err != nil {
		f.Fatalf("Turn %s: %v", out.Turn.InvocationID, err)
	}
	f.same("turn "+out.Turn.InvocationID, *got, out.Turn)
}

// wantLedger demands that the thread's ledger has the slices of these
// invocations, whole and in this order, and that its head agrees with it.
func (f *fixture) wantLedger(slices ...*session.Slice) session.Loaded {
	f.Helper()
	var want []session.Event
	for _, s := range slices {
		want = append(want, s.Events...)
	}
	loaded := f.load(thread)
	f.same("ledger", ids(loaded.Events), ids(want))
	f.wantFolded(loaded)
	return loaded
}

// wantFolded demands that a session's head is what its ledger folds to.
func (f *fixture) wantFolded(loaded session.Loaded) {
	f.Helper()
	if loaded.Head == nil {
		if len(loaded.Events) > 0 {
			f.Fatalf("there is no session, and it has %d events", len(loaded.Events))
		}
		return
	}
	want := session.Head{}
	want.Fold(loaded.Events)
	got := session.Head{
		EventCount: loaded.Head.EventCount, LastUserAt: loaded.Head.LastUserAt,
		State: loaded.Head.State, Pending: loaded.Head.Pending,
	}
	f.same("head", got, want)
}

func ids(events []session.Event) []string {
	out := make([]string, len(events))
	for i, e := range events {
		out[i] = e.Base().ID
	}
	return out
}

// equalities say what is the same in a store and in a test: no list is an empty
// list, and a JSON value is the same in every notation.
var equalities = cmp.Options{
	cmp.FilterPath(func(p cmp.Path) bool { return p.Last().Type() != reflect.TypeFor[json.RawMessage]() }, cmpopts.EquateEmpty()),
	cmp.Comparer(sameJSON),
}

func (f *fixture) same(what string, got, want any) {
	f.Helper()
	if diff := cmp.Diff(want, got, equalities); diff != "" {
		f.Fatalf("%s is not what it should be (-want +got):\n%s", what, diff)
	}
}

// together calls do(0) … do(n-1) from n goroutines that all start at one gate,
// and waits for them.
func together(n int, do func(i int)) {
	var gate, done sync.WaitGroup
	gate.Add(1)
	for i := range n {
		done.Go(func() {
			gate.Wait()
			do(i)
		})
	}
	gate.Done()
	done.Wait()
}

// scopedState reads a shared scope through a session that does not exist.
func (f *fixture) scopedState(scope, id string) session.State {
	f.Helper()
	loaded, err := f.store.Load(f.ctx, session.LoadQuery{
		Tenant: tenant, SessionID: "session_none", Scopes: map[string]string{scope: id},
	})
	if err != nil {
		f.Fatalf("Load %s %s: %v", scope, id, err)
	}
	return loaded.Scoped[scope]
}

// claim claims a turn, and reports whether it was this claim that wrote the row.
func (f *fixture) claim(turn session.Turn, was int) (session.Turn, bool) {
	f.Helper()
	now, claimed, err := f.store.Claim(f.ctx, turn, was)
	if err != nil {
		f.Fatalf("Claim %s: %v", turn.InvocationID, err)
	}
	return now, claimed
}
