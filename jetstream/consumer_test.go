package jetstream

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/jetstream/embedded"
	"github.com/turnpool/turnpool/turn"
)

// consumer returns the default pool's, through a client with these settings.
func (k *kit) consumer(cfg Config) *Consumer {
	k.t.Helper()
	c, err := k.connect(cfg).Consumer(k.ctx, "default")
	k.must(err)
	k.t.Cleanup(c.Close)
	return c
}

// drain takes all deliveries of a pull, which must end without an error.
func (k *kit) drain(p turn.Pull) (all []turn.Delivery) {
	k.t.Helper()
	for d := range p.C() {
		all = append(all, d)
	}
	k.must(p.Err())
	return all
}

// wait is longer than any test: a pull that waits so long ends when it has what
// it asked for.
const wait = 10 * guard

func (k *kit) pullOne(c *Consumer, lane turn.Lane) turn.Delivery {
	k.t.Helper()
	p := c.Pull(k.ctx, lane, 1, wait)
	select {
	case d, ok := <-p.C():
		if ok {
			return d
		}
	case <-k.ctx.Done():
	}
	k.t.Fatal("no delivery: ", p.Err())
	return nil
}

func idOf(d turn.Delivery) string {
	_, id := d.Address()
	return id
}

func (k *kit) publishN(lane turn.Lane, n int) (ids []string) {
	k.t.Helper()
	for range n {
		s := submission(lane)
		k.must(k.Publish(k.ctx, s))
		ids = append(ids, s.InvocationID)
	}
	return ids
}

func TestPullOnlyWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	k := setup(t)
	consumer := k.consumer(Config{})
	ids := k.publishN(turn.LaneInteractive, 7)
	k.publishN(turn.LaneBatch, 1)
	var got []string
	for _, n := range []int{3, 1, 2} {
		deliveries := k.drain(consumer.Pull(k.ctx, turn.LaneInteractive, n, wait))
		if len(deliveries) != n {
			t.Errorf("got %d turns, want %d", len(deliveries), n)
		}
		for _, d := range deliveries {
			got = append(got, idOf(d))
			k.must(d.Ack())
		}
	}
	// Without a wait there may be fewer.
	k.eventually("the last one", func() bool {
		for _, d := range k.drain(consumer.Pull(k.ctx, turn.LaneInteractive, 3, 0)) {
			got = append(got, idOf(d))
			k.must(d.Ack())
		}
		return len(got) == len(ids)
	})
	if diff := cmp.Diff(ids, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if rest := k.drain(consumer.Pull(k.ctx, turn.LaneInteractive, 3, 0)); len(rest) != 0 {
		t.Errorf("got %d turns more", len(rest))
	}
	k.eventually("acks", func() bool { return k.depth(turn.LaneInteractive) == 0 })
}

func TestDelivery(t *testing.T) {
	t.Parallel()
	k := setup(t)
	consumer := k.consumer(Config{})
	want := submission(turn.LaneBatch)
	k.must(k.Publish(k.ctx, want))
	queued, err := k.Lookup(k.ctx, tenant, want.InvocationID)
	k.must(err)

	d := k.pullOne(consumer, turn.LaneBatch)
	if d.Redelivered() {
		t.Error("the first delivery counts as another")
	}
	got, err := d.Submission()
	k.must(err)
	if diff := cmp.Diff(queued, got); diff != "" {
		t.Errorf("-queued +delivered\n%s", diff)
	}
	k.must(d.Nak(0))
	d = k.pullOne(consumer, turn.LaneBatch)
	if gotTenant, id := d.Address(); !d.Redelivered() || gotTenant != tenant || id != want.InvocationID {
		t.Errorf("after nak: redelivered %v, turn %s of %s", d.Redelivered(), id, gotTenant)
	}
	k.must(d.Nak(time.Millisecond))
	d = k.pullOne(consumer, turn.LaneBatch)
	k.must(d.Term())
	k.eventually("the turn is gone", func() bool { return k.depth(turn.LaneBatch) == 0 })
}

func TestUnreadableDelivery(t *testing.T) {
	t.Parallel()
	k := setup(t)
	consumer := k.consumer(Config{})
	id := turn.NewInvocationID()
	elsewhere, err := submission(turn.LaneInteractive).Encode()
	k.must(err)
	for subject, data := range map[string]string{
		"turnpool.turns.interactive.default.echo.default." + id: "{",
		"turnpool.turns.interactive.default.echo.other." + id:   string(elsewhere),
		"turnpool.turns.interactive.default.short":              "",
	} {
		_, err := k.js.Publish(k.ctx, subject, []byte(data))
		k.must(err)
		d := k.pullOne(consumer, turn.LaneInteractive)
		if _, err := d.Submission(); err == nil {
			t.Errorf("%s with %q was read", subject, data)
		}
		if got := idOf(d); got != id && got != "" {
			t.Errorf("%s is turn %q", subject, got)
		}
		k.must(d.Term())
	}
}

