package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpool/turnpool/turn"
)

// Consumer receives the turns of one pool. Its methods may be used
// concurrently.
type Consumer struct {
	client *Client
	pool   string
	// pullBytes bounds what a pull delivers.
	pullBytes int64
	// ackWait is in nanoseconds, as the durables have it.
	ackWait atomic.Int64

	mu sync.Mutex
	// idle inboxes wait for the next pull. There are as many as there were pulls
	// at once.
	idle   []*inbox
	closed bool
}

// Consumer returns the consumer of a pool, and creates the durables that are
// missing. Durables that are there stay as they are.
func (c *Client) Consumer(ctx context.Context, pool string) (*Consumer, error) {
	if !turn.ValidName(pool) {
		return nil, fmt.Errorf("consumer of pool %q: malformed name", pool)
	}
	consumer := &Consumer{client: c, pool: pool, pullBytes: pullBytes}
	if err := consumer.Ensure(ctx); err != nil {
		return nil, err
	}
	return consumer, nil
}

// Ensure creates what is missing of the pool's durables and their streams. It
// may be called at any time.
func (r *Consumer) Ensure(ctx context.Context) error {
	err := r.ensureDurables(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if err = r.client.createMissing(ctx); err == nil {
			err = r.ensureDurables(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("consumer of pool %s: %w", r.pool, unavailable(err))
	}
	return nil
}

func (r *Consumer) ensureDurables(ctx context.Context) error {
	var shortest time.Duration
	for _, lane := range turn.Lanes {
		info, err := r.ensureDurable(ctx, lane)
		if err != nil {
			return err
		}
		if wait := info.Config.AckWait; shortest == 0 || wait < shortest {
			shortest = wait
		}
	}
	r.ackWait.Store(int64(shortest))
	return nil
}

func (r *Consumer) ensureDurable(ctx context.Context, lane turn.Lane) (*jetstream.ConsumerInfo, error) {
	js, stream := r.client.js, r.client.cfg.laneStream(lane)
	found, err := js.Consumer(ctx, stream, r.pool)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		found, err = js.CreateConsumer(ctx, stream, durable(r.client.cfg, lane, r.pool))
	}
	if errors.Is(err, jetstream.ErrConsumerExists) {
		found, err = js.Consumer(ctx, stream, r.pool) // another process was first, with other settings
	}
	if err != nil {
		return nil, err
	}
	return found.CachedInfo(), nil
}

// AckWait is how long the broker leaves a delivered turn to a worker that is
// silent: the durables' own setting, the shorter of the two lanes.
func (r *Consumer) AckWait() time.Duration { return time.Duration(r.ackWait.Load()) }

// Reconnected is [Client.Reconnected]: a heartbeat is due at once.
func (r *Consumer) Reconnected() <-chan struct{} { return r.client.Reconnected() }

// Close ends the subscriptions of pulls that have ended; a pull that waits ends
// as it would have.
func (r *Consumer) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, b := range r.idle {
		b.close()
	}
	r.idle = nil
}
