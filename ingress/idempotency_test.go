package ingress

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

const keyed = `{"sessionId":"x","input":{"message":"hi"}}`

// Twenty submits with one key at once are one turn.
func TestKeyedSubmitsAtOnce(t *testing.T) {
	t.Parallel()
	h := setup(t)
	const n = 20
	ids, replayed := make([]string, n), make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			a := h.do("POST", "/v1/turns", keyed, "Prefer: respond-async", "Idempotency-Key: k1")
			h.want(a, http.StatusAccepted, "")
			ids[i], replayed[i] = decodeBody[turnSummary](t, a).InvocationID, a.header.Get("Idempotency-Replayed")
		})
	}
	all.Wait()
	first := 0
	for i := range n {
		if ids[i] != ids[0] {
			t.Errorf("turns %s and %s", ids[i], ids[0])
		}
		if replayed[i] == "" {
			first++
		}
	}
	if first != 1 {
		t.Errorf("%d submits were not replayed", first)
	}
}

// The same key and body later: the first answer, in the form that is asked for.
func TestKeyedReplay(t *testing.T) {
	t.Parallel()
	h := setup(t)
	first := h.do("POST", "/v1/turns", keyed, "Prefer: respond-async", "Idempotency-Key: k1")
	h.want(first, http.StatusAccepted, "")
	id := decodeBody[turnSummary](t, first).InvocationID
	queued := h.do("POST", "/v1/turns", keyed, "Prefer: respond-async", "Idempotency-Key: k1")
	h.want(queued, http.StatusAccepted, "")
	if got := decodeBody[turnSummary](t, queued); got.InvocationID != id || got.Status != session.StatusQueued || queued.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%+v", got)
	}
	sub := h.broker.take(t)
	h.finish(sub, session.StatusCompleted)
	for _, prefer := range []string{"wait=5", "respond-async"} {
		done := h.do("POST", "/v1/turns", keyed, "Prefer: "+prefer, "Idempotency-Key: k1")
		h.want(done, http.StatusOK, "")
		if got := decodeBody[turn.Result](t, done); got.InvocationID != id || got.Output.Text != "You said hi" {
			t.Errorf("%s: %s", prefer, done.body)
		}
	}
	stream := h.do("POST", "/v1/turns", keyed, "Accept: text/event-stream", "Idempotency-Key: k1")
	if !strings.Contains(string(stream.body), "event: result") || stream.header.Get("Content-Location") != "/v1/turns/"+id {
		t.Errorf("stream: %s", stream.body)
	}
	other := h.do("POST", "/v1/turns", `{"sessionId":"x","input":{"message":"ho"}}`, "Idempotency-Key: k1")
	h.want(other, http.StatusUnprocessableEntity, codeKeyMismatch)
	if len(h.broker.order) != 1 {
		t.Errorf("published: %v", h.broker.order)
	}
}

// A refused submit frees its key; one whose fate is unknown does not, and the next
// one publishes the same turn again.
func TestKeyedRefusal(t *testing.T) {
	t.Parallel()
	h := setup(t)
	for _, refusal := range []error{turn.ErrQueueFull, turn.ErrTooLarge} {
		h.broker.onPublish = func(context.Context) error { return refusal }
		h.do("POST", "/v1/turns", keyed, "Idempotency-Key: k1")
		if len(h.broker.keys) != 0 {
			t.Errorf("%v: the key is kept", refusal)
		}
	}
	h.broker.onPublish = func(context.Context) error { return turn.ErrUnavailable }
	unsure := h.do("POST", "/v1/turns", keyed, "Idempotency-Key: k1")
	h.want(unsure, http.StatusServiceUnavailable, codeUnavailable)
	h.broker.onPublish = nil
	again := h.do("POST", "/v1/turns", keyed, "Prefer: respond-async", "Idempotency-Key: k1")
	h.want(again, http.StatusAccepted, "")
	if !strings.HasSuffix(unsure.header.Get("Location"), decodeBody[turnSummary](t, again).InvocationID) {
		t.Errorf("first %s, then %s", unsure.header.Get("Location"), again.body)
	}
	h.broker.onKey = func() error { return turn.ErrUnavailable }
	h.want(h.do("POST", "/v1/turns", keyed, "Idempotency-Key: k2"), http.StatusServiceUnavailable, codeUnavailable)
	h.want(h.do("POST", "/v1/turns", keyed, "Idempotency-Key: "+strings.Repeat("k", 256)), http.StatusBadRequest, codeInvalidField)
}
