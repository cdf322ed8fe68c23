package ingress

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

const cancelMe = `{"sessionId":"x","input":{"message":"hi"},"lane":"batch","metadata":{"k":"v"}}`

func (h *harness) cancelTurn(id string) cancelAnswer {
	h.t.Helper()
	a := h.do("POST", "/v1/turns/"+id+"/cancel", "")
	h.want(a, http.StatusOK, "")
	return decodeBody[cancelAnswer](h.t, a)
}

// settle waits until the server has nothing left to do.
func (h *harness) settle() {
	h.t.Helper()
	if err := h.server.Shutdown(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

func TestCancelQueued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		id := h.submitAsync(cancelMe)
		viewer := h.stream(t.Context(), "GET", "/v1/turns/"+id+"/events", "")
		start := time.Now()
		a := h.do("POST", "/v1/turns/"+id+"/cancel", "")
		h.want(a, http.StatusOK, "")
		golden(t, "cancel_requested", a.body)
		stored := h.do("GET", "/v1/turns/"+id, "")
		golden(t, "turn_aborted", stored.body)
		frames := viewer.events()
		if len(frames) != 1 || frames[0].Event != turn.TypeResult || string(untag(json.RawMessage(frames[0].Data))) != string(stored.body) {
			t.Errorf("the viewer has %+v", frames)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
		h.settle()
		if took := time.Since(start); took != broadcastTimeout {
			t.Errorf("settled after %v", took)
		}
		if !slices.Equal(h.broker.removed, []string{id}) || h.broker.queued[id] != nil {
			t.Errorf("removed %v", h.broker.removed)
		}
		if !strings.Contains(h.logs.String(), `msg="turn cancelled" invocation=`+id+` session=session_x agent=echo lane=batch`) {
			t.Errorf("log: %s", h.logs)
		}
	})
}

func TestCancelRunning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		id := h.submitAsync(cancelMe)
		sub := h.broker.take(t)
		h.emitEcho(sub)
		ran, stop := context.WithCancel(t.Context())
		h.broker.holders[id] = stop
		if got := h.cancelTurn(id); got != (cancelAnswer{id, session.StatusAborted, true}) {
			t.Errorf("%+v", got)
		}
		<-ran.Done()
		h.settle()
		// The worker that stops finds the outcome; what it brings is not kept.
		if got := h.commit(sub, session.StatusCompleted).Status; got != session.StatusAborted {
			t.Errorf("the worker's commit: %s", got)
		}
		if len(h.broker.removed) > 0 {
			t.Error("a request in a worker's hands was removed")
		}
		golden(t, "turn_aborted_running", h.do("GET", "/v1/turns/"+id, "").body)
		h.want(h.do("GET", "/v1/sessions/x", ""), http.StatusNotFound, codeUnknownSession)
	})
}

func TestCancelBetweenAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		id := h.submitAsync(cancelMe)
		sub := h.broker.take(t)
		h.claim(sub, 3)
		h.ack(sub) // even the request is gone: the row is enough
		h.cancelTurn(id)
		h.settle()
		result := decodeBody[turn.Result](t, h.do("GET", "/v1/turns/"+id, ""))
		want := turn.Result{
			SessionID: "session_x", InvocationID: id, Status: session.StatusAborted, Output: turn.Output{Items: session.Events{}},
			Agent: "echo", Lane: turn.LaneBatch, Attempts: 3, CreatedAt: sub.StoredAt, StartedAt: sub.StoredAt + 1, FinishedAt: now.UnixMilli(),
		}
		if diff := cmp.Diff(want, result); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestCancelIsIdempotent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		id := h.submitAsync(cancelMe)
		h.cancelTurn(id)
		for range 3 {
			if got := h.cancelTurn(id); got != (cancelAnswer{id, session.StatusAborted, false}) {
				t.Errorf("%+v", got)
			}
		}
		h.settle()
		if h.broker.cancels != 1 || len(h.broker.removed) != 1 {
			t.Errorf("%d broadcasts, removed %v", h.broker.cancels, h.broker.removed)
		}
		if frames := h.broker.log(id).frames; len(frames) != 1 {
			t.Errorf("the log has %d events", len(frames))
		}
	})
}

func TestCancelFinished(t *testing.T) {
	t.Parallel()
	for _, status := range []session.Status{session.StatusCompleted, session.StatusYieldedTool, session.StatusError} {
		h := setup(t)
		id := h.submitAsync(cancelMe)
		h.finish(h.broker.take(t), status)
		if got := h.cancelTurn(id); got != (cancelAnswer{id, status, false}) {
			t.Errorf("%+v", got)
		}
		if h.broker.cancels > 0 {
			t.Error("it was broadcast")
		}
	}
}

