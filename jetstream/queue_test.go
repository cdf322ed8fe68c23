package jetstream

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpool/turnpool/jetstream/embedded"
	"github.com/turnpool/turnpool/turn"
)

// depth is how many turns wait in a lane.
func (k *kit) depth(lane turn.Lane) uint64 {
	k.t.Helper()
	stream, err := k.js.Stream(k.ctx, k.cfg.laneStream(lane))
	k.must(err)
	return stream.CachedInfo().State.Msgs
}

// publishBehind queues a turn without its message id, so that the broker does
// not know it again.
func (k *kit) publishBehind(s *turn.Submission) {
	k.t.Helper()
	m, err := k.turnMsg(s)
	k.must(err)
	m.Header = nil
	_, err = k.js.PublishMsg(k.ctx, m)
	k.must(err)
}

func TestPublishAndLookUp(t *testing.T) {
	t.Parallel()
	k := setup(t)
	for _, lane := range []turn.Lane{turn.LaneBatch, turn.LaneInteractive, ""} {
		want := submission(lane)
		k.must(k.Publish(k.ctx, want))
		if want.Request.Lane != lane {
			t.Error("the caller's request was changed")
		}
		got, err := k.Lookup(k.ctx, tenant, want.InvocationID)
		k.must(err)
		if got.StoredAt == 0 {
			t.Error("no time")
		}
		if want.Request.Lane == "" {
			want.Request.Lane = turn.LaneInteractive
		}
		want.StoredAt = got.StoredAt
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
	if got, err := k.Lookup(k.ctx, tenant, turn.NewInvocationID()); got != nil || err != nil {
		t.Errorf("a turn that nobody published: %v, %v", got, err)
	}
	if k.depth(turn.LaneInteractive) != 2 || k.depth(turn.LaneBatch) != 1 {
		t.Error("turns are in the wrong lanes")
	}
}

func TestAnotherTenantsTurnIsNotFound(t *testing.T) {
	t.Parallel()
	k := setup(t)
	s := submission(turn.LaneInteractive)
	k.must(k.Publish(k.ctx, s))
	if got, err := k.Lookup(k.ctx, "other", s.InvocationID); got != nil || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestPublishTwice(t *testing.T) {
	t.Parallel()
	k := setup(t)
	s := submission(turn.LaneInteractive)
	for range 3 {
		k.must(k.Publish(k.ctx, s))
	}
	behind := submission(turn.LaneInteractive)
	k.publishBehind(behind) // as if long ago: not in the duplicate window
	k.must(k.Publish(k.ctx, behind))
	if got := k.depth(turn.LaneInteractive); got != 2 {
		t.Errorf("%d turns wait, want 2", got)
	}
}

func TestFullLane(t *testing.T) {
	t.Parallel()
	k := setupWith(t, embedded.Config{}, Config{TurnsMaxMsgs: 2})
	first, second := submission(turn.LaneBatch), submission(turn.LaneBatch)
	k.publishBehind(first)
	k.must(k.Publish(k.ctx, second))
	refused := submission(turn.LaneBatch)
	wantError(t, k.Publish(k.ctx, refused), turn.ErrQueueFull)
	if got, err := k.Lookup(k.ctx, tenant, refused.InvocationID); got != nil || err != nil {
		t.Errorf("a refused turn is queued: %v, %v", got, err)
	}
	k.must(k.Publish(k.ctx, first)) // is in the full lane
	k.must(k.Publish(k.ctx, submission(turn.LaneInteractive)))
	k.must(k.Remove(k.ctx, tenant, second.InvocationID))
	k.must(k.Publish(k.ctx, refused))
}

func TestLaneWithoutBytes(t *testing.T) {
	t.Parallel()
	k := setupWith(t, embedded.Config{}, Config{TurnsMaxBytes: 2000})
	big := submission(turn.LaneInteractive)
	big.Request.Input.Message = turn.Text(strings.Repeat("x", 1000))
	k.must(k.Publish(k.ctx, big))
	big.InvocationID = turn.NewInvocationID()
	wantError(t, k.Publish(k.ctx, big), turn.ErrQueueFull)
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	k := setupWith(t, embedded.Config{MaxPayload: 64 << 10}, Config{})
	s := submission(turn.LaneInteractive)
	s.Request.Input.Message = turn.Text(strings.Repeat("x", 64<<10))
	wantError(t, k.Publish(k.ctx, s), turn.ErrTooLarge)

	// The stream may have a lower limit than the server.
	stream, err := k.js.Stream(k.ctx, k.cfg.laneStream(turn.LaneInteractive))
	k.must(err)
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgSize = 1000
	_, err = k.js.UpdateStream(k.ctx, cfg)
	k.must(err)
	s.Request.Input.Message = turn.Text(strings.Repeat("x", 1000))
	wantError(t, k.Publish(k.ctx, s), turn.ErrTooLarge)
}

func TestPublishAcrossRestart(t *testing.T) {
	t.Parallel()
	k := setup(t)
	s := submission(turn.LaneInteractive)
	k.server.Stop()
	published := make(chan error, 1)
	go func() { published <- k.Publish(k.ctx, s) }()
	k.server.Start()
	k.must(<-published)
	got, err := k.Lookup(k.ctx, tenant, s.InvocationID)
	k.must(err)
	if got == nil {
		t.Error("accepted, but not queued")
	}
}

func TestPublishWithoutBroker(t *testing.T) {
	t.Parallel()
	k := setup(t)
	k.server.Stop()
	ctx, cancel := context.WithCancel(k.ctx)
	published := make(chan error, 1)
	go func() { published <- k.Publish(ctx, submission(turn.LaneInteractive)) }()
	cancel()
	wantError(t, <-published, turn.ErrUnavailable)

	k.waits.publish = 1 // nanosecond: over at once
	wantError(t, k.Publish(k.ctx, submission(turn.LaneInteractive)), turn.ErrUnavailable)
	_, err := k.Lookup(k.ctx, tenant, turn.NewInvocationID())
	wantError(t, err, turn.ErrUnavailable)
	wantError(t, k.Remove(k.ctx, tenant, turn.NewInvocationID()), turn.ErrUnavailable)
}

func TestMalformedSubmissions(t *testing.T) {
	t.Parallel()
	k := setup(t)
	for name, spoil := range map[string]func(*turn.Submission){
		"agent":  func(s *turn.Submission) { s.Request.Agent = "a.b" },
		"pool":   func(s *turn.Submission) { s.Pool = "" },
		"tenant": func(s *turn.Submission) { s.Tenant = "*" },
		"id":     func(s *turn.Submission) { s.InvocationID = "inv_>" },
		"lane":   func(s *turn.Submission) { s.Request.Lane = "fast" },
	} {
		s := submission("")
		spoil(s)
		if err := k.Publish(k.ctx, s); err == nil {
			t.Errorf("a turn with a malformed %s was published", name)
		}
	}
	if _, err := k.Lookup(k.ctx, "*", turn.NewInvocationID()); err == nil {
		t.Error("looked up with a wildcard")
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	k := setup(t)
	consumer := k.consumer(Config{})
	queued, running := submission(turn.LaneBatch), submission(turn.LaneInteractive)
	k.must(k.Publish(k.ctx, running))
	d := k.pullOne(consumer, turn.LaneInteractive)
	k.must(k.Publish(k.ctx, queued))
	for _, s := range []*turn.Submission{queued, running} {
		if got, err := k.Lookup(k.ctx, tenant, s.InvocationID); got == nil || err != nil {
			t.Fatalf("before: %v, %v", got, err)
		}
		for range 2 {
			k.must(k.Remove(k.ctx, tenant, s.InvocationID))
			if got, err := k.Lookup(k.ctx, tenant, s.InvocationID); got != nil || err != nil {
				t.Errorf("after: %v, %v", got, err)
			}
		}
	}
	k.must(d.Nak(0)) // too late for another delivery
	for _, lane := range turn.Lanes {
		if got := k.drain(consumer.Pull(k.ctx, lane, 10, 0)); len(got) != 0 {
			t.Errorf("%s: a removed turn was delivered", lane)
		}
	}
}

func TestRefusalsThatAreNoLimit(t *testing.T) {
	t.Parallel()
	k := setup(t)
	err := k.refused(k.ctx, submission(turn.LaneBatch), &jetstream.APIError{Code: 503, ErrorCode: errCodeStoreFailed, Description: "store closed"})
	wantError(t, err, turn.ErrUnavailable)
	err = k.refused(k.ctx, submission(turn.LaneBatch), &jetstream.APIError{Code: 503, ErrorCode: errCodeStorage})
	wantError(t, err, turn.ErrQueueFull)
	// Its own message was there, and is not any more: it has been accepted once,
	// and the next try decides.
	err = k.refused(k.ctx, submission(turn.LaneBatch), &jetstream.APIError{
		ErrorCode: errCodeStoreFailed, Description: "maximum messages per subject exceeded"})
	wantError(t, err, turn.ErrUnavailable)
}
