package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpool/turnpool/turn"
)

// delivery implements [turn.Delivery].
type delivery struct {
	msg *nats.Msg
	// meta is nil if the broker's reply subject could not be read.
	meta *nats.MsgMetadata
}

func newDelivery(m *nats.Msg) *delivery {
	meta, err := m.Metadata()
	if err != nil {
		meta = nil
	}
	return &delivery{msg: m, meta: meta}
}

// Submission implements [turn.Delivery].
func (d *delivery) Submission() (*turn.Submission, error) {
	s, err := turn.DecodeSubmission(d.msg.Data)
	if err != nil {
		return nil, err
	}
	if tenant, id := d.Address(); s.Tenant != tenant || s.InvocationID != id {
		return nil, fmt.Errorf("turn %s of tenant %s is queued as %s", s.InvocationID, s.Tenant, d.msg.Subject)
	}
	if d.meta == nil {
		return nil, fmt.Errorf("turn %s: no time in %q", s.InvocationID, d.msg.Reply)
	}
	s.StoredAt = d.meta.Timestamp.UnixMilli()
	return s, nil
}

// Address implements [turn.Delivery].
func (d *delivery) Address() (tenant, invocationID string) { return turnAddress(d.msg.Subject) }

// Redelivered implements [turn.Delivery].
func (d *delivery) Redelivered() bool { return d.meta == nil || d.meta.NumDelivered > 1 }

// The answers to a delivery. They are not acknowledged in turn: an ack that is
// lost leads to another delivery, which finds the turn's outcome. A connection
// that is down is an error.

// Ack implements [turn.Delivery].
func (d *delivery) Ack() error { return d.answer("ack", "+ACK") }

// Nak implements [turn.Delivery].
func (d *delivery) Nak(delay time.Duration) error {
	if delay <= 0 {
		return d.answer("nak", "-NAK")
	}
	return d.answer("nak", fmt.Sprintf(`-NAK {"delay": %d}`, delay.Nanoseconds()))
}

// Term implements [turn.Delivery].
func (d *delivery) Term() error { return d.answer("term", "+TERM") }

func (d *delivery) inProgress() error { return d.answer("in progress", "+WPI") }

func (d *delivery) answer(what, body string) error {
	if err := d.msg.Respond([]byte(body)); err != nil {
		_, id := d.Address()
		return fmt.Errorf("%s of turn %s: %w", what, id, unavailable(err))
	}
	return nil
}

// Heartbeat tells the broker that the turns of these deliveries are still being
// worked on. Nil says that the broker has heard it: each is left to its worker
// for another ack wait from the time of the call. On an error, which of them it
// heard is unknown.
//
// It says nothing about whose turn it is: the broker would also believe the
// heartbeat of a worker that has lost it.
func (r *Consumer) Heartbeat(ctx context.Context, deliveries []turn.Delivery) error {
	if err := r.client.heartbeat(ctx, deliveries); err != nil {
		return fmt.Errorf("heartbeat of %d turns: %w", len(deliveries), unavailable(err))
	}
	return nil
}

func (c *Client) heartbeat(ctx context.Context, deliveries []turn.Delivery) error {
	if !c.nc.IsConnected() {
		return errDisconnected // a flush would wait for the reconnect
	}
	before := c.nc.Stats().Reconnects
	for _, d := range deliveries {
		own, ok := d.(*delivery)
		if !ok {
			return errors.New("delivery is not of this broker")
		}
		if err := own.inProgress(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.waits.ask)
	defer cancel()
	if err := c.nc.FlushWithContext(ctx); err != nil {
		return err
	}
	// The flush of the next connection says nothing about what was in this one.
	if c.nc.Stats().Reconnects != before {
		return errDisconnected
	}
	return nil
}
