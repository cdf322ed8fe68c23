package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/turnpool/turnpool/turn"
)

// beatsPerAckWait is how often a lease is renewed before it would run out.
const beatsPerAckWait = 6

// lease is this worker's hold on one turn. It is good for AckWait after the last
// heartbeat that the broker heard, by this worker's own monotonic clock. The
// broker does not fence: a heartbeat of a delivery that it has given to somebody
// else counts as that one's, so a lease that has run out must send nothing.
type lease struct {
	delivery turn.Delivery
	id       string
	// held ends when the lease is lost, or the pool has ended. run is its
	// child, and ends too when the work is to stop: cancelled, or handed off.
	held   context.Context
	lose   context.CancelCauseFunc
	run    context.Context
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	heard  time.Time // start of the last heartbeat that was heard
	length time.Duration
	lost   bool
}

// good reports whether the turn is still this worker's. Once it is not, it never
// is again.
func (l *lease) good(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.lost && now.Sub(l.heard) > l.length {
		l.lost = true
	}
	return !l.lost
}

func (l *lease) renew(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = at
}

// leases are the turns that this worker holds. One loop renews them all.
type leases struct {
	queue Queue
	log   *slog.Logger
	// late, if there is one, is called for a heartbeat that was not heard.
	late func()

	mu   sync.Mutex
	held map[*lease]struct{}
	// handoff is set once the pool gives all turns back; later ones too.
	handoff error
}

func newLeases(queue Queue, log *slog.Logger) *leases {
	return &leases{queue: queue, log: log, held: map[*lease]struct{}{}}
}

// hold takes a lease on a delivery that was pulled at the given time. The caller
// ends the hold with drop.
func (ls *leases) hold(ctx context.Context, d turn.Delivery, pulledAt time.Time) *lease {
	_, id := d.Address()
	l := &lease{delivery: d, id: id, heard: pulledAt, length: ls.queue.AckWait()}
	l.held, l.lose = context.WithCancelCause(ctx)
	l.run, l.cancel = context.WithCancelCause(l.held)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.held[l] = struct{}{}
	if ls.handoff != nil {
		l.cancel(ls.handoff)
	}
	return l
}

func (ls *leases) drop(l *lease) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.held, l)
	l.cancel(nil)
	l.lose(nil)
}

// cancel ends the work on a turn, and reports whether it is held here.
func (ls *leases) cancel(id string, cause error) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	found := false
	for l := range ls.held {
		if l.id == id {
			l.cancel(cause)
			found = true
		}
	}
	return found
}

// cancelAll ends the work on every turn, those to come included.
func (ls *leases) cancelAll(cause error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.handoff = cause
	for l := range ls.held {
		l.cancel(cause)
	}
}

// keep renews the leases until ctx ends, and at once after a reconnect.
func (ls *leases) keep(ctx context.Context) {
	tick := time.NewTicker(max(ls.queue.AckWait()/beatsPerAckWait, time.Millisecond))
	defer tick.Stop()
	for {
		reconnected := ls.queue.Reconnected()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-reconnected:
		}
		ls.beat(ctx)
	}
}

// beat sends one heartbeat for all leases that are good, and ends the work on
// those that are not.
func (ls *leases) beat(ctx context.Context) {
	now := time.Now()
	good, deliveries := ls.good(now)
	if len(good) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ls.queue.AckWait()/beatsPerAckWait)
	defer cancel()
	if err := ls.queue.Heartbeat(ctx, deliveries); err != nil {
		ls.log.Warn("heartbeat not heard", "turns", len(good), "error", err)
		if ls.late != nil {
			ls.late()
		}
		return
	}
	for _, l := range good {
		l.renew(now)
	}
}

func (ls *leases) good(now time.Time) (good []*lease, deliveries []turn.Delivery) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range ls.held {
		if l.good(now) {
			good, deliveries = append(good, l), append(deliveries, l.delivery)
			continue
		}
		l.lose(errLeaseLost)
	}
	return good, deliveries
}
