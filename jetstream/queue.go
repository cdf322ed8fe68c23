package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpool/turnpool/turn"
)

// Error codes of the server that the client library does not name.
const (
	errCodeAccountResources jetstream.ErrorCode = 10002
	errCodeResources        jetstream.ErrorCode = 10023
	errCodeMemory           jetstream.ErrorCode = 10028
	errCodeStorage          jetstream.ErrorCode = 10047
	errCodeStoreFailed      jetstream.ErrorCode = 10077
	errCodeHeaderTooLarge   jetstream.ErrorCode = 10097
)

// Publish queues a turn, in the interactive lane unless it names another. Nil
// says that it is queued, or was before: publishing a turn again does no harm.
// When the broker does not answer, it is published again until ctx ends, at most
// for some seconds.
//
// [turn.ErrQueueFull] and [turn.ErrTooLarge] say that the turn is not queued.
// After [turn.ErrUnavailable], a cancelled context included, it may be.
func (c *Client) Publish(ctx context.Context, s *turn.Submission) error {
	s = withLane(s)
	m, err := c.turnMsg(s)
	if err != nil {
		return err
	}
	if err := c.publish(ctx, s, m); err != nil {
		return fmt.Errorf("publish turn %s: %w", s.InvocationID, err)
	}
	return nil
}

func withLane(s *turn.Submission) *turn.Submission {
	if s.Request.Lane != "" {
		return s
	}
	filled := *s
	filled.Request.Lane = turn.LaneInteractive
	return &filled
}

func (c *Client) turnMsg(s *turn.Submission) (*nats.Msg, error) {
	if s.Request.Lane != turn.LaneInteractive && s.Request.Lane != turn.LaneBatch {
		return nil, fmt.Errorf("publish turn %s: no lane %q", s.InvocationID, s.Request.Lane)
	}
	if !turn.ValidName(s.Pool) || !turn.ValidName(s.Request.Agent) || !validAddress(s.Tenant, s.InvocationID) {
		return nil, fmt.Errorf("publish turn %q of tenant %q, agent %q, pool %q: malformed name",
			s.InvocationID, s.Tenant, s.Request.Agent, s.Pool)
	}
	data, err := s.Encode()
	if err != nil {
		return nil, err
	}
	m := nats.NewMsg(c.cfg.turnSubject(s))
	m.Header.Set(jetstream.MsgIDHeader, s.InvocationID)
	m.Data = data
	return m, nil
}

// validAddress guards subjects: a token with a dot or a wildcard would name
// another turn's.
func validAddress(tenant, invocationID string) bool {
	return turn.ValidName(tenant) && turn.ValidInvocationID(invocationID)
}

func checkAddress(tenant, invocationID string) error {
	if !validAddress(tenant, invocationID) {
		return fmt.Errorf("turn %q of tenant %q: malformed name", invocationID, tenant)
	}
	return nil
}

func (c *Client) publish(ctx context.Context, s *turn.Submission, m *nats.Msg) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.waits.publish, errNoAnswer)
	defer cancel()
	for pause := backoff(0); ; {
		ack, err := c.store(ctx, m)
		if err == nil && ack.Error == nil {
			return nil
		}
		if err == nil {
			err = c.refused(ctx, s, ack.Error)
		}
		if !errors.Is(err, turn.ErrUnavailable) || !c.pause(ctx, &pause) {
			return err
		}
	}
}

// refused finds the meaning of the stream's refusal. Nil: the turn is queued
// already, by a publish whose answer was lost.
func (c *Client) refused(ctx context.Context, s *turn.Submission, refusal *jetstream.APIError) error {
	switch refusal.ErrorCode {
	case jetstream.JSErrCodeStreamMessageExceedsMaximum, errCodeHeaderTooLarge:
		return fmt.Errorf("%w: %w", turn.ErrTooLarge, refusal)
	case errCodeAccountResources, errCodeResources, errCodeMemory, errCodeStorage:
		return fmt.Errorf("%w: %w", turn.ErrQueueFull, refusal)
	case errCodeStoreFailed:
		if strings.Contains(refusal.Description, "maximum") {
			return c.full(ctx, s, refusal)
		}
	}
	return fmt.Errorf("%w: %w", turn.ErrUnavailable, refusal)
}

