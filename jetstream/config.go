package jetstream

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpool/turnpool/turn"
)

// Config says which broker to use, and with which settings to create what is
// missing there. The zero value of each field means its default.
type Config struct {
	// URL is the broker's address, or several separated by commas. Default
	// [nats.DefaultURL].
	URL string
	// Options are the connection's further options: credentials, TLS, or an
	// in-process server. Buffering, reconnecting and the handlers of connection
	// events are this package's own.
	Options []nats.Option
	// Name is shown by the broker beside the connection. Default: App.
	Name string
	// App leads every subject and stream name, so that deployments can share a
	// broker. Default "turnpool".
	App string

	// Replicas of each stream. Default 1.
	Replicas int
	// Memory keeps the streams in memory instead of files.
	Memory bool
	// TurnsMaxMsgs and TurnsMaxBytes bound each lane. Default 100,000 and
	// 256 MiB.
	TurnsMaxMsgs  int64
	TurnsMaxBytes int64
	// EventsMaxAge and EventsMaxBytes bound the logs of all turns. Default 24
	// hours and 4 GiB.
	EventsMaxAge   time.Duration
	EventsMaxBytes int64
	// Timeout is how long one answer of the broker is waited for; publishing a
	// turn takes up to five times as long. Default 2 s.
	Timeout time.Duration
	// DeadMaxMsgs bounds the turns that were given up and are kept to be looked
	// at. Default 100,000.
	DeadMaxMsgs int64
	// AckWait is how long a delivered turn is left to a worker that is silent.
	// Default 30 s.
	AckWait time.Duration

	// Logger is for what no caller is told. Default [slog.Default].
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	setDefault(&c.URL, nats.DefaultURL)
	setDefault(&c.App, "turnpool")
	setDefault(&c.Name, c.App)
	setDefault(&c.Replicas, 1)
	setDefault(&c.TurnsMaxMsgs, 100_000)
	setDefault(&c.TurnsMaxBytes, 256<<20)
	setDefault(&c.EventsMaxAge, 24*time.Hour)
	setDefault(&c.EventsMaxBytes, 4<<30)
	setDefault(&c.DeadMaxMsgs, 100_000)
	setDefault(&c.Timeout, 2*time.Second)
	setDefault(&c.AckWait, 30*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if !turn.ValidName(c.App) {
		return c, fmt.Errorf("app name %q: want 1 to 64 letters, digits, \"_\" and \"-\"", c.App)
	}
	return c, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Subjects and streams. Tenants, pools, agents and invocation ids are single
// tokens by their form.

func (c Config) laneSubjects(lane turn.Lane) string {
	return c.App + ".turns." + string(lane) + ".>"
}

func (c Config) poolSubjects(lane turn.Lane, pool string) string {
	return c.App + ".turns." + string(lane) + "." + pool + ".>"
}

func (c Config) turnSubject(s *turn.Submission) string {
	return strings.Join([]string{c.App, "turns", string(s.Request.Lane), s.Pool, s.Request.Agent, s.Tenant, s.InvocationID}, ".")
}

// anyTurnSubject matches the turn's message, whatever its pool and agent.
func (c Config) anyTurnSubject(lane turn.Lane, tenant, invocationID string) string {
	return strings.Join([]string{c.App, "turns", string(lane), "*", "*", tenant, invocationID}, ".")
}

// turnAddress is the inverse of turnSubject, as far as it is needed.
func turnAddress(subject string) (tenant, invocationID string) {
	tokens := strings.Split(subject, ".")
	if len(tokens) != 7 {
		return "", ""
	}
	return tokens[5], tokens[6]
}

func (c Config) logSubject(tenant, invocationID string) string {
	return c.App + ".events." + tenant + "." + invocationID
}

func (c Config) liveSubject(tenant, invocationID string) string {
	return c.App + ".live." + tenant + "." + invocationID
}

func (c Config) controlSubject(invocationID string) string {
	return c.App + ".control." + invocationID
}

func (c Config) deadSubject(tenant, invocationID string) string {
	return c.App + ".dead." + tenant + "." + invocationID
}

func (c Config) laneStream(lane turn.Lane) string { return c.stream(string(lane)) }
func (c Config) logStream() string                { return c.stream("events") }
func (c Config) deadStream() string               { return c.stream("dead") }
func (c Config) stream(name string) string        { return strings.ToUpper(c.App + "_" + name) }
func (c Config) agentsBucket() string             { return strings.ToUpper(c.App) + "_agents" }
func (c Config) keysBucket() string               { return strings.ToUpper(c.App) + "_keys" }
