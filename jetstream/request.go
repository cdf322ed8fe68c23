package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpool/turnpool/turn"
)

// unavailable gives an error of the connection its meaning.
func unavailable(err error) error {
	switch {
	case err == nil, errors.Is(err, turn.ErrUnavailable):
		return err
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", turn.ErrTooLarge, err)
	}
	return fmt.Errorf("%w: %w", turn.ErrUnavailable, err)
}

// request sends m and waits for one answer: until ctx ends, the time is over, or
// the connection is lost. The error is [turn.ErrTooLarge] or
// [turn.ErrUnavailable].
func (c *Client) request(ctx context.Context, m *nats.Msg, timeout time.Duration) (*nats.Msg, error) {
	// The client library rejects both too, but keeps a record of the request
	// until it is closed.
	if !c.nc.IsConnected() {
		return nil, unavailable(errDisconnected)
	}
	if int64(m.Size()) > c.nc.MaxPayload() {
		return nil, unavailable(nats.ErrMaxPayload)
	}
	waiting, cancel := context.WithTimeoutCause(ctx, timeout, errNoAnswer)
	defer cancel()
	defer context.AfterFunc(c.linked(), cancel)()
	answer, err := c.nc.RequestMsgWithContext(waiting, m)
	switch {
	case err == nil:
		return answer, nil
	case ctx.Err() != nil || waiting.Err() == nil:
		return nil, unavailable(err)
	case errors.Is(context.Cause(waiting), errNoAnswer):
		return nil, unavailable(errNoAnswer)
	default:
		return nil, unavailable(errDisconnected)
	}
}

// askAPI asks the JetStream API and decodes the answer.
func (c *Client) askAPI(ctx context.Context, subject string, question, answer any) error {
	m := nats.NewMsg("$JS.API." + subject)
	if question != nil {
		data, err := json.Marshal(question)
		if err != nil {
			return err
		}
		m.Data = data
	}
	reply, err := c.request(ctx, m, c.waits.ask)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(reply.Data, answer); err != nil {
		return fmt.Errorf("%w: answer of %s: %w", turn.ErrUnavailable, subject, err)
	}
	return nil
}

// pubAck is the answer to a message that a stream listens to.
type pubAck struct {
	Sequence  uint64              `json:"seq"`
	Duplicate bool                `json:"duplicate"`
	Error     *jetstream.APIError `json:"error"`
}

// store publishes m once, and returns the stream's answer. The library's own
// way would try again by itself when nobody listens, which reorders.
func (c *Client) store(ctx context.Context, m *nats.Msg) (pubAck, error) {
	reply, err := c.request(ctx, m, c.waits.ack)
	if err != nil {
		return pubAck{}, err
	}
	var ack pubAck
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return pubAck{}, fmt.Errorf("%w: answer to a publish: %w", turn.ErrUnavailable, err)
	}
	return ack, nil
}

// storedMsg is a message of a stream.
type storedMsg struct {
	subject  string
	sequence uint64
	time     time.Time
	header   nats.Header
	data     []byte
}

// errNoMessage says that the stream has no such message.
var errNoMessage = errors.New("no message")

// lastMsg reads the last message of the subject, which may have wildcards, from
// any replica. One that lags behind may answer.
func (c *Client) lastMsg(ctx context.Context, stream, subject string) (*storedMsg, error) {
	question, err := json.Marshal(getRequest{Last: subject})
	if err != nil {
		return nil, err
	}
	m := nats.NewMsg("$JS.API.DIRECT.GET." + stream)
	m.Data = question
	reply, err := c.request(ctx, m, c.waits.ask)
	if err != nil {
		return nil, err
	}
	return directMsg(reply)
}

