package jetstream

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpool/turnpool/turn"
)

func TestStreamsAreCreated(t *testing.T) {
	t.Parallel()
	k := setup(t)
	lane := jetstream.StreamConfig{
		Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage, Replicas: 1,
		Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgsPerSubject: 1,
		MaxMsgs: 100_000, MaxBytes: 256 << 20, AllowDirect: true,
	}
	interactive, batch := lane, lane
	interactive.Name, interactive.Subjects = "TURNPOOL_INTERACTIVE", []string{"turnpool.turns.interactive.>"}
	batch.Name, batch.Subjects = "TURNPOOL_BATCH", []string{"turnpool.turns.batch.>"}
	events := jetstream.StreamConfig{
		Name: "TURNPOOL_EVENTS", Subjects: []string{"turnpool.events.*.*"},
		Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage, Replicas: 1,
		MaxMsgsPerSubject: -1, MaxMsgs: -1, MaxBytes: 4 << 30, MaxAge: 24 * time.Hour, AllowDirect: true,
		RePublish: &jetstream.RePublish{Source: "turnpool.events.>", Destination: "turnpool.live.>"},
	}
	dead := jetstream.StreamConfig{
		Name: "TURNPOOL_DEAD", Subjects: []string{"turnpool.dead.*.*"}, Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage,
		Replicas: 1, Discard: jetstream.DiscardOld, MaxMsgsPerSubject: 1, MaxMsgs: 100_000, MaxBytes: -1, AllowDirect: true,
	}
	for _, want := range []jetstream.StreamConfig{interactive, batch, events, dead} {
		stream, err := k.js.Stream(k.ctx, want.Name)
		k.must(err)
		got := stream.CachedInfo().Config
		want.MaxConsumers, want.MaxMsgSize, want.Duplicates = got.MaxConsumers, got.MaxMsgSize, got.Duplicates
		got.Metadata, got.ConsumerLimits = nil, want.ConsumerLimits
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", want.Name, diff)
		}
	}
	for name, kept := range map[string]time.Duration{"TURNPOOL_agents": 7 * 24 * time.Hour, "TURNPOOL_keys": 24 * time.Hour} {
		kv, err := k.js.KeyValue(k.ctx, name)
		k.must(err)
		status, err := kv.Status(k.ctx)
		k.must(err)
		if status.TTL() != kept || status.History() != 1 {
			t.Errorf("%s: TTL %v, history %d", name, status.TTL(), status.History())
		}
	}
}

func TestStreamsThatAreThereStayAsTheyAre(t *testing.T) {
	t.Parallel()
	k := setup(t)
	cfg := Config{App: "other"}
	full, err := cfg.withDefaults()
	k.must(err)
	streams, buckets := layout(full)
	agents := buckets[0]
	for _, s := range streams {
		s.MaxMsgs, s.Description = 17, "made by hand"
		_, err := k.js.CreateStream(k.ctx, s)
		k.must(err)
	}
	agents.Description, agents.TTL = "made by hand", time.Hour
	_, err = k.js.CreateKeyValue(k.ctx, agents)
	k.must(err)

	k.connect(cfg)

	for _, s := range streams {
		stream, err := k.js.Stream(k.ctx, s.Name)
		k.must(err)
		if got := stream.CachedInfo().Config; got.MaxMsgs != 17 || got.Description != "made by hand" {
			t.Errorf("%s was changed: %+v", s.Name, got)
		}
	}
	kv, err := k.js.KeyValue(k.ctx, agents.Bucket)
	k.must(err)
	if status, err := kv.Status(k.ctx); err != nil || status.TTL() != time.Hour {
		t.Errorf("agents were changed: %v, %v", status.TTL(), err)
	}
}

func TestProcessesThatStartAtOnce(t *testing.T) {
	t.Parallel()
	k := setup(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			c := k.connect(Config{App: "many"})
			if _, err := c.Consumer(k.ctx, "default"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestDurable(t *testing.T) {
	t.Parallel()
	k := setup(t)
	_, err := k.Consumer(k.ctx, "blue")
	k.must(err)
	for _, lane := range turn.Lanes {
		c, err := k.js.Consumer(k.ctx, k.cfg.laneStream(lane), "blue")
		k.must(err)
		got := c.CachedInfo().Config
		if got.FilterSubject != "turnpool.turns."+string(lane)+".blue.>" || got.AckPolicy != jetstream.AckExplicitPolicy ||
			got.AckWait != 30*time.Second || got.MaxDeliver != -1 || got.MaxAckPending != -1 {
			t.Errorf("%s: %+v", lane, got)
		}
	}
}

func TestAckWaitIsTheDurablesOwn(t *testing.T) {
	t.Parallel()
	k := setup(t)
	made := durable(k.cfg, turn.LaneBatch, "blue")
	made.AckWait = 7 * time.Second
	_, err := k.js.CreateConsumer(k.ctx, k.cfg.laneStream(turn.LaneBatch), made)
	k.must(err)
	consumer, err := k.Consumer(k.ctx, "blue")
	k.must(err)
	if got := consumer.AckWait(); got != 7*time.Second {
		t.Errorf("ack wait %v, want the shorter of the lanes'", got)
	}
}

func TestCheckVersion(t *testing.T) {
	t.Parallel()
	for version, ok := range map[string]bool{
		"2.11.0": true, "2.15.3": true, "2.12.0-RC.1": true, "3.0.0": true,
		"2.10.29": false, "2.9.0": false, "1.99.1": false, "": false, "dev": false,
	} {
		err := checkVersion(version)
		if (err == nil) != ok {
			t.Errorf("version %q: %v", version, err)
		}
		if err != nil && !(strings.Contains(err.Error(), version) && strings.Contains(err.Error(), "2.11 or later")) {
			t.Errorf("version %q: error does not name both: %v", version, err)
		}
	}
}
