package worker

import (
	"context"
	"sync"
	"time"

	"github.com/turnpool/turnpool/session"
)

// How commits share transactions: 32 to 64 slices a transaction was enough, two
// committers helped, and waiting to fill a batch made it slower.
const (
	maxCommitBatch = 64
	maxCommitters  = 2
)

// commitTimeout bounds one transaction, so that a store that hangs does not hold
// the committers for ever.
const commitTimeout = 30 * time.Second

// committer lets turns that end at the same time share one transaction: whatever
// is ready goes together, and nobody waits for company. It has no goroutine
// while there is nothing to commit.
type committer struct {
	store session.Store
	// observe, if there is one, hears of each transaction.
	observe func(slices int, took time.Duration)

	mu      sync.Mutex
	waiting []*commitRequest
	active  int // goroutines that commit
}

type commitRequest struct {
	ctx   context.Context
	slice *session.Slice
	done  chan commitAnswer // room for one
}

type commitAnswer struct {
	outcome session.Outcome
	err     error
}

// commit commits one slice. An error says that the store could not be reached,
// or that ctx ended first; then the slice may be committed all the same, and
// committing it again is safe.
func (c *committer) commit(ctx context.Context, slice *session.Slice) (session.Outcome, error) {
	request := &commitRequest{ctx: ctx, slice: slice, done: make(chan commitAnswer, 1)}
	c.mu.Lock()
	c.waiting = append(c.waiting, request)
	if c.active < maxCommitters {
		c.active++
		go c.drain()
	}
	c.mu.Unlock()
	select {
	case answer := <-request.done:
		return answer.outcome, answer.err
	case <-ctx.Done():
		return session.Outcome{}, context.Cause(ctx)
	}
}

// drain commits until nothing waits.
func (c *committer) drain() {
	for {
		batch := c.take()
		if len(batch) == 0 {
			return
		}
		slices := make([]*session.Slice, len(batch))
		for i, request := range batch {
			slices[i] = request.slice
		}
		// A batch belongs to many turns, so no single one's context may cut it.
		ctx, cancel := context.WithTimeout(context.Background(), commitTimeout)
		began := time.Now()
		outcomes, err := c.store.Commit(ctx, slices)
		cancel()
		if c.observe != nil {
			c.observe(len(slices), time.Since(began))
		}
		for i, request := range batch {
			answer := commitAnswer{err: err}
			if err == nil {
				answer.outcome = outcomes[i]
			}
			request.done <- answer
		}
	}
}

// take returns the next batch, without the requests whose caller has gone. An
// empty one ends the goroutine that asked.
func (c *committer) take() []*commitRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	var batch []*commitRequest
	for len(c.waiting) > 0 && len(batch) < maxCommitBatch {
		next := c.waiting[0]
		c.waiting[0] = nil // the array keeps nothing alive
		c.waiting = c.waiting[1:]
		if next.ctx.Err() == nil {
			batch = append(batch, next)
		}
	}
	if len(batch) == 0 {
		c.active--
	}
	return batch
}
