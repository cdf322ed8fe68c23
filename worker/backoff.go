package worker

import (
	"context"
	"math/rand/v2"
	"time"
)

// What is tried again and again is tried after these times, doubling, so that a
// service that comes back is used within seconds and not flooded.
const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second
)

// persist calls work until it succeeds or ctx ends; then it returns ctx's cause.
// Failures go to report.
func persist(ctx context.Context, report func(error), work func() error) error {
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := work()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			report(err)
		}
		sleep(ctx, backoff)
	}
}

// sleep waits for about d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d/2 + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
