package jetstream

import (
	"context"
	"testing"

	"github.com/turnpool/turnpool/turn"
)

func TestCancel(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	asked := make(chan string, 100)
	var stops []func()
	for _, holds := range []bool{false, true, false} {
		stop, err := k.connect(Config{}).OnCancel(func(invocationID string) bool {
			asked <- invocationID
			return holds
		})
		k.must(err)
		stops = append(stops, stop)
	}
	held, err := k.Cancel(k.ctx, id)
	k.must(err)
	if !held {
		t.Error("the holder did not answer")
	}
	for range 3 {
		if got := <-asked; got != id {
			t.Errorf("asked for %s", got)
		}
	}
	for range 2 {
		stops[1]()
	}
	// Nobody holds it any more, which is known when everybody was asked in vain.
	ctx, cancel := context.WithCancel(k.ctx)
	go func() {
		for range 6 {
			<-asked
		}
		cancel()
	}()
	if held, err := k.Cancel(ctx, id); held || err != nil {
		t.Errorf("held %v, %v", held, err)
	}
}

func TestCancelWaitsForAHolder(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	done := make(chan bool, 1)
	go func() {
		held, err := k.Cancel(k.ctx, id)
		if err != nil {
			t.Error(err)
		}
		done <- held
	}()
	stop, err := k.connect(Config{}).OnCancel(func(string) bool { return true })
	k.must(err)
	defer stop()
	if !<-done {
		t.Error("the holder did not answer")
	}
}

func TestCancelWithoutBroker(t *testing.T) {
	t.Parallel()
	k := setup(t)
	if held, err := k.Cancel(ended, turn.NewInvocationID()); held || err != nil {
		t.Errorf("no time to answer: held %v, %v", held, err)
	}
	k.server.Stop()
	k.eventually("disconnected", func() bool { return !k.nc.IsConnected() })
	_, err := k.Cancel(ended, turn.NewInvocationID())
	wantError(t, err, turn.ErrUnavailable)
	if _, err := k.Cancel(k.ctx, "*"); err == nil {
		t.Error("cancelled with a wildcard")
	}
}
