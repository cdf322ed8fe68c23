package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/turnpool/turnpool/turn"
)

// Writer returns the writer of one attempt of a turn. The last message of the
// log that the attempt knows of is last: an attempt that takes itself for the
// first gives the zero state.
//
// The writer keeps what is emitted until it is stored, however long the broker
// is away. It ends with ctx, which must therefore outlive the last Flush; what
// was not stored by then never is. It needs no closing, and has a goroutine only
// while something waits to be stored.
//
// Beside [turn.ErrLost] and [turn.ErrTaken], these errors of Flush are final: an
// event that cannot be encoded, [turn.ErrTooLarge] for one that the broker would
// not take, and the end of ctx. What was emitted before such an event is stored;
// it and all later ones are not, for a log has no holes. (The turn can still be
// ended by [Client.Finish].) After the turn's result nothing more is taken.
//
// Of a delta that ends within a character, the incomplete bytes wait for the
// next event, also across a Flush.
func (c *Client) Writer(ctx context.Context, tenant, invocationID string, attempt int, last turn.LogState) turn.LogWriter {
	w := &writer{
		client:  c,
		ctx:     ctx,
		turnID:  invocationID,
		subject: c.cfg.logSubject(tenant, invocationID),
		id:      newWriterID(),
		attempt: attempt,
		first:   last.Sequence == 0,
		lost:    make(chan struct{}),
		backlog: backlog{limits: limitsFor(int(c.nc.MaxPayload()))},
		tail:    position{last.Sequence, max(last.NextSeq, 1)},
	}
	w.final = checkAddress(tenant, invocationID)
	if last.Finished {
		// The broker would take more: the last message is the one expected.
		w.final = turn.ErrLost
		close(w.lost)
	}
	return w
}

// writer implements [turn.LogWriter].
type writer struct {
	client  *Client
	ctx     context.Context
	turnID  string
	subject string
	id      string
	attempt int
	// first says that this attempt knew of no other when it began.
	first bool
	lost  chan struct{}

	mu      sync.Mutex
	backlog backlog
	// stored counts the events that are stored, of those in backlog.added.
	stored int
	// sending says that a goroutine stores what waits; there is never a second.
	sending bool
	// ended says that the result was emitted.
	ended bool
	// broken is why no more events are taken, final why no more are stored.
	broken, final error
	// changed is closed when stored or final change. It is there only while
	// somebody waits for that.
	changed chan struct{}

	// tail and wrote belong to the goroutine that stores; wrote says that
	// something of this writer is stored.
	tail  position
	wrote bool
}

// position is the end of the log as its writer knows it.
type position struct {
	sequence uint64
	nextSeq  int64
}

// Emit implements [turn.LogWriter].
func (w *writer) Emit(e turn.Event) {
	if d, ok := e.(*turn.Delta); ok {
		w.take(func() { w.backlog.addDelta(d) })
		return
	}
	i, err := encodeItem(e, w.backlog.maxEvent)
	w.take(func() {
		if err != nil {
			w.client.log.Error("event cannot be stored", "invocation", w.turnID, "error", err)
			w.broken = err
			return
		}
		w.backlog.add(i)
		w.ended = i.typ == turn.TypeResult
	})
}

// take calls add if the writer still takes events, and sees that they are sent.
func (w *writer) take(add func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.final == nil && w.ctx.Err() != nil {
		w.final = context.Cause(w.ctx)
	}
	if w.final != nil || w.broken != nil || w.ended {
		return
	}
	add()
	if !w.sending && len(w.backlog.items) > 0 {
		w.sending = true
		go w.send()
	}
}

// Flush implements [turn.LogWriter].
func (w *writer) Flush(ctx context.Context) error {
	if err := w.flush(ctx); err != nil {
		return fmt.Errorf("log of turn %s, attempt %d: %w", w.turnID, w.attempt, err)
	}
	return nil
}

func (w *writer) flush(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for target := w.backlog.added; w.final == nil && w.stored < target; {
		if w.changed == nil {
			w.changed = make(chan struct{})
		}
		if err := w.await(ctx, w.changed); err != nil {
			return err
		}
	}
	if w.final != nil {
		return w.final
	}
	return w.broken
}

