package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
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
	for last := uint64(0); ; {
		stored, err := c.putKey(ctx, subject, last, nil, data)
		if err != nil {
			return have, false, fmt.Errorf("claim a key: %w", err)
		}
		if stored {
			return e, true, nil
		}
		there, err := c.leaderMsg(ctx, c.keysStream(), getRequest{Last: subject})
		switch {
		case errors.Is(err, errNoMessage): // it has just expired
			last = 0
		case err != nil:
			return have, false, fmt.Errorf("claim a key: %w", err)
		case there.header.Get(keyOperation) != "": // it was released
			last = there.sequence
		default:
			err = json.Unmarshal(there.data, &have)
			// An entry that is the very one was stored by an earlier try of this call.
			return have, have == e, err
		}
	}
}

// keyOperation is the header of a message that ends an entry of a bucket, which
// does not let messages be deleted.
const keyOperation = "KV-Operation"

// putKey stores a message of the bucket, if the key's last one is that of the given
// number (0: there is none), and reports whether it was.
func (c *Client) putKey(ctx context.Context, subject string, last uint64, header nats.Header, data []byte) (bool, error) {
	m := &nats.Msg{Subject: subject, Header: header, Data: data}
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(last, 10)}
	ack, err := c.store(ctx, m)
	switch {
	case err != nil:
		return false, err
	case ack.Error == nil:
		return true, nil
	case isWrongSequence(ack.Error):
		return false, nil
	default:
		return false, fmt.Errorf("%w: %w", turn.ErrUnavailable, ack.Error)
	}
}

// ReleaseKey forgets a key, if its entry is the one given.
func (c *Client) ReleaseKey(ctx context.Context, tenant, key string, e turn.KeyEntry) error {
	subject, err := c.keySubject(tenant, key)
	if err != nil {
		return err
	}
	there, err := c.leaderMsg(ctx, c.keysStream(), getRequest{Last: subject})
	if errors.Is(err, errNoMessage) || err == nil && there.header.Get(keyOperation) != "" {
		return nil
	}
	var have turn.KeyEntry
	if err == nil {
		err = json.Unmarshal(there.data, &have)
	}
	if err == nil && have == e {
		_, err = c.putKey(ctx, subject, there.sequence, nats.Header{keyOperation: {"DEL"}}, nil)
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
