package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/turnpool/turnpool/turn"
)

// receiver takes turns from the queue, never more than there are slots for. The
// interactive lane goes first: batch turns are pulled only when it is empty, and
// leave the reserved slots free.
type receiver struct {
	queue    Queue
	slots    *slots
	reserved int
	log      *slog.Logger
	take     func(d turn.Delivery, pulledAt time.Time)

	// waiting are the pulls that wait on the broker, by lane. They are not
	// cancelled, since a turn that was sent to a cancelled pull would lie
	// there until its lease ran out: they expire. Owned by run.
	waiting map[turn.Lane]*waitingPull

	done chan struct{} // closed when run has ended
	once sync.Once

	mu   sync.Mutex
	fail error // of the last pull that ended
}

type waitingPull struct {
	turn.Pull
	startedAt time.Time
}

func (r *receiver) finished() chan struct{} {
	r.once.Do(func() { r.done = make(chan struct{}) })
	return r.done
}

// ended returns a channel that is closed when run has ended, or, if it was never
// started, already.
func (r *receiver) ended(started bool) <-chan struct{} {
	if !started {
		none := make(chan struct{})
		close(none)
		return none
	}
	return r.finished()
}

func (r *receiver) health() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fail
}

// run takes turns until stop ends, and mends what breaks.
func (r *receiver) run(stop context.Context) {
	defer close(r.finished())
	r.waiting = map[turn.Lane]*waitingPull{}
	backoff := minBackoff
	for stop.Err() == nil {
		if r.slots.wait(stop) == 0 {
			break
		}
		err := r.round(stop)
		if err == nil {
			backoff = minBackoff
			r.report(nil)
			continue
		}
		if stop.Err() != nil {
			break
		}
		r.report(err)
		sleep(stop, backoff)
		backoff = min(2*backoff, maxBackoff)
		if err := r.queue.Ensure(stop); err != nil && stop.Err() == nil {
			r.report(err)
		}
	}
	r.drain()
}

// report keeps the health, and logs when it changes.
func (r *receiver) report(err error) {
	r.mu.Lock()
	before := r.fail
	r.fail = err
	r.mu.Unlock()
	switch {
	case err != nil && before == nil:
		r.log.Warn("turns cannot be received", "error", err)
	case err == nil && before != nil:
		r.log.Info("turns are received again")
	}
}

// round takes what is there, or, when nothing is, waits on both lanes.
func (r *receiver) round(stop context.Context) error {
	took, err := r.sweep(stop, turn.LaneInteractive, 0)
	if err != nil || took > 0 {
		return err
	}
	took, err = r.sweep(stop, turn.LaneBatch, r.reserved)
	if err != nil || took > 0 {
		return err
	}
	return r.park(stop)
}

// sweep pulls, without waiting, as many turns as there are slots for.
func (r *receiver) sweep(ctx context.Context, lane turn.Lane, reserved int) (took int, err error) {
	n := r.slots.count() - reserved
	if n <= 0 {
		return 0, nil
	}
	startedAt := time.Now()
	pull := r.queue.Pull(ctx, lane, n, 0)
	for d := range pull.C() {
		r.deliver(d, startedAt, reserved)
		took++
	}
	return took, pull.Err()
}

// park waits on both lanes until a pull ends.
func (r *receiver) park(stop context.Context) error {
	wait := min(time.Second, r.queue.AckWait()/beatsPerAckWait)
	r.await(stop, turn.LaneInteractive, 0, wait)
	r.await(stop, turn.LaneBatch, r.reserved, wait)
	for {
		select {
		case d, open := <-r.channel(turn.LaneInteractive):
			if !open {
				return r.end(turn.LaneInteractive)
			}
			r.deliver(d, r.waiting[turn.LaneInteractive].startedAt, 0)
		case d, open := <-r.channel(turn.LaneBatch):
			if !open {
				return r.end(turn.LaneBatch)
			}
			r.deliver(d, r.waiting[turn.LaneBatch].startedAt, r.reserved)
		case <-r.roomForBatch():
			return nil
		case <-stop.Done():
			return nil
		}
	}
}

// await starts a waiting pull of the lane, unless one is under way or there is
// no slot for it.
func (r *receiver) await(ctx context.Context, lane turn.Lane, reserved int, wait time.Duration) {
	n := r.slots.count() - reserved
	if r.waiting[lane] != nil || n <= 0 {
		return
	}
	r.waiting[lane] = &waitingPull{startedAt: time.Now(), Pull: r.queue.Pull(context.WithoutCancel(ctx), lane, n, wait)}
}

func (r *receiver) channel(lane turn.Lane) <-chan turn.Delivery {
	if pull := r.waiting[lane]; pull != nil {
		return pull.C()
	}
	return nil
}

// roomForBatch signals a freed slot while no batch pull waits for lack of slots.
func (r *receiver) roomForBatch() <-chan struct{} {
	if r.waiting[turn.LaneBatch] != nil {
		return nil
	}
	return r.slots.freed
}

func (r *receiver) end(lane turn.Lane) error {
	pull := r.waiting[lane]
	delete(r.waiting, lane)
	return pull.Err()
}

// deliver hands a turn over if there is a slot for it. Two waiting pulls may
// bring more than there are: a surplus turn goes back untouched.
func (r *receiver) deliver(d turn.Delivery, pulledAt time.Time, reserved int) {
	if r.slots.tryTake(reserved) {
		r.take(d, pulledAt)
		return
	}
	r.giveBack(d)
}

func (r *receiver) giveBack(d turn.Delivery) {
	if err := d.Nak(0); err != nil {
		_, id := d.Address()
		r.log.Warn("surplus turn not given back, its lease runs out", "invocation", id, "error", err)
	}
}

// drain waits the waiting pulls out, and gives back what they still bring.
func (r *receiver) drain() {
	for lane, pull := range r.waiting {
		for d := range pull.C() {
			r.giveBack(d)
		}
		delete(r.waiting, lane)
	}
}