// full tells a lane that is full from one that has the turn.
func (c *Client) full(ctx context.Context, s *turn.Submission, refusal *jetstream.APIError) error {
	lane := s.Request.Lane
	subject := c.cfg.anyTurnSubject(lane, s.Tenant, s.InvocationID)
	_, err := c.leaderMsg(ctx, c.cfg.laneStream(lane), getRequest{Last: subject})
	switch {
	case !errors.Is(err, errNoMessage):
		return err
	case strings.Contains(refusal.Description, "per subject"):
		// It was there, and was settled since: the next try decides.
		return fmt.Errorf("%w: %w", turn.ErrUnavailable, refusal)
	default:
		return fmt.Errorf("%w: %w", turn.ErrQueueFull, refusal)
	}
}

// Lookup returns a turn that is queued, or in the hands of a worker, with the
// time it was stored; nil if it is in neither lane.
func (c *Client) Lookup(ctx context.Context, tenant, invocationID string) (*turn.Submission, error) {
	stored, _, err := c.queued(ctx, tenant, invocationID)
	if err != nil || stored == nil {
		return nil, err
	}
	s, err := turn.DecodeSubmission(stored.data)
	if err != nil {
		return nil, fmt.Errorf("look up turn %s: %w", invocationID, err)
	}
	s.StoredAt = stored.time.UnixMilli()
	return s, nil
}

// Remove takes a turn out of its lane, also while a worker has it: then it is
// not delivered again. A turn that is in no lane is no error.
func (c *Client) Remove(ctx context.Context, tenant, invocationID string) error {
	stored, stream, err := c.queued(ctx, tenant, invocationID)
	if err != nil || stored == nil {
		return err
	}
	err = c.deleteMsg(ctx, stream, stored.sequence)
	if !errors.Is(err, errNotDeleted) {
		return wrapTurn(err, "remove turn", invocationID)
	}
	// Most likely it was settled in between.
	if again, _, err := c.queued(ctx, tenant, invocationID); err != nil || again == nil {
		return err
	}
	return wrapTurn(err, "remove turn", invocationID)
}

// errNotDeleted says that the stream would not delete a message, mostly because it
// is gone.
var errNotDeleted = fmt.Errorf("%w: message not deleted", turn.ErrUnavailable)

func (c *Client) deleteMsg(ctx context.Context, stream string, sequence uint64) error {
	question := struct {
		Sequence uint64 `json:"seq"`
		NoErase  bool   `json:"no_erase"`
	}{sequence, true}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := c.askAPI(ctx, "STREAM.MSG.DELETE."+stream, question, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return fmt.Errorf("%w: %w", errNotDeleted, answer.Error)
	}
	return nil
}

// wrapTurn says what was tried with which turn. Nil stays nil.
func wrapTurn(err error, what, invocationID string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", what, invocationID, err)
}

// queued returns the turn's message and its stream, nil if there is none. That
// there is none is the leaders' word, for a turn that was just accepted must not
// be unknown.
func (c *Client) queued(ctx context.Context, tenant, invocationID string) (*storedMsg, string, error) {
	if err := checkAddress(tenant, invocationID); err != nil {
		return nil, "", err
	}
	reads := []func(stream, subject string) (*storedMsg, error){
		func(stream, subject string) (*storedMsg, error) { return c.lastMsg(ctx, stream, subject) },
		func(stream, subject string) (*storedMsg, error) {
			return c.leaderMsg(ctx, stream, getRequest{Last: subject})
		},
	}
	for _, read := range reads {
		for _, lane := range turn.Lanes {
			stream := c.cfg.laneStream(lane)
			stored, err := read(stream, c.cfg.anyTurnSubject(lane, tenant, invocationID))
			if errors.Is(err, errNoMessage) {
				continue
			}
			if err != nil {
				return nil, "", fmt.Errorf("look up turn %s: %w", invocationID, err)
			}
			return stored, stream, nil
		}
	}
	return nil, "", nil
}
