// Package health is what both sides answer a probe with.
package health

import (
	"context"
	"sync"
	"time"
)

// The words of an answer.
const (
	OK          = "ok"
	Unavailable = "unavailable"
)

// timeout is less than the second that a probe usually waits.
const timeout = 800 * time.Millisecond

// View answers a probe. Checks has one entry for each thing that was looked at,
// with the same words as Status.
type View struct {
	Status string            `json:"status"`
	Checks map[string]string `json:"checks"`
}

// Check looks at all things at once, in less than a second. It returns why those
// failed that did.
func Check(ctx context.Context, checks map[string]func(context.Context) error) (View, map[string]error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	view := View{Status: OK, Checks: make(map[string]string, len(checks))}
	failures := map[string]error{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for name, check := range checks {
		all.Go(func() {
			err := check(ctx)
			mu.Lock()
			defer mu.Unlock()
			view.Checks[name] = OK
			if err != nil {
				view.Status, view.Checks[name], failures[name] = Unavailable, Unavailable, err
			}
		})
	}
	all.Wait()
	return view, failures
}
