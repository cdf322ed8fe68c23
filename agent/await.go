package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

// panicError is what code of a user's panicked with.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// errVanished is the answer of work that left its goroutine by
// [runtime.Goexit], as the FailNow of a test does.
var errVanished = errors.New("it ended without an answer")

// await runs work in a goroutine of its own and waits for it or for ctx,
// whichever comes first, so that code which ignores its context cannot hold a
// turn. If it is ctx, the error is ctx's cause, and the goroutine ends when work
// does; if both are there, work counts. Work is not started when ctx has ended
// before. A panic in work is an error, and is reported once, also when nobody
// waits any more.
func await[T any](ctx context.Context, report func(*panicError), work func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	done := make(chan answer, 1) // room for one: the goroutine never waits
	go func() {
		a := answer{err: errVanished}
		defer func() {
			if v := recover(); v != nil {
				panicked := &panicError{value: v, stack: debug.Stack()}
				report(panicked)
				a.err = panicked
			}
			done <- a
		}()
		a.value, a.err = work()
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
	}
	select {
	case a := <-done:
		return a.value, a.err
	default:
		return none, context.Cause(ctx)
	}
}
