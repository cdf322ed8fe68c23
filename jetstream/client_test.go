package jetstream

import (
	"context"
	"strings"
	"testing"

	"github.com/turnpool/turnpool/jetstream/embedded"
	"github.com/turnpool/turnpool/jetstream/natstest"
	"github.com/turnpool/turnpool/turn"
)

func TestConnectOverTCP(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	server := natstest.RunConfig(t, embedded.Config{Port: -1})
	c, err := Connect(ctx, Config{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	url, reconnected := server.URL(), c.Reconnected()
	server.Stop()
	server.Start()
	if server.URL() != url {
		t.Errorf("restarted at %s, was at %s", server.URL(), url)
	}
	<-reconnected
}

func TestConnectFails(t *testing.T) {
	t.Parallel()
	_, err := Connect(t.Context(), Config{URL: "nats://127.0.0.1:1"})
	wantError(t, err, turn.ErrUnavailable)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Connect(ctx, Config{URL: "nats://127.0.0.1:1"})
	wantError(t, err, turn.ErrUnavailable)

	for _, url := range []string{"nats://u:secret@127.0.0.1:1", "nats://127.0.0.1:1,tls://secret@127.0.0.1:1", "secret@127.0.0.1:1", "nats://u:sec%ret@127.0.0.1:1"} {
		if _, err := Connect(t.Context(), Config{URL: url}); err == nil || strings.Contains(err.Error(), "sec") || !strings.Contains(err.Error(), "127.0.0.1:1") {
			t.Errorf("%s: %v", url, err)
		}
	}

	if _, err = Connect(t.Context(), Config{App: "no.dots"}); err == nil {
		t.Error("a malformed app name was accepted")
	}
}

func TestPingAndNow(t *testing.T) {
	t.Parallel()
	k := setup(t)
	before, err := k.Now(k.ctx)
	k.must(err)
	s := submission(turn.LaneInteractive)
	k.must(k.Publish(k.ctx, s))
	queued, err := k.Lookup(k.ctx, tenant, s.InvocationID)
	k.must(err)
	after, err := k.Now(k.ctx)
	k.must(err)
	if queued.StoredAt < before || queued.StoredAt > after {
		t.Errorf("stored at %d, not between %d and %d", queued.StoredAt, before, after)
	}
	k.server.Stop()
	wantError(t, k.Ping(k.ctx), turn.ErrUnavailable)
	k.server.Start()
	k.eventually("ping", func() bool { return k.Ping(k.ctx) == nil })
	k.must(k.js.DeleteStream(k.ctx, k.cfg.laneStream(turn.LaneInteractive)))
	wantError(t, k.Ping(k.ctx), turn.ErrUnavailable)
}

func TestReconnectedIsToldEachTime(t *testing.T) {
	t.Parallel()
	k := setup(t)
	for range 2 {
		k.restart()
	}
}

func TestClosedClient(t *testing.T) {
	t.Parallel()
	k := setup(t)
	r := k.watch(turn.NewInvocationID())
	ended := make(chan error, 1)
	go func() {
		_, err := r.Next(k.ctx)
		ended <- err
	}()
	k.Close()
	k.Close()
	wantError(t, <-ended, turn.ErrUnavailable)
	wantError(t, k.Ping(k.ctx), turn.ErrUnavailable)
	wantError(t, k.Publish(k.ctx, submission(turn.LaneBatch)), turn.ErrUnavailable)
	w := k.write("not an id")
	w.Emit(note("x"))
	if err := w.Flush(k.ctx); err == nil {
		t.Error("a writer of a malformed id flushed")
	}
}
