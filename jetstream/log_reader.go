package jetstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/turnpool/turnpool/turn"
)

// liveBuffer is how many live messages wait for a reader. What comes when it is
// full is dropped, which the reader sees and reads back.
const liveBuffer = 64

// Watch returns a reader of a turn that is about to be published, from its first
// event on. It listens before Watch returns, and reads nothing back until it
// finds that it missed something.
func (c *Client) Watch(_ context.Context, tenant, invocationID string) (turn.LogReader, error) {
	r, err := c.newReader(tenant, invocationID, 0)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Follow returns a reader of a turn's events after the number after: what is
// stored, and what comes. The stored ones, and that there are none any more
// ([turn.ErrExpired]), or that the turn has ended ([io.EOF]), are there for the
// first Next, even if its ctx has ended.
func (c *Client) Follow(ctx context.Context, tenant, invocationID string, after int64) (turn.LogReader, error) {
	r, err := c.newReader(tenant, invocationID, max(after, 0))
	if err != nil {
		return nil, err
	}
	if err := r.begin(ctx); err != nil {
		r.Close()
		return nil, fmt.Errorf("log of turn %s: %w", invocationID, err)
	}
	return r, nil
}

// WatchResult is [Client.Watch] for those who want the result alone: Next returns
// nothing else. Of a turn that may have ended already, Check finds the result.
func (c *Client) WatchResult(_ context.Context, tenant, invocationID string) (turn.LogReader, error) {
	r, err := c.newReader(tenant, invocationID, 0)
	if err != nil {
		return nil, err
	}
	r.resultOnly = true
	return r, nil
}

func (c *Client) newReader(tenant, invocationID string, after int64) (*reader, error) {
	l, err := c.listen(tenant, invocationID)
	if err != nil {
		return nil, err
	}
	return &reader{listener: l, cursor: after}, nil
}

// listener is the subscription to a turn's live messages.
type listener struct {
	client  *Client
	turnID  string
	subject string // of the log
	live    chan *nats.Msg
	sub     *nats.Subscription
	// reconnected is closed at the next reconnect, which makes the reader stale:
	// it may have missed something. So do messages that were dropped.
	reconnected <-chan struct{}
	dropped     int
	stale       bool
	closed      chan struct{}
	closeOnce   sync.Once
}

func (c *Client) listen(tenant, invocationID string) (*listener, error) {
	if err := checkAddress(tenant, invocationID); err != nil {
		return nil, err
	}
	l := &listener{
		client:      c,
		turnID:      invocationID,
		subject:     c.cfg.logSubject(tenant, invocationID),
		live:        make(chan *nats.Msg, liveBuffer),
		reconnected: c.Reconnected(),
		closed:      make(chan struct{}),
	}
	sub, err := c.nc.ChanSubscribe(c.cfg.liveSubject(tenant, invocationID), l.live)
	if err != nil {
		return nil, fmt.Errorf("log of turn %s: %w", invocationID, unavailable(err))
	}
	l.sub = sub
	return l, nil
}

// Close implements [turn.LogReader]. A Next that waits returns.
func (l *listener) Close() {
	l.closeOnce.Do(func() {
		close(l.closed)
		_ = l.sub.Unsubscribe()
	})
}

// wait waits for a live message. Nil without an error: look what there is.
func (l *listener) wait(ctx context.Context) (*nats.Msg, error) {
	select {
	case m := <-l.live:
		return m, nil
	default:
	}
	select {
	case m := <-l.live:
		return m, nil
	case <-l.reconnected:
		l.reconnected = l.client.Reconnected()
		l.stale = true
		return nil, nil
	case <-l.closed:
		return nil, fmt.Errorf("log of turn %s: reader closed", l.turnID)
	case <-l.client.closed:
		return nil, fmt.Errorf("log of turn %s: %w", l.turnID, unavailable(errClosed))
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// reader implements [turn.LogReader]. It belongs to one goroutine, but for
// Close.
type reader struct {
	*listener
	// resultOnly makes it skip all but the result. It then needs no other
	// message, and reads nothing back but the last one.
	resultOnly bool
	// cursor is the number of the last event returned, or skipped.
	cursor int64
	// seen is the sequence of the last message handled, known that of the last
	// one there is: if it is greater, messages are to be read back.
	seen, known uint64
	// frames are ready to be returned, and after them end.
	frames []turn.Frame
	end    error
}

// Next implements [turn.LogReader]. What is there is returned even if ctx has
// ended: ctx bounds the wait. While the broker is away Next waits, and after a
// reconnect it looks by itself for what was missed. Its errors are [io.EOF],
// [turn.ErrExpired], and that of a log that cannot be read, which are final;
// those of ctx; and those of a closed reader or client.
func (r *reader) Next(ctx context.Context) ([]turn.Frame, error) {
	for pause := backoff(0); ; {
		r.drain()
		if len(r.frames) > 0 {
			frames := r.frames
			r.frames = nil
			return frames, nil
		}
		if r.end != nil {
			return nil, r.end
		}
		err := r.more(ctx)
		if errors.Is(err, turn.ErrUnavailable) && r.client.pause(ctx, &pause) {
			continue
		}
		if err != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, err
		}
	}
}

// more does one step towards more frames.
func (r *reader) more(ctx context.Context) error {
	// The last messages may be among those that were dropped; then no later one
	// shows it. What is dropped from now on is, for then one is waiting.
	if n, err := r.sub.Dropped(); err == nil && n != r.dropped {
		r.dropped, r.stale = n, true
	}
	switch {
	case r.stale:
		return r.look(ctx)
	case r.seen < r.known:
		return r.readBack(ctx)
	}
	m, err := r.wait(ctx)
	if m != nil {
		r.handleLive(m)
	}
	return err
}

// Check implements [turn.LogReader].
func (r *reader) Check(ctx context.Context) error {
	if err := r.look(ctx); err != nil {
		return fmt.Errorf("log of turn %s: %w", r.turnID, err)
	}
	return nil
}

// look finds out how far the log goes.
func (r *reader) look(ctx context.Context) error {
	stored, err := r.client.lastMsg(ctx, r.client.cfg.logStream(), r.subject)
	if err != nil && !errors.Is(err, errNoMessage) {
		return err
	}
	r.stale = false
	if err == nil && r.resultOnly {
		r.handleStored(stored)
	} else if err == nil {
		r.known = max(r.known, stored.sequence)
	}
	return nil
}

// begin reads what is stored after the cursor, or the first part of it.
func (r *reader) begin(ctx context.Context) error {
	stream := r.client.cfg.logStream()
	stored, err := r.client.lastMsg(ctx, stream, r.subject)
	if errors.Is(err, errNoMessage) && r.cursor > 0 {
		// It had events. Before they are called gone, ask who must know.
		stored, err = r.client.leaderMsg(ctx, stream, getRequest{Last: r.subject})
	}
	switch {
	case errors.Is(err, errNoMessage) && r.cursor > 0:
		r.fail(turn.ErrExpired)
		return nil
	case errors.Is(err, errNoMessage):
		return nil
	case err != nil:
		return err
	}
	last, err := storedRecord(stored)
	if err == nil && last.seq > r.cursor+1 {
		r.known = last.sequence
		return r.readBack(ctx)
	}
	r.handleStored(stored) // no other is needed
	return nil
}

// readBack reads the next messages after the last one seen.
func (r *reader) readBack(ctx context.Context) error {
	stream := r.client.cfg.logStream()
	found, err := r.client.readBatch(ctx, stream, r.subject, r.seen+1, r.handleStored)
	if err != nil || found {
		return err
	}
	// There is one, so the replica that answered lags behind, or it is gone.
	stored, err := r.client.leaderMsg(ctx, stream, getRequest{Sequence: r.seen + 1, Next: r.subject})
	if errors.Is(err, errNoMessage) {
		r.fail(turn.ErrExpired)
		return nil
	}
	if err != nil {
		return err
	}
	r.handleStored(stored)
	return nil
}

// drain handles the live messages that are there.
func (r *reader) drain() {
	for {
		select {
		case m := <-r.live:
			r.handleLive(m)
		default:
			return
		}
	}
}

func (r *reader) handleLive(m *nats.Msg) {
	rec, err := liveRecord(m)
	switch {
	case err != nil:
		r.fail(err)
	case r.resultOnly || rec.previous == r.seen:
		r.handle(&rec)
	case rec.sequence > r.seen:
		// Something is missing in between. It is read back, and this one with it.
		r.known = max(r.known, rec.sequence)
	}
}

func (r *reader) handleStored(m *storedMsg) {
	rec, err := storedRecord(m)
	if err != nil {
		r.fail(err)
		return
	}
	r.handle(&rec)
}

// handle takes the next message of the log.
func (r *reader) handle(rec *record) {
	if r.end != nil || rec.sequence <= r.seen {
		return
	}
	r.seen = rec.sequence
	last := rec.seq + rec.visible() - 1
	switch {
	case r.resultOnly && rec.lastType() != turn.TypeResult:
		return
	case r.resultOnly:
		r.cursor = last - 1
	case rec.seq > r.cursor+1:
		r.fail(turn.ErrExpired)
		return
	}
	frames, err := rec.appendFrames(r.frames, r.cursor)
	if err != nil {
		r.fail(err)
		return
	}
	r.frames = frames
	r.cursor = max(r.cursor, last)
	if rec.lastType() == turn.TypeResult {
		r.end = io.EOF
	}
}

func (r *reader) fail(err error) {
	if r.end == nil {
		r.end = fmt.Errorf("log of turn %s, after event %d: %w", r.turnID, r.cursor, err)
	}
}
