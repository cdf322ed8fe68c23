package worker

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/turnpool/turnpool/turn"
)

// Stream is a turn under way in this process. Its methods may be called from
// several goroutines.
type Stream struct {
	invocationID string
	start        func()
	abort        context.CancelCauseFunc
	done         chan struct{} // closed when result is there
	result       *turn.Result

	mu     sync.Mutex
	grown  sync.Cond    // signals that events has more, or that the turn has ended
	events []turn.Event // all so far; bounded by what one turn emits
	ended  bool
}

// newStream returns the stream of a turn that run brings to its end once the
// stream is started.
func newStream(ctx context.Context, run func(context.Context, *Stream) *turn.Result) *Stream {
	ctx, abort := context.WithCancelCause(ctx)
	s := &Stream{invocationID: turn.NewInvocationID(), abort: abort, done: make(chan struct{})}
	s.grown.L = &s.mu
	s.start = sync.OnceFunc(func() {
		go func() {
			defer abort(nil)
			s.finish(run(ctx, s))
		}()
	})
	return s
}

// InvocationID is the turn's id, known before it starts.
func (s *Stream) InvocationID() string { return s.invocationID }

// Events starts the turn and yields its events as they come: those of the
// ledger, and deltas with their accumulated text. The result is not among them.
// Each call yields them from the first, so it may be called at any time and more
// than once. Leaving the loop early does not stop the turn; [Stream.Abort] does.
func (s *Stream) Events() iter.Seq[turn.Event] {
	return func(yield func(turn.Event) bool) {
		s.start()
		for i := 0; ; i++ {
			e, ok := s.next(i)
			if !ok || !yield(e) {
				return
			}
		}
	}
}

// next waits for the event of the given number, counted from 0. There is none if
// the turn has ended before.
func (s *Stream) next(i int) (turn.Event, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i >= len(s.events) && !s.ended {
		s.grown.Wait()
	}
	if i >= len(s.events) {
		return nil, false
	}
	return s.events[i], true
}

// Result starts the turn, waits for its end, and returns how it ended. All calls
// return the same result, which is not to be changed.
func (s *Stream) Result() *turn.Result {
	s.start()
	<-s.done
	return s.result
}

// Abort stops the turn: its status is aborted, and nothing of it is kept. A turn
// that is being committed, or has ended, is not changed. It does not wait;
// [Stream.Result] does. It may be called twice, and before the turn has started:
// then the turn ends at once when it is started.
func (s *Stream) Abort() { s.abort(errAborted) }

var errAborted = errors.New("aborted by the caller")

func (s *Stream) finish(result *turn.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result, s.ended = result, true
	close(s.done)
	s.grown.Broadcast()
}

// streamSink is a stream as its own run sees it.
type streamSink Stream

// Emit implements [agent.Sink].
func (s *streamSink) Emit(e turn.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
	s.grown.Broadcast()
}

// Flush implements [agent.Sink]. In one process there is nothing to wait for.
func (s *streamSink) Flush(context.Context) error { return nil }