// await waits with the lock released.
func (w *writer) await(ctx context.Context, changed <-chan struct{}) error {
	w.mu.Unlock()
	defer w.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Lost implements [turn.LogWriter].
func (w *writer) Lost() <-chan struct{} { return w.lost }

// send stores what waits, one message after another, and returns when nothing
// does.
func (w *writer) send() {
	for items := w.next(); items != nil; items = w.next() {
		types, data, events, err := pack(items)
		if err == nil {
			err = w.store(&record{attempt: w.attempt, writer: w.id, types: types, data: data})
		}
		w.settle(events, err)
	}
}

// next returns the items of the next message. Nil ends the sender.
func (w *writer) next() []item {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.final == nil && len(w.backlog.items) > 0 {
		return w.backlog.take()
	}
	w.sending = false
	return nil
}

// settle counts a message as stored, or stops the writer for good.
func (w *writer) settle(events int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stored += events
	if err != nil {
		w.final = err
		w.backlog.items = nil
	}
	if errors.Is(err, turn.ErrLost) || errors.Is(err, turn.ErrTaken) {
		close(w.lost)
	}
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
}

// store stores one message. It is tried again, unchanged, until it is known to
// be stored or the log to be lost. Where it stands is decided before each try:
// it goes to the end of the log as known then, or nowhere.
func (w *writer) store(r *record) error {
	for pause := backoff(0); ; {
		r.seq = w.tail.nextSeq
		sequence, err := w.client.appendRecord(w.ctx, w.subject, w.tail.sequence, r)
		if err == nil {
			w.advance(position{sequence, r.seq + r.visible()})
			return nil
		}
		if !errors.Is(err, errRefused) && !errors.Is(err, turn.ErrUnavailable) {
			return err
		}
		last, err := w.lastState(&pause)
		if err != nil {
			return err
		}
		switch verdict := w.judge(last); verdict {
		case verdictStored:
			w.advance(position{last.Sequence, last.NextSeq})
			return nil
		case verdictAgain:
			if !w.client.pause(w.ctx, &pause) {
				return w.ending()
			}
		case verdictMoved:
			// An empty log was cut off behind us: its numbers go on.
			w.tail = position{last.Sequence, max(last.NextSeq, w.tail.nextSeq)}
		default:
			return verdict.err()
		}
	}
}

func (w *writer) advance(to position) {
	w.tail = to
	w.wrote = true
}

// lastState reads the end of the log, if need be again and again.
func (w *writer) lastState(pause *backoff) (turn.LogState, error) {
	for {
		last, err := w.client.logState(w.ctx, w.subject)
		if !errors.Is(err, turn.ErrUnavailable) {
			return last, err
		}
		if !w.client.pause(w.ctx, pause) {
			return last, w.ending()
		}
	}
}

// ending is why the writer stops although nothing is wrong with the log.
func (w *writer) ending() error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	return unavailable(errClosed)
}

// verdict is what the end of the log says of a message whose fate is unknown.
type verdict int

const (
	verdictStored verdict = iota // it is there
	verdictAgain                 // it is not there, nor anything new
	verdictMoved                 // it can go after what is there now
	verdictLost
	verdictTaken
)

func (v verdict) err() error {
	if v == verdictTaken {
		return turn.ErrTaken
	}
	return turn.ErrLost
}

// judge decides by the last message of the log. There is one message in flight,
// so a new one of this writer is that one. A later attempt may go on after what
// an earlier one wrote late: the earlier one, refused, sees the later and stops.
func (w *writer) judge(last turn.LogState) verdict {
	switch {
	case last.Sequence == w.tail.sequence:
		return verdictAgain
	case last.WriterID == w.id:
		return verdictStored
	case last.Finished || last.Attempt > w.attempt:
		return verdictLost
	case last.Sequence == 0:
		return verdictMoved
	case w.first && !w.wrote:
		return verdictTaken
	case last.Attempt == w.attempt:
		return verdictLost
	default:
		return verdictMoved
	}
}
