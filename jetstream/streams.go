package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpool/turnpool/turn"
)

// layout returns the settings of every stream and bucket. They are used to
// create what is missing; what is there is left as it is, so that processes of
// two versions do not flip each other's settings.
func layout(c Config) ([]jetstream.StreamConfig, []jetstream.KeyValueConfig) {
	storage := jetstream.FileStorage
	if c.Memory {
		storage = jetstream.MemoryStorage
	}
	// A lane is apart from the other, so that a full batch lane never refuses a
	// person. It refuses when it is full, and a turn that it already holds: one
	// message a subject, and the subject ends in the turn's id. Direct get makes
	// a queued turn visible.
	lane := func(l turn.Lane) jetstream.StreamConfig {
		return jetstream.StreamConfig{
			Name:                 c.laneStream(l),
			Subjects:             []string{c.laneSubjects(l)},
			Retention:            jetstream.WorkQueuePolicy,
			Storage:              storage,
			Replicas:             c.Replicas,
			Discard:              jetstream.DiscardNew,
			DiscardNewPerSubject: true,
			MaxMsgsPerSubject:    1,
			MaxMsgs:              c.TurnsMaxMsgs,
			MaxBytes:             c.TurnsMaxBytes,
			AllowDirect:          true,
		}
	}
	// The logs of all turns. What is stored is published again for those who
	// watch, in stream order and with the number of the message before.
	events := jetstream.StreamConfig{
		Name:        c.logStream(),
		Subjects:    []string{c.logSubject("*", "*")},
		Retention:   jetstream.LimitsPolicy,
		Storage:     storage,
		Replicas:    c.Replicas,
		Discard:     jetstream.DiscardOld,
		MaxAge:      c.EventsMaxAge,
		MaxBytes:    c.EventsMaxBytes,
		AllowDirect: true,
		RePublish: &jetstream.RePublish{
			Source:      c.App + ".events.>",
			Destination: c.App + ".live.>",
		},
	}
	// Turns that were given up. A second letter of one turn is refused; when there
	// are too many the oldest go.
	dead := jetstream.StreamConfig{
		Name:              c.deadStream(),
		Subjects:          []string{c.deadSubject("*", "*")},
		Retention:         jetstream.LimitsPolicy,
		Storage:           storage,
		Replicas:          c.Replicas,
		Discard:           jetstream.DiscardOld,
		MaxMsgsPerSubject: 1,
		MaxMsgs:           c.DeadMaxMsgs,
		AllowDirect:       true,
	}
	bucket := func(name string, kept time.Duration) jetstream.KeyValueConfig {
		return jetstream.KeyValueConfig{Bucket: name, History: 1, TTL: kept, Storage: storage, Replicas: c.Replicas}
	}
	// Agents that are only away are still known for a week.
	buckets := []jetstream.KeyValueConfig{bucket(c.agentsBucket(), agentsKept), bucket(c.keysBucket(), keysKept)}
	return []jetstream.StreamConfig{lane(turn.LaneInteractive), lane(turn.LaneBatch), events, dead}, buckets
}

// durable returns the settings of a pool's consumer of a lane.
func durable(c Config, lane turn.Lane, pool string) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       pool,
		FilterSubject: c.poolSubjects(lane, pool),
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       c.AckWait,
		// Whether a turn is given up is decided by the store, not by a count
		// that restarts when the durable is remade.
		MaxDeliver: -1,
		// A turn that is to be tried again later counts as pending; a limit
		// would let such turns stop all delivery.
		MaxAckPending: -1,
		// A worker has at most one request waiting.
		MaxWaiting: 4096,
	}
}

// createMissing creates the streams and the buckets that are not there.
func (c *Client) createMissing(ctx context.Context) error {
	streams, buckets := layout(c.cfg)
	for _, cfg := range streams {
		if err := c.createStream(ctx, cfg); err != nil {
			return fmt.Errorf("stream %s: %w", cfg.Name, unavailable(err))
		}
	}
	for _, cfg := range buckets {
		if err := c.createBucket(ctx, cfg); err != nil {
			return fmt.Errorf("bucket %s: %w", cfg.Bucket, unavailable(err))
		}
	}
	return nil
}

func (c *Client) createStream(ctx context.Context, cfg jetstream.StreamConfig) error {
	_, err := c.js.Stream(ctx, cfg.Name)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	_, err = c.js.CreateStream(ctx, cfg)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return nil // another process was first
	}
	return err
}

func (c *Client) createBucket(ctx context.Context, cfg jetstream.KeyValueConfig) error {
	_, err := c.js.KeyValue(ctx, cfg.Bucket)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return err
	}
	_, err = c.js.CreateKeyValue(ctx, cfg)
	if errors.Is(err, jetstream.ErrBucketExists) {
		return nil
	}
	return err
}

// The server's versions: batched direct gets came with 2.11.
const (
	neededMajor = 2
	neededMinor = 11
)

func checkVersion(version string) error {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("nats-server says its version is %q; version %d.%d or later is needed", version, neededMajor, neededMinor)
	}
	if major < neededMajor || major == neededMajor && minor < neededMinor {
		return fmt.Errorf("nats-server %s is too old; version %d.%d or later is needed", version, neededMajor, neededMinor)
	}
	return nil
}

// agentsKept is how long an agent is known after it was last announced.
const agentsKept = 7 * 24 * time.Hour
