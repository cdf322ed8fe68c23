package jetstream

import (
	"testing"

	"github.com/turnpool/turnpool/turn"
)

func TestDepth(t *testing.T) {
	t.Parallel()
	k := setup(t)
	if depth, known, err := k.Depth(k.ctx, turn.LaneInteractive, "default"); known || err != nil {
		t.Errorf("a pool that nobody serves: %+v, %t, %v", depth, known, err)
	}
	consumer := k.consumer(Config{})
	if depth, known, err := k.Depth(k.ctx, turn.LaneInteractive, "default"); !known || err != nil || depth != (Depth{}) {
		t.Errorf("an empty lane: %+v, %t, %v", depth, known, err)
	}
	k.publishN(turn.LaneInteractive, 3)
	d := k.pullOne(consumer, turn.LaneInteractive)
	depth, known, err := k.Depth(k.ctx, turn.LaneInteractive, "default")
	if !known || err != nil || depth.Waiting != 2 || depth.InFlight != 1 || depth.Oldest.IsZero() {
		t.Errorf("%+v, %t, %v", depth, known, err)
	}
	k.must(d.Ack())
	k.eventually("one less", func() bool {
		now, _, err := k.Depth(k.ctx, turn.LaneInteractive, "default")
		return err == nil && now.InFlight == 0 && now.Waiting == 2 && now.Oldest.After(depth.Oldest)
	})
	if depth, _, err := k.Depth(k.ctx, turn.LaneBatch, "default"); err != nil || depth != (Depth{}) {
		t.Errorf("the other lane: %+v, %v", depth, err)
	}
	k.server.Stop()
	_, _, err = k.Depth(k.ctx, turn.LaneInteractive, "default")
	wantError(t, err, turn.ErrUnavailable)
}
