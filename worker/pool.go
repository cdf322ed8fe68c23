package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// Queue is what a pool needs of the turn queue.
type Queue interface {
	// Ensure makes the pool's consumers, if they are not there.
	Ensure(ctx context.Context) error
	// Pull asks for at most n turns of a lane. With wait 0 it ends at once;
	// else it ends when n have come or the wait is over.
	Pull(ctx context.Context, lane turn.Lane, n int, wait time.Duration) turn.Pull
	// Heartbeat keeps the deliveries. Nil says that the broker has heard it.
	Heartbeat(ctx context.Context, held []turn.Delivery) error
	// AckWait is how long the broker waits for a heartbeat before it gives a
	// turn to somebody else.
	AckWait() time.Duration
	// Reconnected returns a channel that is closed at the next reconnect.
	Reconnected() <-chan struct{}
}

// Log is what a pool needs of the turns' logs.
type Log interface {
	// State is what the last message of a turn's log says.
	State(ctx context.Context, tenant, invocationID string) (turn.LogState, error)
	// Follow reads a turn's log from the event after the given number.
	Follow(ctx context.Context, tenant, invocationID string, after int64) (turn.LogReader, error)
	// Writer returns the one writer of an attempt. Its work ends with ctx.
	Writer(ctx context.Context, tenant, invocationID string, attempt int, last turn.LogState) turn.LogWriter
	// Finish appends the result, if the log does not end in one.
	Finish(ctx context.Context, tenant, invocationID string, result *turn.Result) error
}

// Control is what a pool needs to hear of cancelled turns.
type Control interface {
	// OnCancel calls holds for each turn that somebody cancels; its answer
	// tells them whether this worker has the turn. stop ends that.
	OnCancel(holds func(invocationID string) bool) (stop func(), err error)
}

// Announcer tells the ingresses which agents there are.
type Announcer interface {
	Announce(ctx context.Context, agents []turn.AgentInfo) error
}

// DeadLetters is where turns go that were given up.
type DeadLetters interface {
	// Bury keeps a letter. A second one of the same turn changes nothing.
	Bury(ctx context.Context, letter *turn.DeadLetter) error
}

// PoolConfig is the deployment's part of a [Pool]. Zero means default.
type PoolConfig struct {
	Agents []*agent.Agent
	// Pool is the name that the agents are announced under; "default".
	Pool string
	// Concurrency is how many turns run at once; 64.
	Concurrency int
	// Reserved is how many of these batch turns may not take; nil: a quarter.
	Reserved *int
	// TurnTimeout is the default running time of an attempt and its limit; 15
	// minutes.
	TurnTimeout time.Duration
	// MaxAttempts is how many failures in a row end a turn; 5.
	MaxAttempts int
	// RetryDelay is how long a turn rests after so many failures in a row, the
	// last of which asked for a time (0: it did not); nil: a second, doubling up
	// to a minute, with jitter, or what was asked for if that is longer.
	RetryDelay func(failures int, asked time.Duration) time.Duration
	// Grace is how long running turns get to end when the pool stops; 25 s.
	Grace time.Duration
	// AnnounceEvery is how often the agents are announced; 10 s.
	AnnounceEvery time.Duration
	// Now is the clock of events and results, in milliseconds.
	Now func() int64
	Log *slog.Logger
	// Metrics gets the pool's metrics, whose names begin with turnpool_; nil: they
	// are nowhere to be seen.
	Metrics prometheus.Registerer
}

// Deps are the things that a [Pool] works with. They stay the caller's to close,
// after the pool was stopped.
type Deps struct {
	Queue     Queue
	Log       Log
	Control   Control
	Announcer Announcer
	Dead      DeadLetters
	Store     session.Store
}

// Pool takes turns from the queue and runs them, many at once. Create it with
// [NewPool], then Start it, then Stop it.
type Pool struct {
	cfg       PoolConfig
	deps      Deps
	agents    map[string]*agent.Agent
	committer committer
	slots     *slots
	leases    *leases
	receiver  *receiver
	metrics   *metrics

	// stopping ends the taking of turns and the announcements; halt ends the
	// work on turns, with a cause.
	stopping context.Context
	stop     context.CancelFunc
	halted   context.Context
	halt     context.CancelCauseFunc

	mu      sync.Mutex
	started bool
	stopped chan struct{}  // closed when all has ended; nil before the first Stop
	loops   sync.WaitGroup // receiver, heartbeats, announcements
	turns   sync.WaitGroup // turns under way
	unhear  func()         // ends the subscription to cancels
}

// handoffLimit bounds how long turns that were stopped take to be given back, or
// to be committed if their answer was there.
const handoffLimit = 10 * time.Second

// Causes that a turn's context is cancelled with.
var (
	errHandoff   = errors.New("the worker stops, the turn goes to another")
	errLeaseLost = errors.New("the turn's lease ran out")
	errCancelled = errors.New("cancelled by a caller")
)

// NewPool checks the configuration. Nothing runs before Start.
func NewPool(cfg PoolConfig, deps Deps) (*Pool, error) {
	agents, err := byName(cfg.Agents)
	if err != nil {
		return nil, err
	}
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	if deps.Queue == nil || deps.Log == nil || deps.Control == nil || deps.Announcer == nil || deps.Dead == nil || deps.Store == nil {
		return nil, errors.New("worker: a pool needs a queue, a log, control, an announcer, a place for dead letters and a store")
	}
	metrics := newMetrics(cfg.Metrics)
	p := &Pool{
		cfg: cfg, deps: deps, agents: agents, metrics: metrics,
		committer: committer{store: deps.Store, observe: metrics.committed},
		slots:     newSlots(cfg.Concurrency), leases: newLeases(deps.Queue, cfg.Log),
	}
	p.leases.late = metrics.late.Inc
	p.receiver = &receiver{
		queue: deps.Queue, slots: p.slots, reserved: *cfg.Reserved, log: cfg.Log, take: p.take,
	}
	p.stopping, p.stop = context.WithCancel(context.Background())
	p.halted, p.halt = context.WithCancelCause(context.Background())
	return p, nil
}

