package ingress

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

func TestGetTurn(t *testing.T) {
	t.Parallel()
	const request = `{"sessionId":"x","input":{"message":"hi"},"lane":"batch","metadata":{"k":"v"}}`
	tests := map[string]struct {
		reach  func(h *harness, sub *turn.Submission)
		golden string
	}{
		"queued":  {func(*harness, *turn.Submission) {}, "turn_queued"},
		"running": {func(h *harness, sub *turn.Submission) { h.emitEcho(sub) }, "turn_running"},
		"claimed": {func(h *harness, sub *turn.Submission) { h.claim(sub, 2) }, "turn_running_again"},
		"claimed, and the request is gone": {
			func(h *harness, sub *turn.Submission) { h.claim(sub, 2); h.ack(sub) }, "turn_running_row",
		},
		"announced, not acked": {
			func(h *harness, sub *turn.Submission) {
				h.broker.emit(h.t, sub.InvocationID, h.commit(sub, session.StatusCompleted))
			}, "turn_finished",
		},
		"finished": {func(h *harness, sub *turn.Submission) { h.finish(sub, session.StatusCompleted) }, "turn_finished"},
		"finished, its session deleted": {
			func(h *harness, sub *turn.Submission) {
				h.finish(sub, session.StatusCompleted)
				h.want(h.do("DELETE", "/v1/sessions/x", ""), http.StatusNoContent, "")
			}, "turn_scrubbed",
		},
		"failed": {
			func(h *harness, sub *turn.Submission) {
				h.finish(sub, session.StatusError, func(r *turn.Result) { r.Error = &turn.Error{Code: turn.CodeModelError, Message: "no", Retryable: true} })
			}, "turn_failed",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := setup(t)
			id := h.submitAsync(request)
			tt.reach(h, h.broker.take(t))
			a := h.do("GET", "/v1/turns/"+id, "")
			h.want(a, http.StatusOK, "")
			golden(t, tt.golden, a.body)
		})
	}
}

// claim is what an attempt after the first does before it runs.
func (h *harness) claim(sub *turn.Submission, attempt int) {
	h.t.Helper()
	_, ok, err := h.store.Claim(h.t.Context(), session.Turn{
		Tenant: sub.Tenant, InvocationID: sub.InvocationID, SessionID: sub.Request.SessionID, Agent: sub.Request.Agent,
		Lane: string(sub.Request.Lane), Attempt: attempt, CreatedAt: sub.StoredAt, StartedAt: sub.StoredAt + 1,
	}, 0)
	if err != nil || !ok {
		h.t.Fatal(ok, err)
	}
}

func TestGetTurnUnknown(t *testing.T) {
	t.Parallel()
	h := setup(t)
	h.submitAsync(message)
	const unknown = "inv_00000000000000000000000000000000"
	golden(t, "problem_unknown_turn", h.do("GET", "/v1/turns/"+unknown, "").body)
	for _, id := range []string{unknown, "inv_1", "x", "inv_0000000000000000000000000000000G", "a%2Fb", "%00", strings.Repeat("a", 5000)} {
		for _, path := range []string{"", "/events"} {
			h.want(h.do("GET", "/v1/turns/"+id+path, ""), http.StatusNotFound, codeUnknownTurn)
		}
		h.want(h.do("POST", "/v1/turns/"+id+"/cancel", ""), http.StatusNotFound, codeUnknownTurn)
	}
}

// A turn that commits and is acked between the question to the store and the
// one to the queue is in neither answer.
func TestGetTurnFinishesMeanwhile(t *testing.T) {
	t.Parallel()
	h := setup(t)
	id := h.submitAsync(message)
	sub := h.broker.take(t)
	h.broker.onLookup = func(string) error {
		h.finish(sub, session.StatusCompleted)
		return nil
	}
	a := h.do("GET", "/v1/turns/"+id, "")
	h.want(a, http.StatusOK, "")
	if got := decodeBody[turn.Result](t, a).Status; got != session.StatusCompleted {
		t.Errorf("status %q", got)
	}
}

func TestGetTurnWaits(t *testing.T) {
	t.Parallel()
	t.Run("until the result", func(t *testing.T) {
		t.Parallel()
		h := setup(t)
		id := h.submitAsync(message)
		sub := h.broker.take(t)
		h.emitEcho(sub)
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.finish(sub, session.StatusError, func(r *turn.Result) { r.Error = &turn.Error{Code: turn.CodeTimeout} })
		}()
		a := h.do("GET", "/v1/turns/"+id+"?wait=20", "")
		<-done
		h.want(a, http.StatusOK, "")
		stored := h.do("GET", "/v1/turns/"+id+"?wait=20", "")
		if diff := cmp.Diff(string(stored.body), string(a.body)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("until the time is over", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h := setup(t)
			id := h.submitAsync(message)
			for wait, want := range map[string]time.Duration{"0": 0, "2": 2 * time.Second, "1000": 30 * time.Second} {
				start := time.Now()
				a := h.do("GET", "/v1/turns/"+id+"?wait="+wait, "")
				h.want(a, http.StatusOK, "")
				if got := decodeBody[turnSummary](t, a).Status; got != session.StatusQueued {
					t.Errorf("status %q", got)
				}
				if took := time.Since(start); took != want {
					t.Errorf("wait=%s took %v", wait, took)
				}
			}
		})
	})
	t.Run("and finds what it missed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h := setup(t)
			id := h.submitAsync(message)
			sub := h.broker.take(t)
			h.broker.onNext = func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
			time.AfterFunc(time.Second, func() { h.commit(sub, session.StatusCompleted) })
			a := h.do("GET", "/v1/turns/"+id+"?wait=2", "")
			if got := decodeBody[turn.Result](t, a).Status; got != session.StatusCompleted {
				t.Errorf("status %q", got)
			}
		})
	})
	t.Run("for a number", func(t *testing.T) {
		t.Parallel()
		h := setup(t)
		id := h.submitAsync(message)
		for _, wait := range []string{"x", "-1", "1.5", "1s", "%20"} {
			h.want(h.do("GET", "/v1/turns/"+id+"?wait="+wait, ""), http.StatusBadRequest, codeInvalidField)
		}
	})
}

func TestGetTurnUnavailable(t *testing.T) {
	t.Parallel()
	h := setup(t)
	id := h.submitAsync(message)
	sub := h.broker.take(t)
	h.broker.onState = func() error { return turn.ErrUnavailable }
	h.want(h.do("GET", "/v1/turns/"+id, ""), http.StatusServiceUnavailable, codeUnavailable)
	h.broker.onLookup = func(string) error { return turn.ErrUnavailable }
	a := h.do("GET", "/v1/turns/"+id, "")
	h.want(a, http.StatusServiceUnavailable, codeUnavailable)
	golden(t, "problem_unavailable_turn", a.body)

	// An outcome needs no broker.
	h.finish(sub, session.StatusCompleted)
	h.want(h.do("GET", "/v1/turns/"+id, ""), http.StatusOK, "")

	h.store.break_(errStore)
	a = h.do("GET", "/v1/turns/"+id, "")
	h.want(a, http.StatusServiceUnavailable, codeUnavailable)
	golden(t, "problem_unavailable_store", a.body)
	if strings.Contains(string(a.body), "10.0.0.7") || !strings.Contains(h.logs.String(), "10.0.0.7") {
		t.Error("the cause belongs in the log, and nowhere else")
	}
}
