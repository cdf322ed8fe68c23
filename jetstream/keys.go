package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpool/turnpool/turn"
)

// keysKept is how long an idempotency key is known.
const keysKept = 24 * time.Hour

// ClaimKey keeps the entry under an idempotency key, or returns the one that is
// there; mine says which. A key is 64 hexadecimal digits. An error is
// [turn.ErrUnavailable]: then the entry may be there, and claiming it again tells.
func (c *Client) ClaimKey(ctx context.Context, tenant, key string, e turn.KeyEntry) (have turn.KeyEntry, mine bool, err error) {
	subject, err := c.keySubject(tenant, key)
	if err != nil {
		return have, false, err
	}
	data, err := json.Marshal(e)
	if err != nil {
		return have, false, err
	}
	m := nats.NewMsg(subject)
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "0")
	m.Data = data
	ack, err := c.store(ctx, m)
	switch {
	case err != nil:
		return have, false, fmt.Errorf("claim a key: %w", err)
	case ack.Error == nil:
		return e, true, nil
	case !isWrongSequence(ack.Error):
		return have, false, fmt.Errorf("claim a key: %w: %w", turn.ErrUnavailable, ack.Error)
	}
	stored, err := c.leaderMsg(ctx, c.keysStream(), getRequest{Last: subject})
	if errors.Is(err, errNoMessage) { // it was released in between
		return have, false, fmt.Errorf("claim a key: %w: it is being released", turn.ErrUnavailable)
	}
	if err != nil {
		return have, false, fmt.Errorf("claim a key: %w", err)
	}
	if err := json.Unmarshal(stored.data, &have); err != nil {
		return have, false, fmt.Errorf("claim a key: %w", err)
	}
	// An entry that is the very one was stored by an earlier try of this call.
	return have, have == e, nil
}

// ReleaseKey forgets a key, if its entry is the one given.
func (c *Client) ReleaseKey(ctx context.Context, tenant, key string, e turn.KeyEntry) error {
	subject, err := c.keySubject(tenant, key)
	if err != nil {
		return err
	}
	stored, err := c.leaderMsg(ctx, c.keysStream(), getRequest{Last: subject})
	if errors.Is(err, errNoMessage) {
		return nil
	}
	var have turn.KeyEntry
	if err == nil {
		err = json.Unmarshal(stored.data, &have)
	}
	if err == nil && have == e {
		err = c.deleteMsg(ctx, c.keysStream(), stored.sequence)
	}
	if err != nil {
		return fmt.Errorf("release a key: %w", err)
	}
	return nil
}

func (c *Client) keySubject(tenant, key string) (string, error) {
	if !turn.ValidName(tenant) || len(key) != 64 || strings.Trim(key, "0123456789abcdef") != "" {
		return "", fmt.Errorf("key %.80q of tenant %q: malformed", key, tenant)
	}
	return "$KV." + c.cfg.keysBucket() + "." + tenant + "." + key, nil
}

// keysStream is the stream behind the bucket.
func (c *Client) keysStream() string { return "KV_" + c.cfg.keysBucket() }

func isWrongSequence(err *jetstream.APIError) bool {
	return err.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		err.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}
