package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/turnpool/turnpool/turn"
)

// checkTimeout bounds one look at the log's last message, and retryDelay is the
// time between two while the broker does not answer.
const (
	checkTimeout = 5 * time.Second
	retryDelay   = time.Second
)

// viewer gets what a reader reads.
type viewer interface {
	// frames takes the next events; done when it wants no more.
	frames(frames []turn.Frame) (done bool, err error)
	// beat is called each heartbeat.
	beat() error
}

// follow reads until the turn's result was read, the viewer is done, ctx ends,
// a shutdown begins (errStopping), or the reader breaks. A broker that does not
// answer is waited for, as long as the viewer wants to.
func (s *Server) follow(ctx context.Context, reader turn.LogReader, v viewer) error {
	ctx, cancel := s.life.untilStop(ctx)
	defer cancel()
	for {
		done, err := s.followForBeat(ctx, reader, v)
		if done || err != nil {
			return err
		}
		if err := v.beat(); err != nil {
			return err
		}
		s.check(ctx, reader)
	}
}

// followForBeat follows for one heartbeat.
func (s *Server) followForBeat(ctx context.Context, reader turn.LogReader, v viewer) (done bool, err error) {
	beat, cancel := context.WithTimeout(ctx, s.cfg.Heartbeat)
	defer cancel()
	mended := false
	for {
		frames, err := reader.Next(beat)
		switch {
		case err == nil:
			mended = false
			if done, err := v.frames(frames); done || err != nil {
				return done, err
			}
			if beat.Err() != nil { // under load Next need not see the end
				return false, context.Cause(ctx)
			}
		case errors.Is(err, io.EOF):
			return true, nil
		case beat.Err() != nil:
			return false, context.Cause(ctx) // nil: only the beat is over
		case errors.Is(err, turn.ErrExpired) || mended:
			return false, err
		default:
			mended = s.mend(beat, reader, err)
		}
	}
}

// mend is called when a reader has failed. It reports whether the log can be
// read again; a reader that fails all the same is broken.
func (s *Server) mend(ctx context.Context, reader turn.LogReader, failure error) bool {
	s.log.Debug("reading a turn's events failed", "error", failure)
	if s.check(ctx, reader) == nil {
		return true
	}
	timer := time.NewTimer(retryDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

func (s *Server) check(ctx context.Context, reader turn.LogReader) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return reader.Check(ctx)
}

// waiter is the viewer who waits for the result alone.
type waiter struct {
	result  json.RawMessage
	started bool
}

func (w *waiter) frames(frames []turn.Frame) (bool, error) {
	w.started = w.started || len(frames) > 0
	for _, f := range frames {
		if f.Type == turn.TypeResult {
			w.result = f.Data
			return true, nil
		}
	}
	return false, nil
}

func (w *waiter) beat() error { return nil }

// await waits for the turn's result event, at most for the limit. It also
// reports whether there was any event.
func (s *Server) await(ctx context.Context, reader turn.LogReader, limit time.Duration) (result json.RawMessage, started bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var w waiter
	if err := s.follow(ctx, reader, &w); err != nil && ctx.Err() == nil && !errors.Is(err, errStopping) {
		s.log.Warn("waiting for a turn's result failed", "error", err)
	}
	return w.result, w.started
}