func TestWaitingPull(t *testing.T) {
	t.Parallel()
	k := setup(t)
	consumer := k.consumer(Config{})

	short := consumer.Pull(k.ctx, turn.LaneInteractive, 5, time.Millisecond)
	if got := k.drain(short); len(got) != 0 {
		t.Errorf("got %d turns of an empty lane", len(got))
	}

	// Both lanes at once; the turns come as they are published.
	pulls := map[turn.Lane]turn.Pull{}
	for _, lane := range turn.Lanes {
		pulls[lane] = consumer.Pull(k.ctx, lane, 2, wait)
	}
	for range 2 {
		for _, lane := range turn.Lanes {
			id := k.publishN(lane, 1)[0]
			if got := idOf(<-pulls[lane].C()); got != id {
				t.Errorf("%s: got turn %s, want %s", lane, got, id)
			}
		}
	}
	for lane, p := range pulls {
		if got := k.drain(p); len(got) != 0 {
			t.Errorf("%s: more than two", lane)
		}
	}
}

func TestPullForNothing(t *testing.T) {
	t.Parallel()
	k := setup(t)
	consumer := k.consumer(Config{})
	k.publishN(turn.LaneInteractive, 1)
	if got := k.drain(consumer.Pull(k.ctx, turn.LaneInteractive, 0, wait)); len(got) != 0 {
		t.Error("asked for none, got one")
	}
	ended, cancel := context.WithCancel(k.ctx)
	cancel()
	p := consumer.Pull(ended, turn.LaneInteractive, 1, wait)
	if _, ok := <-p.C(); ok || p.Err() == nil {
		t.Error("a pull of an ended context was sent")
	}
}

func TestTwoWorkersShareTheLane(t *testing.T) {
	t.Parallel()
	k := setup(t)
	workers := []*Consumer{k.consumer(Config{}), k.consumer(Config{})}
	ids := k.publishN(turn.LaneInteractive, 20)
	var got []string
	for i := 0; len(got) < len(ids); i++ {
		for _, d := range k.drain(workers[i%2].Pull(k.ctx, turn.LaneInteractive, 4, wait)) {
			got = append(got, idOf(d))
		}
	}
	slices.Sort(ids)
	slices.Sort(got)
	if diff := cmp.Diff(ids, got); diff != "" {
		t.Errorf("-published +delivered\n%s", diff)
	}
}

func TestDeletedDurable(t *testing.T) {
	t.Parallel()
	k := setup(t)
	consumer := k.consumer(Config{})
	waiting := consumer.Pull(k.ctx, turn.LaneInteractive, 1, wait)
	// The pull is at the broker before the deletion is, for it has gone first on
	// its connection.
	k.must(consumer.Heartbeat(k.ctx, nil))
	k.must(k.js.DeleteConsumer(k.ctx, k.cfg.laneStream(turn.LaneInteractive), "default"))
	for range waiting.C() {
	}
	wantError(t, waiting.Err(), turn.ErrUnavailable)

	next := consumer.Pull(k.ctx, turn.LaneInteractive, 1, 0)
	for range next.C() {
	}
	wantError(t, next.Err(), turn.ErrUnavailable)

	id := k.publishN(turn.LaneInteractive, 1)[0]
	k.must(consumer.Ensure(k.ctx))
	if got := idOf(k.pullOne(consumer, turn.LaneInteractive)); got != id {
		t.Errorf("got %s, want %s", got, id)
	}
}

func TestDeletedStreams(t *testing.T) {
	t.Parallel()
	k := setup(t)
	consumer := k.consumer(Config{})
	for _, lane := range turn.Lanes {
		k.must(k.js.DeleteStream(k.ctx, k.cfg.laneStream(lane)))
	}
	k.must(consumer.Ensure(k.ctx))
	id := k.publishN(turn.LaneBatch, 1)[0]
	if got := idOf(k.pullOne(consumer, turn.LaneBatch)); got != id {
		t.Errorf("got %s, want %s", got, id)
	}
}

