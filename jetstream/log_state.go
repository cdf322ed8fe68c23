package jetstream

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpool/turnpool/turn"
)

// emptyLog is the state of a log without messages.
var emptyLog = turn.LogState{NextSeq: 1}

// State returns what the last message of the turn's log says. Of a log that is
// empty, or not kept any more, Sequence is 0.
func (c *Client) State(ctx context.Context, tenant, invocationID string) (turn.LogState, error) {
	if err := checkAddress(tenant, invocationID); err != nil {
		return turn.LogState{}, err
	}
	state, err := c.logState(ctx, c.cfg.logSubject(tenant, invocationID))
	if err != nil {
		return state, fmt.Errorf("state of the log of turn %s: %w", invocationID, err)
	}
	return state, nil
}

// logState asks the stream's leader, for who writes must know the very last
// message: it decides whether a writer goes on.
func (c *Client) logState(ctx context.Context, subject string) (turn.LogState, error) {
	stored, err := c.leaderMsg(ctx, c.cfg.logStream(), getRequest{Last: subject})
	if errors.Is(err, errNoMessage) {
		return emptyLog, nil
	}
	if err != nil {
		return turn.LogState{}, err
	}
	last, err := storedRecord(stored)
	if err != nil {
		return turn.LogState{}, err
	}
	return last.state(), nil
}

// errRefused says that the log's last message is not the one expected.
var errRefused = errors.New("the log has moved")

// appendRecord stores r if the log's last message is the expected one. The error
// is errRefused, [turn.ErrTooLarge] or [turn.ErrUnavailable]; after the last, it
// may be stored.
func (c *Client) appendRecord(ctx context.Context, subject string, expected uint64, r *record) (sequence uint64, err error) {
	m := &nats.Msg{Subject: subject, Header: r.header(), Data: r.data}
	m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(expected, 10)}
	ack, err := c.store(ctx, m)
	if err != nil {
		return 0, err
	}
	if ack.Error == nil {
		return ack.Sequence, nil
	}
	if isWrongSequence(ack.Error) {
		return 0, errRefused
	}
	switch ack.Error.ErrorCode {
	case jetstream.JSErrCodeStreamMessageExceedsMaximum, errCodeHeaderTooLarge:
		return 0, fmt.Errorf("%w: %w", turn.ErrTooLarge, ack.Error)
	default:
		return 0, fmt.Errorf("%w: %w", turn.ErrUnavailable, ack.Error)
	}
}

// Finish ends the log of a turn with its result, whoever wrote what is there. A
// log that ends in a result is left as it is, so it may be called again. While
// the broker does not answer it tries again, until ctx ends:
// [turn.ErrUnavailable]; then the result may be there.
func (c *Client) Finish(ctx context.Context, tenant, invocationID string, result *turn.Result) error {
	if err := checkAddress(tenant, invocationID); err != nil {
		return err
	}
	data, err := turn.EncodeEvent(result)
	if err != nil {
		return fmt.Errorf("finish the log of turn %s: %w", invocationID, err)
	}
	r := &record{writer: newWriterID(), types: []string{turn.TypeResult}, data: data}
	if err := c.finish(ctx, c.cfg.logSubject(tenant, invocationID), r); err != nil {
		return fmt.Errorf("finish the log of turn %s: %w", invocationID, err)
	}
	return nil
}

func (c *Client) finish(ctx context.Context, subject string, r *record) error {
	for pause := backoff(0); ; {
		last, err := c.logState(ctx, subject)
		if err == nil && last.Finished {
			return nil
		}
		if err == nil {
			r.attempt, r.seq = max(last.Attempt, 1), last.NextSeq
			_, err = c.appendRecord(ctx, subject, last.Sequence, r)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errRefused), errors.Is(err, turn.ErrUnavailable):
			if !c.pause(ctx, &pause) {
				return unavailable(err)
			}
		default:
			return err
		}
	}
}

// newWriterID names one writer of a log: two workers may write as one attempt.
func newWriterID() string {
	b := make([]byte, 8)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
