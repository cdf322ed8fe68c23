package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/session"
)

// heldStore is a store whose every commit waits until it is let go.
type heldStore struct {
	session.Store
	// commits has a message for each commit that has come and waits.
	commits chan heldCommit
}

type heldCommit struct {
	ids []string
	let chan error // what it shall end with
}

func newHeldStore() *heldStore { return &heldStore{commits: make(chan heldCommit, 1000)} }

func (s *heldStore) Commit(ctx context.Context, slices []*session.Slice) ([]session.Outcome, error) {
	held := heldCommit{let: make(chan error)}
	outcomes := make([]session.Outcome, len(slices))
	for i, one := range slices {
		held.ids = append(held.ids, one.Turn.InvocationID)
		outcomes[i].Turn = one.Turn
	}
	s.commits <- held
	select {
	case err := <-held.let:
		if err != nil {
			return nil, err
		}
		return outcomes, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// answerTo is what one caller of commit got.
type answerTo struct {
	outcome session.Outcome
	err     error
}

// commitTurns commits the turns from..to-1, each by its own goroutine, one after
// the other. It is for a bubble.
func commitTurns(ctx context.Context, c *committer, from, to int) map[string]chan answerTo {
	answers := map[string]chan answerTo{}
	for i := from; i < to; i++ {
		id := fmt.Sprintf("inv_%d", i)
		answer := make(chan answerTo, 1)
		answers[id] = answer
		go func() {
			outcome, err := c.commit(ctx, &session.Slice{Turn: session.Turn{InvocationID: id}})
			answer <- answerTo{outcome, err}
		}()
		synctest.Wait()
	}
	return answers
}

func ids(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf("inv_%d", i))
	}
	return all
}

func wantIDs(t *testing.T, held heldCommit, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, held.ids); diff != "" {
		t.Errorf("commit (-want +got):\n%s", diff)
	}
}

// Whatever waits shares transactions, in order; who comes first waits for
// nobody.
func TestCommitterSharesTransactions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newHeldStore()
		c := &committer{store: store}
		answers := commitTurns(t.Context(), c, 0, 2+100)

		first, second := <-store.commits, <-store.commits
		wantIDs(t, first, ids(0, 1))
		wantIDs(t, second, ids(1, 2))
		if len(store.commits) > 0 {
			t.Fatal("more than two transactions at once")
		}
		first.let <- nil
		third := <-store.commits
		wantIDs(t, third, ids(2, 2+maxCommitBatch))
		second.let <- nil
		fourth := <-store.commits
		wantIDs(t, fourth, ids(2+maxCommitBatch, 102))
		fourth.let <- nil
		third.let <- nil
		synctest.Wait()

		if len(store.commits) > 0 {
			t.Error("a fifth transaction")
		}
		for id, c := range answers {
			if a := <-c; a.err != nil || a.outcome.Turn.InvocationID != id {
				t.Errorf("%s was answered with %s, %v", id, a.outcome.Turn.InvocationID, a.err)
			}
		}
		if c.active != 0 || len(c.waiting) != 0 {
			t.Errorf("%d goroutines and %d requests are left", c.active, len(c.waiting))
		}
	})
}

// A caller whose context ends leaves at once; if its slice has not gone to the
// store yet, it never does.
func TestCommitterCallerLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newHeldStore()
		c := &committer{store: store}
		gone := errors.New("gone")
		leaving, leave := context.WithCancelCause(t.Context())
		commitTurns(t.Context(), c, 0, 1)
		underWay := commitTurns(leaving, c, 1, 2)
		waiting := commitTurns(leaving, c, 2, 4)
		staying := commitTurns(t.Context(), c, 4, 5)
		leave(gone)
		for id, c := range underWay {
			if a := <-c; a.err != gone {
				t.Errorf("%s: %v", id, a.err)
			}
		}
		for id, c := range waiting {
			if a := <-c; a.err != gone {
				t.Errorf("%s: %v", id, a.err)
			}
		}
		first, second := <-store.commits, <-store.commits
		wantIDs(t, second, ids(1, 2)) // that was with the store already
		first.let <- nil
		third := <-store.commits
		wantIDs(t, third, ids(4, 5))
		third.let <- nil
		if a := <-staying["inv_4"]; a.err != nil {
			t.Error(a.err)
		}
		second.let <- nil
		synctest.Wait()
		if c.active != 0 || len(c.waiting) != 0 {
			t.Errorf("%d goroutines and %d requests are left", c.active, len(c.waiting))
		}
	})
}

// If all that wait have left, there is nothing to commit.
func TestCommitterEverybodyLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newHeldStore()
		c := &committer{store: store}
		commitTurns(t.Context(), c, 0, maxCommitters)
		ctx, leave := context.WithCancel(t.Context())
		commitTurns(ctx, c, maxCommitters, 200)
		leave()
		for range maxCommitters {
			(<-store.commits).let <- nil
		}
		synctest.Wait()
		if len(store.commits) > 0 || c.active != 0 || len(c.waiting) != 0 {
			t.Errorf("%d commits, %d goroutines, %d requests", len(store.commits), c.active, len(c.waiting))
		}

		again := commitTurns(t.Context(), c, 0, 1) // it goes on afterwards
		(<-store.commits).let <- nil
		if a := <-again["inv_0"]; a.err != nil {
			t.Error(a.err)
		}
		synctest.Wait()
	})
}

// An error is that of its own transaction.
func TestCommitterErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newHeldStore()
		c := &committer{store: store}
		broken := errors.New("broken")
		answers := commitTurns(t.Context(), c, 0, 4)
		first, second := <-store.commits, <-store.commits
		first.let <- broken
		third := <-store.commits
		wantIDs(t, third, ids(2, 4))
		third.let <- nil
		second.let <- nil
		for id, c := range answers {
			want := error(nil)
			if id == "inv_0" {
				want = broken
			}
			if a := <-c; a.err != want {
				t.Errorf("%s: %v", id, a.err)
			}
		}
		synctest.Wait()
	})
}

// A store that hangs ends its transaction by the limit, and the next one goes
// ahead.
func TestCommitterStoreHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newHeldStore()
		c := &committer{store: store}
		begin := time.Now()
		answers := commitTurns(t.Context(), c, 0, 3)
		for _, id := range ids(0, 3) {
			if a := <-answers[id]; !errors.Is(a.err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", id, a.err)
			}
		}
		if took := time.Since(begin); took != 2*commitTimeout {
			t.Errorf("it took %v", took)
		}
		synctest.Wait()
	})
}
