package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpool/turnpool/turn"
)

// Depth says how much of a pool's work a lane holds.
type Depth struct {
	// Waiting turns are in nobody's hands, InFlight ones in a worker's, or resting
	// until they are tried again.
	Waiting  int64
	InFlight int64
	// Oldest is when the oldest of them was stored; the zero time if there is none.
	Oldest time.Time
}

// Depth returns the depth of a pool's lane. False: the lane has no such pool, so
// nothing is known.
func (c *Client) Depth(ctx context.Context, lane turn.Lane, pool string) (Depth, bool, error) {
	if !turn.ValidName(pool) {
		return Depth{}, false, nil
	}
	found, err := c.js.Consumer(ctx, c.cfg.laneStream(lane), pool)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return Depth{}, false, nil
	}
	if err != nil {
		return Depth{}, false, fmt.Errorf("depth of lane %s of pool %s: %w", lane, pool, unavailable(err))
	}
	info := found.CachedInfo()
	depth := Depth{Waiting: int64(info.NumPending), InFlight: int64(info.NumAckPending)}
	// What was acknowledged is gone from the stream: the first message is the oldest.
	oldest, err := c.leaderMsg(ctx, c.cfg.laneStream(lane), getRequest{Sequence: 1, Next: c.cfg.poolSubjects(lane, pool)})
	switch {
	case err == nil:
		depth.Oldest = oldest.time
	case !errors.Is(err, errNoMessage):
		return Depth{}, false, fmt.Errorf("depth of lane %s of pool %s: %w", lane, pool, err)
	}
	return depth, true, nil
}
