package ingress

import (
	"context"
	"errors"
	"sync"
)

// errStopping is the cause that ends waiting and streaming at a shutdown.
var errStopping = errors.New("ingress is stopping")

// life is how a server ends: stopped is done when a shutdown begins, and the
// background's context when the shutdown's own time is over.
type life struct {
	stopped    context.Context
	stop       context.CancelCauseFunc
	background context.Context
	abandon    context.CancelFunc
	open       *openWork
}

func newLife() life {
	l := life{open: &openWork{idle: make(chan struct{})}}
	l.stopped, l.stop = context.WithCancelCause(context.Background())
	l.background, l.abandon = context.WithCancel(context.Background())
	return l
}

// Shutdown makes the server ready to be dropped: /readyz turns red at once,
// callers that wait get a 202 now, every open stream is told to reconnect and
// ends, and cancels under way are brought to their end. It waits for streams
// and cancels; when ctx ends first it abandons the cancels and returns ctx's
// error. Requests are still answered, so it goes before [http.Server.Shutdown].
// It may be called twice, and concurrently; each call waits.
func (s *Server) Shutdown(ctx context.Context) error {
	s.life.stop(errStopping)
	idle := s.life.open.drain()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		s.life.abandon()
		return ctx.Err()
	}
}

// stopping reports whether a shutdown has begun.
func (l *life) stopping() bool { return l.stopped.Err() != nil }

// untilStop returns a context that also ends, with the cause errStopping, when
// a shutdown begins.
func (l *life) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	detach := context.AfterFunc(l.stopped, func() { cancel(errStopping) })
	return ctx, func() { detach(); cancel(nil) }
}

// openWork counts what a shutdown waits for. After drain nothing is added: who
// comes later sees the shutdown and ends by itself.
type openWork struct {
	mu       sync.Mutex
	count    int
	draining bool
	idle     chan struct{} // closed when draining and count is 0
}

// enter adds one piece of work, to be ended by leave; false while draining.
func (w *openWork) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.draining {
		return false
	}
	w.count++
	return true
}

func (w *openWork) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count--
	if w.draining && w.count == 0 {
		close(w.idle)
	}
}

func (w *openWork) drain() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.draining {
		w.draining = true
		if w.count == 0 {
			close(w.idle)
		}
	}
	return w.idle
}
