package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpool/turnpool/turn"
)

// cancelEvery is the pause between two calls for the holder of a turn: it may
// be between two workers just then.
const cancelEvery = 250 * time.Millisecond

// Cancel asks the worker that holds the turn to stop it, again and again until
// one says that it does, or ctx ends. Not held and no error: nobody answered in
// that time.
func (c *Client) Cancel(ctx context.Context, invocationID string) (held bool, err error) {
	if !turn.ValidInvocationID(invocationID) {
		return false, fmt.Errorf("cancel turn %q: malformed id", invocationID)
	}
	ticker := time.NewTicker(cancelEvery)
	defer ticker.Stop()
	for {
		_, err := c.request(ctx, nats.NewMsg(c.cfg.controlSubject(invocationID)), cancelEvery)
		if err == nil {
			return true, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if heard(err) {
				return false, nil
			}
			return false, fmt.Errorf("cancel turn %s: %w", invocationID, err)
		case <-c.closed:
			return false, fmt.Errorf("cancel turn %s: %w", invocationID, unavailable(errClosed))
		}
	}
}

// heard reports whether a request without an answer was at least heard: by the
// broker, or by workers who do not have the turn.
func heard(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, errNoAnswer) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// OnCancel calls stop for every turn that is to be stopped, one after another.
// Where stop returns true, this process holds the turn and has begun to stop it;
// it must not wait for that. It may be called again for one turn. Calls come from
// when OnCancel has returned; the returned func ends them, though one may still
// be running.
func (c *Client) OnCancel(stop func(invocationID string) bool) (unsubscribe func(), err error) {
	prefix := c.cfg.controlSubject("")
	sub, err := c.nc.Subscribe(prefix+"*", func(m *nats.Msg) {
		id := strings.TrimPrefix(m.Subject, prefix)
		if !stop(id) {
			return
		}
		if err := m.Respond(nil); err != nil {
			c.log.Warn("could not confirm that a turn is stopped", "invocation", id, "error", err)
		}
	})
	if err == nil {
		err = c.nc.FlushTimeout(c.waits.ask)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for cancels: %w", unavailable(err))
	}
	return func() { _ = sub.Unsubscribe() }, nil
}
