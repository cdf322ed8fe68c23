package jetstream

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpool/turnpool/turn"
)

// Pull asks for up to n turns of a lane. With no wait it takes what is there;
// else it waits, and ends when n have come or the wait is over. Large turns may
// end it before there are n. It cannot be called off, for the broker may be
// delivering just then: it ends by itself, at the latest some seconds after the
// wait.
//
// A ctx that has ended, and an n below 1, ask for nothing. Err is
// [turn.ErrUnavailable] when the broker did not answer, or has no such consumer
// (see [Consumer.Ensure]); what was delivered before is on C all the same.
func (r *Consumer) Pull(ctx context.Context, lane turn.Lane, n int, wait time.Duration) turn.Pull {
	p := &pull{deliveries: make(chan turn.Delivery, max(n, 0)), left: n}
	switch {
	case ctx.Err() != nil:
		p.end(unavailable(ctx.Err()), false)
	case n < 1:
		p.end(nil, false)
	default:
		r.start(p, lane, max(wait, 0))
	}
	return p
}

func (r *Consumer) start(p *pull, lane turn.Lane, wait time.Duration) {
	b, err := r.takeInbox()
	if err != nil {
		p.end(err, false)
		return
	}
	p.mu.Lock() // the answer may be there before all is set
	defer p.mu.Unlock()
	b.pull.Store(p)
	timer := time.AfterFunc(wait+r.client.waits.pull, func() { p.end(unavailable(errNoAnswer), false) })
	unlink := context.AfterFunc(r.client.linked(), func() { p.end(unavailable(errDisconnected), false) })
	p.release = func(answered bool) {
		timer.Stop()
		unlink()
		r.putInbox(b, answered)
	}
	if err := r.ask(b, lane, p.left, wait); err != nil {
		p.endLocked(err, false)
	}
}

func (r *Consumer) ask(b *inbox, lane turn.Lane, n int, wait time.Duration) error {
	question, err := json.Marshal(pullRequest{n, wait, wait == 0, r.maxBytes(n)})
	if err != nil {
		return err
	}
	subject := "$JS.API.CONSUMER.MSG.NEXT." + r.client.cfg.laneStream(lane) + "." + r.pool
	return unavailable(r.client.nc.PublishRequest(subject, b.subject, question))
}

type pullRequest struct {
	Batch    int           `json:"batch"`
	Expires  time.Duration `json:"expires,omitempty"`
	NoWait   bool          `json:"no_wait,omitempty"`
	MaxBytes int64         `json:"max_bytes,omitempty"`
}

// pullBytes is how much a pull may deliver. The broker cuts off a client that
// lets 64 MiB wait, as many large turns at once would.
const pullBytes = 32 << 20

// maxBytes is the limit that a pull for n turns needs; 0: none, for a limit costs
// a message.
func (r *Consumer) maxBytes(n int) int64 {
	one := r.client.nc.MaxPayload()
	if int64(n)*one <= r.pullBytes {
		return 0
	}
	return max(r.pullBytes, 2*one)
}

// inbox is the subscription of one pull at a time. It is used again when the
// broker has said that the pull is over, for then nothing more can come of it.
type inbox struct {
	subject string
	sub     *nats.Subscription
	pull    atomic.Pointer[pull]
}

func (r *Consumer) takeInbox() (*inbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := len(r.idle) - 1; last >= 0 {
		b := r.idle[last]
		r.idle = r.idle[:last]
		return b, nil
	}
	b := &inbox{subject: r.client.nc.NewInbox()}
	sub, err := r.client.nc.Subscribe(b.subject, b.receive)
	if err != nil {
		return nil, unavailable(err)
	}
	b.sub = sub
	// A pull bounds what can be pending; a limit could only lose deliveries.
	return b, unavailable(sub.SetPendingLimits(-1, -1))
}

// putInbox takes back the inbox of a pull that has ended. Unless the broker
// answered, more may come, which the inbox's end tells the broker not to send.
func (r *Consumer) putInbox(b *inbox, answered bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !answered || r.closed {
		b.close()
		return
	}
	r.idle = append(r.idle, b)
}

func (b *inbox) close() { _ = b.sub.Unsubscribe() }

func (b *inbox) receive(m *nats.Msg) { b.pull.Load().receive(m) }

// pull is one request for turns.
type pull struct {
	// deliveries has room for all that were asked for.
	deliveries chan turn.Delivery

	mu   sync.Mutex
	left int
	// ended says that deliveries is closed, err why.
	ended bool
	err   error
	// release frees what the pull holds.
	release func(answered bool)
}

// C implements [turn.Pull].
func (p *pull) C() <-chan turn.Delivery { return p.deliveries }

// Err implements [turn.Pull]. It is nil as long as C is not closed.
func (p *pull) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *pull) end(err error, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(err, answered)
}

func (p *pull) endLocked(err error, answered bool) {
	if p.ended {
		return
	}
	p.ended, p.err = true, err
	close(p.deliveries)
	if p.release != nil {
		p.release(answered)
	}
}

// receive takes a delivery, or the broker's word that the pull is over.
func (p *pull) receive(m *nats.Msg) {
	p.mu.Lock()
	defer p.mu.Unlock()
	status, description := m.Header.Get("Status"), m.Header.Get("Description")
	isStatus := status != "" && len(m.Data) == 0
	switch {
	case p.ended && isStatus:
	case p.ended:
		// Too late: nobody looks at C any more.
		_ = (&delivery{msg: m}).Nak(0)
	case isStatus && (status == "100" || isEcho(description)):
	case isStatus:
		p.endLocked(pullError(status, description), true)
	default:
		p.deliveries <- newDelivery(m)
		if p.left--; p.left == 0 {
			p.endLocked(nil, true)
		}
	}
}

// isEcho reports whether a status is the end of the pull before, in the same
// inbox: one with a limit of bytes is told that it got all its messages after the
// last of them.
func isEcho(description string) bool { return strings.EqualFold(description, "batch completed") }

// pullError is the meaning of a status that ends a pull: the wait is over (408),
// there is nothing (404), or no more fits. All else says that the pull was not
// served.
func pullError(status, description string) error {
	if status == "404" || status == "408" || strings.Contains(strings.ToLower(description), "maxbytes") {
		return nil
	}
	return fmt.Errorf("pull: %w: %s %s", turn.ErrUnavailable, status, description)
}
