package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpool/turnpool/turn"
)

// Bury keeps the letter of a turn that was given up. A turn that has one keeps its
// first, so burying it again does no harm. A request too large for one message,
// with what else the letter has, leaves its input out.
func (c *Client) Bury(ctx context.Context, letter *turn.DeadLetter) error {
	s := letter.Submission
	if err := checkAddress(s.Tenant, s.InvocationID); err != nil {
		return err
	}
	err := c.bury(ctx, letter)
	if errors.Is(err, turn.ErrTooLarge) {
		short, request := *letter, *s
		request.Request.Input = turn.Input{}
		short.Submission = &request
		err = c.bury(ctx, &short)
	}
	return wrapTurn(err, "bury turn", s.InvocationID)
}

func (c *Client) bury(ctx context.Context, letter *turn.DeadLetter) error {
	data, err := json.Marshal(letter)
	if err != nil {
		return err
	}
	m := nats.NewMsg(c.cfg.deadSubject(letter.Submission.Tenant, letter.Submission.InvocationID))
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "0")
	m.Data = data
	ack, err := c.store(ctx, m)
	switch {
	case err != nil:
		return err
	case ack.Error == nil || isWrongSequence(ack.Error): // or it was there
		return nil
	case ack.Error.ErrorCode == jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return fmt.Errorf("%w: %w", turn.ErrTooLarge, ack.Error)
	default:
		return fmt.Errorf("%w: %w", turn.ErrUnavailable, ack.Error)
	}
}

// DeadLetter returns the letter of a turn, nil if there is none.
func (c *Client) DeadLetter(ctx context.Context, tenant, invocationID string) (*turn.DeadLetter, error) {
	stored, err := c.deadMsg(ctx, tenant, invocationID)
	if err != nil || stored == nil {
		return nil, err
	}
	return decodeLetter(stored)
}

func (c *Client) deadMsg(ctx context.Context, tenant, invocationID string) (*storedMsg, error) {
	if err := checkAddress(tenant, invocationID); err != nil {
		return nil, err
	}
	stored, err := c.leaderMsg(ctx, c.cfg.deadStream(), getRequest{Last: c.cfg.deadSubject(tenant, invocationID)})
	switch {
	case errors.Is(err, errNoMessage):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("dead letter %s: %w", invocationID, err)
	}
	return stored, nil
}

func decodeLetter(stored *storedMsg) (*turn.DeadLetter, error) {
	var letter turn.DeadLetter
	if err := json.Unmarshal(stored.data, &letter); err != nil {
		return nil, fmt.Errorf("dead letter %s: %w", stored.subject, err)
	}
	if letter.Submission == nil || letter.Error == nil {
		return nil, fmt.Errorf("dead letter %s: it has no submission, or no error", stored.subject)
	}
	return &letter, nil
}

// DeadLetters returns up to limit letters of a tenant, the newest first, and a
// cursor for those that follow, 0 if there are none. The zero cursor begins with
// the newest.
func (c *Client) DeadLetters(ctx context.Context, tenant string, cursor uint64, limit int) (letters []*turn.DeadLetter, next uint64, err error) {
	first, last, err := c.deadRange(ctx)
	if err != nil {
		return nil, 0, err
	}
	if cursor > 0 {
		last = min(last, cursor-1)
	}
	prefix := c.cfg.deadSubject(tenant, "")
	for sequence := last; sequence >= first && sequence > 0; sequence-- {
		stored, err := c.leaderMsg(ctx, c.cfg.deadStream(), getRequest{Sequence: sequence})
		if errors.Is(err, errNoMessage) {
			continue
		}
		if err != nil {
			return nil, 0, fmt.Errorf("list dead letters: %w", err)
		}
		if len(stored.subject) <= len(prefix) || stored.subject[:len(prefix)] != prefix {
			continue
		}
		if len(letters) == limit {
			return letters, sequence + 1, nil
		}
		letter, err := decodeLetter(stored)
		if err != nil {
			return nil, 0, err
		}
		letters = append(letters, letter)
	}
	return letters, 0, nil
}

// deadRange returns the numbers of the oldest and the newest letter.
func (c *Client) deadRange(ctx context.Context) (first, last uint64, err error) {
	var info struct {
		Error *jetstream.APIError `json:"error"`
		State struct {
			First uint64 `json:"first_seq"`
			Last  uint64 `json:"last_seq"`
		} `json:"state"`
	}
	if err := c.askAPI(ctx, "STREAM.INFO."+c.cfg.deadStream(), nil, &info); err != nil {
		return 0, 0, fmt.Errorf("list dead letters: %w", err)
	}
	if info.Error != nil {
		return 0, 0, fmt.Errorf("list dead letters: %w: %w", turn.ErrUnavailable, info.Error)
	}
	return info.State.First, info.State.Last, nil
}

// DropDeadLetter removes the letter of a turn. It reports whether there was one.
func (c *Client) DropDeadLetter(ctx context.Context, tenant, invocationID string) (bool, error) {
	stored, err := c.deadMsg(ctx, tenant, invocationID)
	if err != nil || stored == nil {
		return false, err
	}
	err = c.deleteMsg(ctx, c.cfg.deadStream(), stored.sequence)
	if errors.Is(err, errNotDeleted) {
		// Most likely it was dropped in between.
		if again, err := c.deadMsg(ctx, tenant, invocationID); err != nil || again == nil {
			return err == nil, err
		}
	}
	return err == nil, wrapTurn(err, "drop dead letter", invocationID)
}