// Of a cancel and a commit, and of many cancels, one writes the outcome, and all
// are told that one.
func TestCancelRaces(t *testing.T) {
	t.Parallel()
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			h := setup(t)
			id := h.submitAsync(cancelMe)
			sub := h.broker.take(t)
			const callers = 8
			answers := make(chan cancelAnswer, callers)
			var all sync.WaitGroup
			for range callers {
				all.Go(func() { answers <- h.cancelTurn(id) })
			}
			all.Go(func() { h.finish(sub, session.StatusCompleted) })
			all.Wait()
			close(answers)
			stored := decodeBody[turn.Result](t, h.do("GET", "/v1/turns/"+id, ""))
			requested := 0
			for a := range answers {
				if a.Status != stored.Status {
					t.Errorf("answer %s, stored %s", a.Status, stored.Status)
				}
				if a.CancelRequested {
					requested++
				}
			}
			if want := stored.Status == session.StatusAborted; (requested == 1) != want || requested > 1 {
				t.Errorf("%d callers cancelled a turn that is %s", requested, stored.Status)
			}
			h.settle()
			frames := h.broker.log(id).frames
			if len(frames) != 1 || !strings.Contains(string(frames[0].Data), string(stored.Status)) {
				t.Errorf("the log has %d events", len(frames))
			}
		})
	}
}

// The row is written by another between the look and the commit.
func TestCancelComesTooLate(t *testing.T) {
	t.Parallel()
	h := setup(t)
	id := h.submitAsync(cancelMe)
	sub := h.broker.take(t)
	h.store.onCommit = func() {
		h.store.onCommit = nil
		h.finish(sub, session.StatusCompleted)
	}
	if got := h.cancelTurn(id); got != (cancelAnswer{id, session.StatusCompleted, false}) {
		t.Errorf("%+v", got)
	}
	if h.broker.cancels > 0 {
		t.Error("it was broadcast")
	}
}

// A log that cannot take the result delays nobody; the result is announced
// later, and the request is removed only then.
func TestCancelAnnouncesLater(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"in a while", "never"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := setup(t)
				start := time.Now()
				h.broker.onFinish = func(ctx context.Context) error {
					if name == "never" || time.Since(start) < time.Second {
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				}
				id := h.submitAsync(cancelMe)
				h.cancelTurn(id)
				if took := time.Since(start); took >= time.Second {
					t.Errorf("took %v", took)
				}
				h.settle()
				announced := h.broker.log(id).state.Finished
				if want := name != "never"; announced != want || (len(h.broker.removed) == 1) != want {
					t.Errorf("announced %v, removed %v", announced, h.broker.removed)
				}
			})
		})
	}
}

// Who could not be told may still be at work, so the request stays for them.
func TestCancelTellsNobody(t *testing.T) {
	t.Parallel()
	h := setup(t)
	h.broker.onCancel = func(context.Context) error { return turn.ErrUnavailable }
	id := h.submitAsync(cancelMe)
	h.cancelTurn(id)
	h.settle()
	if len(h.broker.removed) > 0 || !h.broker.log(id).state.Finished {
		t.Errorf("removed %v, log %+v", h.broker.removed, h.broker.log(id).state)
	}
	if !strings.Contains(h.logs.String(), "cannot tell workers") {
		t.Errorf("log: %s", h.logs)
	}
}

// An ingress that died between the outcome and the rest leaves a request
// behind. Who cancels again finishes it.
func TestCancelIsResumed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		id := h.submitAsync(cancelMe)
		h.commit(h.broker.take(t), session.StatusAborted)
		if got := h.cancelTurn(id); got.CancelRequested {
			t.Errorf("%+v", got)
		}
		h.settle()
		if !h.broker.log(id).state.Finished || h.broker.cancels != 1 || len(h.broker.removed) != 1 {
			t.Errorf("%+v, %d broadcasts, removed %v", h.broker.log(id).state, h.broker.cancels, h.broker.removed)
		}
	})
}

func TestCancelUnavailable(t *testing.T) {
	t.Parallel()
	h := setup(t)
	id := h.submitAsync(cancelMe)
	h.store.onCommit = func() { h.store.break_(errStore) }
	h.want(h.do("POST", "/v1/turns/"+id+"/cancel", ""), http.StatusServiceUnavailable, codeUnavailable)
	h.store.break_(nil)
	h.store.onCommit = nil
	for range maxCancels {
		if err := h.server.beginCancel("inv_x"); err != nil {
			t.Fatal(err)
		}
	}
	a := h.do("POST", "/v1/turns/"+id+"/cancel", "")
	h.want(a, http.StatusTooManyRequests, codeRateLimited)
	golden(t, "problem_rate_limited", a.body)
	if got := decodeBody[turnSummary](t, h.do("GET", "/v1/turns/"+id, "")).Status; got != session.StatusQueued {
		t.Errorf("it is %s", got)
	}
	for range maxCancels {
		h.server.endCancel("inv_x")
	}
	h.settle()
	h.want(h.do("POST", "/v1/turns/"+id+"/cancel", ""), http.StatusServiceUnavailable, codeUnavailable)
}

// The caller hangs up in the middle: what was begun is finished.
func TestCancelCallerHangsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		id := h.submitAsync(cancelMe)
		ctx, hangUp := context.WithCancel(t.Context())
		h.store.onCommit = func() { hangUp(); synctest.Wait() }
		req, err := http.NewRequestWithContext(ctx, "POST", "http://ingress/v1/turns/"+id+"/cancel", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.client.Do(req); err == nil {
			t.Error("it was answered")
		}
		if err := h.broker.await(t.Context(), func() bool { return len(h.broker.removed) == 1 }); err != nil {
			t.Fatal(err)
		}
		if !h.broker.log(id).state.Finished {
			t.Error("it was not announced")
		}
	})
}