func (c *PoolConfig) fill() error {
	if c.Pool == "" {
		c.Pool = "default"
	}
	if c.Concurrency == 0 {
		c.Concurrency = 64
	}
	if c.Reserved == nil {
		quarter := c.Concurrency / 4
		c.Reserved = &quarter
	}
	if c.TurnTimeout == 0 {
		c.TurnTimeout = DefaultTurnTimeout
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 5
	}
	if c.Grace == 0 {
		c.Grace = 25 * time.Second
	}
	if c.AnnounceEvery == 0 {
		c.AnnounceEvery = 10 * time.Second
	}
	if c.RetryDelay == nil {
		c.RetryDelay = retryDelay
	}
	if c.Now == nil {
		c.Now = systemClock
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	switch {
	case !turn.ValidName(c.Pool):
		return fmt.Errorf("worker: pool %q: a name has 1 to 64 letters, digits, _ or -", c.Pool)
	case c.Concurrency < 1 || c.MaxAttempts < 1 || c.TurnTimeout < 0 || c.Grace < 0 || c.AnnounceEvery < 0:
		return errors.New("worker: concurrency and attempts must be at least 1, durations not negative")
	case *c.Reserved < 0 || *c.Reserved >= c.Concurrency:
		return fmt.Errorf("worker: reserved slots must be at least 0 and less than the concurrency, %d", c.Concurrency)
	}
	return nil
}

// Start announces the agents, again and again until that succeeds or ctx ends, and
// begins to take turns. It returns once turns can come; an error says that the
// broker would not have it, and nothing runs. It is called once.
func (p *Pool) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started || p.stopped != nil {
		return errors.New("worker: the pool was started or stopped before")
	}
	if err := p.deps.Queue.Ensure(ctx); err != nil {
		return fmt.Errorf("worker: consumers of pool %s: %w", p.cfg.Pool, err)
	}
	unhear, err := p.deps.Control.OnCancel(func(id string) bool { return p.leases.cancel(id, errCancelled) })
	if err != nil {
		return fmt.Errorf("worker: listen for cancels: %w", err)
	}
	if err := persist(ctx, p.notAnnounced, func() error { return p.announce(ctx) }); err != nil {
		unhear()
		return fmt.Errorf("worker: announce the agents: %w", err)
	}
	p.unhear, p.started = unhear, true
	// Leases outlive the taking of turns: they are kept until the last turn is
	// settled, which is when halted ends.
	p.loops.Go(func() { p.leases.keep(p.halted) })
	p.loops.Go(func() { p.receiver.run(p.stopping) })
	p.loops.Go(p.announceLoop)
	return nil
}

// Ready returns nil while turns can come: the last pull was answered. It says
// why not otherwise.
func (p *Pool) Ready() error {
	if p.stopping.Err() != nil {
		return errors.New("the worker is stopping")
	}
	return p.receiver.health()
}

// Stop takes no more turns, lets the running ones end, and after the grace time
// (or when ctx ends) gives the rest back to the queue. It returns when all has
// ended, always nil; a second call waits for the first one.
func (p *Pool) Stop(ctx context.Context) error {
	p.mu.Lock()
	if p.stopped == nil {
		p.stopped = make(chan struct{})
		p.stop()
		go p.windDown(ctx)
	}
	stopped := p.stopped
	p.mu.Unlock()
	<-stopped
	return nil
}

// windDown stops in the order in which things depend on each other: no new
// turns, no more turns, then the heartbeats that held them.
func (p *Pool) windDown(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		<-p.receiver.ended(p.started)
		p.turns.Wait()
		close(ended)
	}()
	grace := time.NewTimer(p.cfg.Grace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
	case <-ctx.Done():
	}
	p.leases.cancelAll(errHandoff)
	handoff := time.NewTimer(handoffLimit)
	defer handoff.Stop()
	select {
	case <-ended:
	case <-handoff.C: // the store or the broker is away; leases run out
	}
	p.halt(errHandoff)
	<-ended
	p.loops.Wait()
	if p.unhear != nil {
		p.unhear()
	}
	close(p.stopped)
}

func (p *Pool) announce(ctx context.Context) error {
	infos := make([]turn.AgentInfo, 0, len(p.cfg.Agents))
	for _, a := range p.cfg.Agents {
		info := a.Info(p.cfg.Pool)
		info.LastSeenAt = p.cfg.Now()
		infos = append(infos, info)
	}
	return p.deps.Announcer.Announce(ctx, infos)
}

// announceLoop keeps the agents announced until the pool stops.
func (p *Pool) announceLoop() {
	tick := time.NewTicker(p.cfg.AnnounceEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.stopping.Done():
			return
		case <-tick.C:
			if err := p.announce(p.stopping); err != nil && p.stopping.Err() == nil {
				p.notAnnounced(err)
			}
		}
	}
}

func (p *Pool) notAnnounced(err error) {
	p.cfg.Log.Warn("agents not announced", "pool", p.cfg.Pool, "error", err)
}

// take starts the work on one delivery, for which the receiver has taken a slot.
func (p *Pool) take(d turn.Delivery, pulledAt time.Time) {
	p.turns.Go(func() {
		defer p.slots.give()
		p.serve(d, pulledAt)
	})
}
