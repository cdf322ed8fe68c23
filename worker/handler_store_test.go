package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpool/turnpool/agent/agenttest"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
	"github.com/turnpool/turnpool/worker"
)

// storeFuncs is a store of which a test replaces what it wants to.
type storeFuncs struct {
	session.Store
	load   func(ctx context.Context, q session.LoadQuery) (session.Loaded, error)
	commit func(ctx context.Context, slices []*session.Slice) ([]session.Outcome, error)
}

func (s *storeFuncs) Load(ctx context.Context, q session.LoadQuery) (session.Loaded, error) {
	if s.load == nil {
		return s.Store.Load(ctx, q)
	}
	return s.load(ctx, q)
}

func (s *storeFuncs) Commit(ctx context.Context, slices []*session.Slice) ([]session.Outcome, error) {
	if s.commit == nil {
		return s.Store.Commit(ctx, slices)
	}
	return s.commit(ctx, slices)
}

var errDisk = errors.New("disk on fire at 10.0.0.7")

// failedQuietly checks that a fault of the store is told without its text, which
// is in the log.
func failedQuietly(t *testing.T, h *house, got *turn.Result) {
	t.Helper()
	endedAs(t, got, session.StatusError, session.CommitNone, turn.CodeInternal)
	if strings.Contains(got.Error.Message, "fire") || !got.Error.Retryable {
		t.Errorf("error %+v", got.Error)
	}
	if log := h.log.String(); strings.Count(log, "fire") != 1 || !strings.Contains(log, "invocation="+got.InvocationID) {
		t.Errorf("log: %s", log)
	}
}

func TestHandlerStoreDoesNotLoad(t *testing.T) {
	t.Parallel()
	store := &storeFuncs{Store: session.NewMemory()}
	h := newHouse(t, store)
	store.load = func(context.Context, session.LoadQuery) (session.Loaded, error) { return session.Loaded{}, errDisk }
	stream := h.Turn(t.Context(), say("s", "hi"))
	failedQuietly(t, h, inTime(t, resultOf(stream)))
	same(t, "model calls", h.model.Calls(), 0)
	same(t, "events", len(slices.Collect(stream.Events())), 0)
}

// Loading counts towards the turn's time, and can be aborted.
func TestHandlerStoreLoadsForever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &storeFuncs{Store: session.NewMemory()}
		store.load = func(ctx context.Context, _ session.LoadQuery) (session.Loaded, error) {
			<-ctx.Done()
			return session.Loaded{}, ctx.Err()
		}
		h := newHouse(t, store, func(cfg *worker.HandlerConfig) { cfg.Timeout = time.Second })
		got := h.Rest(t.Context(), say("s", "hi"))
		endedAs(t, got, session.StatusError, session.CommitNone, turn.CodeTimeout)
		same(t, "result by id", h.stored(t, got.InvocationID), got)

		stream := h.Turn(t.Context(), say("s", "hi"))
		result := resultOf(stream)
		synctest.Wait()
		stream.Abort()
		endedAs(t, <-result, session.StatusAborted, session.CommitNone, "")
		same(t, "model calls", h.model.Calls(), 0)
	})
}

// A store that fails to commit leaves it open what it wrote. The answer was paid
// for, so the caller has it.
func TestHandlerStoreDoesNotCommit(t *testing.T) {
	t.Parallel()
	store := &storeFuncs{Store: session.NewMemory()}
	h := newHouse(t, store)
	store.commit = func(context.Context, []*session.Slice) ([]session.Outcome, error) { return nil, errDisk }
	req := say("s", "hi")
	req.Response = &turn.Response{Usage: true, State: true, Events: true}
	got := h.rest(t, req)
	failedQuietly(t, h, got)
	same(t, "answer", got.Output.Text, "re: hi")
	if got.State != nil || got.Usage != nil {
		t.Errorf("state %v, usage %v: nothing is known of the session", got.State, got.Usage)
	}
}

// A slice that cannot be written ends the turn as failed, which is on record.
func TestHandlerStoreRefusesASlice(t *testing.T) {
	t.Parallel()
	memory := session.NewMemory()
	store := &storeFuncs{Store: memory}
	h := newHouse(t, store)
	store.commit = func(ctx context.Context, all []*session.Slice) ([]session.Outcome, error) {
		if all[0].Turn.Status.Commits() {
			return []session.Outcome{{Turn: all[0].Turn, Err: errDisk}}, nil
		}
		return memory.Commit(ctx, all)
	}
	got := h.rest(t, say("s", "hi"))
	failedQuietly(t, h, got)
	same(t, "result by id", h.stored(t, got.InvocationID), got)
	row, err := memory.Turn(t.Context(), turn.DefaultTenant, got.InvocationID)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "usage on record", row.Usage, used(1))

	store.commit = func(_ context.Context, all []*session.Slice) ([]session.Outcome, error) {
		return []session.Outcome{{Turn: all[0].Turn, Err: errors.New("no")}}, nil
	}
	endedAs(t, h.rest(t, say("s", "hi")), session.StatusError, session.CommitNone, turn.CodeInternal)
}

// An abort that comes while the turn is being committed comes too late.
func TestHandlerStoreIsSlow(t *testing.T) {
	t.Parallel()
	memory := session.NewMemory()
	store := &storeFuncs{Store: memory}
	h := newHouse(t, store)
	gate := agenttest.NewGate()
	store.commit = func(ctx context.Context, all []*session.Slice) ([]session.Outcome, error) {
		if err := gate.Pass(ctx, "commit"); err != nil {
			return nil, err
		}
		return memory.Commit(ctx, all)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stream := h.Turn(ctx, say("s", "hi"))
	result := resultOf(stream)
	inTime(t, gate.Arrived("commit"))
	stream.Abort()
	cancel()
	gate.Open("commit")
	endedAs(t, inTime(t, result), session.StatusCompleted, session.Committed, "")
	same(t, "ledger", h.ledger(t, "s"), "hi\nre: hi")
}

// A store that hangs does not hold a turn for ever.
func TestHandlerStoreHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &storeFuncs{Store: session.NewMemory()}
		store.commit = func(ctx context.Context, _ []*session.Slice) ([]session.Outcome, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		h := newHouse(t, store)
		got := h.Rest(t.Context(), say("s", "hi"))
		endedAs(t, got, session.StatusError, session.CommitNone, turn.CodeInternal)
		same(t, "answer", got.Output.Text, "re: hi")
	})
}
