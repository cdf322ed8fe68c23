package ingress

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

func TestShutdownTellsEveryStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		const viewers = 50
		var told sync.WaitGroup
		for i := range viewers {
			id := h.submitAsync(message)
			if i%2 == 0 {
				h.emitEcho(h.broker.take(t))
			} else {
				h.broker.take(t)
			}
			s := h.stream(t.Context(), "GET", "/v1/turns/"+id+"/events", "")
			told.Go(func() {
				frames := s.events()
				last := frames[len(frames)-1]
				retry, err := strconv.Atoi(last.Retry)
				if last.Event != "reconnect" || last.Data != "{}" || last.ID != "" || err != nil || retry <= 0 {
					t.Errorf("last: %+v", last)
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		if err := h.server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
		told.Wait()
	})
}

func TestShutdownAnswersThoseWhoWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		start := time.Now()
		var waiting sync.WaitGroup
		waiting.Go(func() {
			h.want(h.do("POST", "/v1/turns", message), http.StatusAccepted, "")
		})
		sub := h.broker.take(t)
		waiting.Go(func() {
			a := h.do("GET", "/v1/turns/"+sub.InvocationID+"?wait=20", "")
			if got := decodeBody[turnSummary](t, a).Status; got != session.StatusQueued {
				t.Errorf("status %q", got)
			}
		})
		synctest.Wait()
		if err := h.server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		waiting.Wait()
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
	})
}

func TestAfterShutdown(t *testing.T) {
	t.Parallel()
	h := setup(t)
	h.want(h.do("GET", "/readyz", ""), http.StatusOK, "")
	h.settle()
	h.settle() // again
	a := h.do("GET", "/readyz", "")
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %v", a.status, a.header)
	}
	golden(t, "readyz_stopping", a.body)
	h.want(h.do("GET", "/healthz", ""), http.StatusOK, "")

	// Who still comes is served: the turn is accepted, the stream sent elsewhere.
	h.want(h.do("POST", "/v1/turns", message), http.StatusAccepted, "")
	frames := h.stream(t.Context(), "POST", "/v1/turns", message).events()
	if len(frames) != 1 || frames[0].Event != "reconnect" {
		t.Errorf("%+v", frames)
	}
}

func TestShutdownGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		id := h.submitAsync(message)
		h.cancelTurn(id) // nobody holds it: a broadcast of 3 s
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := h.server.Shutdown(ctx); err != context.DeadlineExceeded || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		h.settle() // the cancel was abandoned, so there is nothing to wait for
		if took := time.Since(start); took != time.Second {
			t.Errorf("settled after %v", took)
		}
	})
}

func TestShutdownAtOnce(t *testing.T) {
	t.Parallel()
	h := setup(t)
	var calls sync.WaitGroup
	for range 10 {
		calls.Go(h.settle)
	}
	calls.Wait()
}

// A stream whose log never falls silent sees its end all the same.
func TestShutdownOfABusyStream(t *testing.T) {
	t.Parallel()
	h := setup(t)
	id := h.submitAsync(message)
	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	busy.Go(func() {
		for ctx.Err() == nil {
			h.broker.emit(t, id, &turn.Delta{Kind: turn.TypeAssistantDelta, MessageID: "m", Delta: "x"})
			h.broker.expireQuietly(id)
		}
	})
	s := h.stream(t.Context(), "GET", "/v1/turns/"+id+"/events", "")
	s.event()
	down := make(chan error)
	go func() { down <- h.server.Shutdown(t.Context()) }()
	frames := s.events()
	if err := <-down; err != nil {
		t.Error(err)
	}
	stop()
	busy.Wait()
	if last := frames[len(frames)-1]; last.Event != "reconnect" {
		t.Errorf("last: %+v", last)
	}
}

// expireQuietly keeps a flooded log short.
func (b *broker) expireQuietly(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if log := b.log(id); len(log.frames) > 1000 {
		log.frames = log.frames[len(log.frames)-1000:]
	}
}