// directMsg reads one answer to a direct get.
func directMsg(m *nats.Msg) (*storedMsg, error) {
	if status := m.Header.Get("Status"); status != "" && len(m.Data) == 0 {
		if status == "404" {
			return nil, errNoMessage
		}
		return nil, fmt.Errorf("%w: %s %s", turn.ErrUnavailable, status, m.Header.Get("Description"))
	}
	sequence, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("stored message: sequence: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
	if err != nil {
		return nil, fmt.Errorf("stored message: time: %w", err)
	}
	return &storedMsg{
		subject:  m.Header.Get(jetstream.SubjectHeader),
		sequence: sequence,
		time:     at,
		header:   m.Header,
		data:     m.Data,
	}, nil
}

// getRequest asks for one message, or for a batch of them.
type getRequest struct {
	Sequence uint64 `json:"seq,omitempty"`
	Last     string `json:"last_by_subj,omitempty"`
	Next     string `json:"next_by_subj,omitempty"`
	Batch    int    `json:"batch,omitempty"`
	MaxBytes int    `json:"max_bytes,omitempty"`
}

// leaderMsg reads one message from the stream's leader, so that the answer is
// not older than what was acknowledged. It costs more than a direct get.
func (c *Client) leaderMsg(ctx context.Context, stream string, question getRequest) (*storedMsg, error) {
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject  string    `json:"subject"`
			Sequence uint64    `json:"seq"`
			Header   []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
			Time     time.Time `json:"time"`
		} `json:"message"`
	}
	if err := c.askAPI(ctx, "STREAM.MSG.GET."+stream, question, &answer); err != nil {
		return nil, err
	}
	switch {
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, errNoMessage
	case answer.Error != nil:
		return nil, fmt.Errorf("%w: %w", turn.ErrUnavailable, answer.Error)
	case answer.Message == nil:
		return nil, fmt.Errorf("%w: empty answer", turn.ErrUnavailable)
	}
	m := answer.Message
	var header nats.Header
	if len(m.Header) > 0 {
		var err error
		if header, err = nats.DecodeHeadersMsg(m.Header); err != nil {
			return nil, fmt.Errorf("stored message %d of %s: %w", m.Sequence, stream, err)
		}
	}
	return &storedMsg{subject: m.Subject, sequence: m.Sequence, time: m.Time, header: header, data: m.Data}, nil
}

const (
	// A batch's messages wait in the client until they are handled.
	batchMsgs  = 256
	batchBytes = 1 << 20
)

// readBatch calls handle for stored messages of the subject from the sequence
// on, in order, and reports whether there were any. They may come from a replica
// that lags behind. There may be more.
func (c *Client) readBatch(ctx context.Context, stream, subject string, from uint64, handle func(*storedMsg)) (found bool, err error) {
	if !c.nc.IsConnected() {
		return false, unavailable(errDisconnected)
	}
	question, err := json.Marshal(getRequest{Sequence: max(from, 1), Next: subject, Batch: batchMsgs, MaxBytes: batchBytes})
	if err != nil {
		return false, err
	}
	// Room for the whole batch and its end, so that nothing is dropped.
	answers := make(chan *nats.Msg, batchMsgs+1)
	inbox := c.nc.NewInbox()
	sub, err := c.nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return false, unavailable(err)
	}
	defer sub.Unsubscribe()
	if err := c.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, question); err != nil {
		return false, unavailable(err)
	}
	waiting, cancel := context.WithTimeout(ctx, c.waits.ask)
	defer cancel()
	defer context.AfterFunc(c.linked(), cancel)()
	for {
		select {
		case m := <-answers:
			if m.Header.Get("Status") == "204" && len(m.Data) == 0 {
				return found, nil // the end of the batch
			}
			stored, err := directMsg(m)
			if errors.Is(err, errNoMessage) {
				return found, nil
			}
			if err != nil {
				return found, err
			}
			found = true
			handle(stored)
		case <-waiting.Done():
			return found, unavailable(errNoAnswer)
		}
	}
}

// backoff is the pause between two tries: doubled each time, up to a second.
type backoff time.Duration

const (
	minPause = 10 * time.Millisecond
	maxPause = time.Second
)

// pause waits before the next try, which comes at once after a reconnect. False
// says that ctx has ended, or the client.
func (c *Client) pause(ctx context.Context, b *backoff) bool {
	d := min(max(time.Duration(*b)*2, minPause), maxPause)
	*b = backoff(d)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.Reconnected():
	case <-ctx.Done():
		return false
	case <-c.closed:
		return false
	}
	return ctx.Err() == nil
}