func TestReceiveAcrossRestart(t *testing.T) {
	t.Parallel()
	k := setup(t)
	consumer := k.consumer(Config{})
	ids := k.publishN(turn.LaneInteractive, 2)
	d := k.pullOne(consumer, turn.LaneInteractive)
	waiting := consumer.Pull(k.ctx, turn.LaneBatch, 1, wait)

	k.server.Stop()
	for range waiting.C() {
	}
	wantError(t, waiting.Err(), turn.ErrUnavailable)
	down := consumer.Pull(k.ctx, turn.LaneInteractive, 1, wait)
	for range down.C() {
	}
	wantError(t, down.Err(), turn.ErrUnavailable)
	wantError(t, d.Ack(), turn.ErrUnavailable)
	wantError(t, d.Nak(time.Second), turn.ErrUnavailable)
	wantError(t, d.Term(), turn.ErrUnavailable)
	wantError(t, consumer.Heartbeat(k.ctx, []turn.Delivery{d}), turn.ErrUnavailable)

	reconnected := consumer.Reconnected()
	k.server.Start()
	k.receive(reconnected)
	k.must(consumer.Ensure(k.ctx))
	k.must(consumer.Heartbeat(k.ctx, []turn.Delivery{d}))
	k.must(d.Ack())
	if got := idOf(k.pullOne(consumer, turn.LaneInteractive)); got != ids[1] {
		t.Errorf("got %s, want the one that was left, %s", got, ids[1])
	}
}

// A turn whose worker is silent goes to another; a heartbeat holds it for longer
// than that. The silent one's redeliveries are the clock.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	k := setup(t)
	consumer := k.consumer(Config{AckWait: 2 * time.Second})
	if consumer.AckWait() != 2*time.Second {
		t.Fatal("ack wait ", consumer.AckWait())
	}
	held, silent := k.publishN(turn.LaneInteractive, 1)[0], k.publishN(turn.LaneInteractive, 1)[0]
	both := k.drain(consumer.Pull(k.ctx, turn.LaneInteractive, 2, wait))
	again := consumer.Pull(k.ctx, turn.LaneInteractive, 50, wait)
	for redelivered, beat := 0, time.Now(); redelivered < 2; {
		k.must(consumer.Heartbeat(k.ctx, both[:1]))
		late := time.Since(beat) > consumer.AckWait()/2 // the machine stood still, and the heartbeat with it
		beat = time.Now()
		select {
		case d, ok := <-again.C():
			switch {
			case !ok:
				t.Fatal(again.Err())
			case idOf(d) == silent:
				redelivered++
			case idOf(d) == held && late:
				both[0] = d
			default:
				t.Fatalf("turn %s was redelivered, which had a heartbeat", idOf(d))
			}
		default:
		}
	}
}

func TestHeartbeatOfAnotherBroker(t *testing.T) {
	t.Parallel()
	k := setup(t)
	consumer := k.consumer(Config{})
	if err := consumer.Heartbeat(k.ctx, []turn.Delivery{nil}); err == nil {
		t.Error("no error")
	}
}

// What a pull delivers at once is bounded in bytes too: the broker cuts off a
// connection that is given more than it can take.
func TestLargeDeliveries(t *testing.T) {
	t.Parallel()
	k := setupWith(t, embedded.Config{MaxPayload: 8000}, Config{})
	consumer := k.consumer(Config{})
	consumer.pullBytes = 20_000
	const n = 12
	for range n {
		s := submission(turn.LaneInteractive)
		s.Request.Metadata = map[string]string{"big": strings.Repeat("x", 6000)}
		k.must(k.Publish(k.ctx, s))
	}
	for got := 0; got < n; {
		deliveries := k.drain(consumer.Pull(k.ctx, turn.LaneInteractive, n, wait))
		if len(deliveries) == 0 || len(deliveries) > 3 {
			t.Fatalf("%d turns of 6 kB at once", len(deliveries))
		}
		got += len(deliveries)
	}
	// Small ones fill the pull; that there was room for more is said afterwards,
	// and is not taken for the end of the next one.
	for range 20 {
		k.publishN(turn.LaneInteractive, 3)
		if got := k.drain(consumer.Pull(k.ctx, turn.LaneInteractive, 3, wait)); len(got) != 3 {
			t.Fatalf("%d turns", len(got))
		}
	}
}

func TestPullsAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	k := setup(t) // 8 MiB a message
	consumer := k.consumer(Config{})
	for n, want := range map[int]int64{1: 0, 4: 0, 5: 32 << 20, 500: 32 << 20} {
		if got := consumer.maxBytes(n); got != want {
			t.Errorf("%d turns: %d, want %d", n, got, want)
		}
	}
}
