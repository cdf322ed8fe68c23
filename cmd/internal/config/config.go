// Package config reads the settings of the commands from the environment. It is
// the only place that does. A setting that is wrong stops the process at start,
// with one line that names the variable and what it accepts.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"
)

// Common are the settings of every process.
type Common struct {
	NATSURL        string        `envconfig:"NATS_URL"`
	NATSCreds      string        `envconfig:"NATS_CREDS"`
	NATSCA         string        `envconfig:"NATS_CA"`
	NATSCert       string        `envconfig:"NATS_CERT"`
	NATSKey        string        `envconfig:"NATS_KEY"`
	NATSTimeout    time.Duration `envconfig:"NATS_TIMEOUT" default:"2s"`
	DatabaseURL    Database      `envconfig:"DATABASE_URL"`
	StoreMigrate   bool          `envconfig:"STORE_MIGRATE" default:"true"`
	AppName        string        `envconfig:"APP_NAME" default:"turnpool"`
	LogLevel       slog.Level    `envconfig:"LOG_LEVEL" default:"info"`
	LogFormat      LogFormat     `envconfig:"LOG_FORMAT" default:"text"`
	NATSReplicas   int           `envconfig:"NATS_REPLICAS" default:"1"`
	TurnsMaxMsgs   int64         `envconfig:"TURNS_MAX_MSGS" default:"100000"`
	TurnsMaxBytes  Size          `envconfig:"TURNS_MAX_BYTES" default:"256MiB"`
	EventsMaxAge   time.Duration `envconfig:"EVENTS_MAX_AGE" default:"24h"`
	EventsMaxBytes Size          `envconfig:"EVENTS_MAX_BYTES" default:"4GiB"`
}

// Ingress are the settings of the HTTP side.
type Ingress struct {
	Addr                 string        `envconfig:"INGRESS_ADDR" default:"127.0.0.1:8080"`
	MaxBody              Size          `envconfig:"INGRESS_MAX_BODY" default:"256KiB"`
	Wait                 time.Duration `envconfig:"INGRESS_WAIT" default:"30s"`
	DefaultAgent         string        `envconfig:"INGRESS_DEFAULT_AGENT"`
	CORSOrigins          []string      `envconfig:"INGRESS_CORS_ORIGINS"`
	AllowUnauthenticated bool          `envconfig:"INGRESS_ALLOW_UNAUTHENTICATED"`
}

// Worker are the settings of the side that runs turns.
type Worker struct {
	OpenAI
	Agents       string        `envconfig:"WORKER_AGENTS"`
	PrivateTools bool          `envconfig:"WORKER_PRIVATE_TOOLS"`
	Pool         string        `envconfig:"WORKER_POOL" default:"default"`
	Concurrency  int           `envconfig:"WORKER_CONCURRENCY" default:"64"`
	Reserved     *int          `envconfig:"WORKER_RESERVED"`
	Grace        time.Duration `envconfig:"WORKER_GRACE" default:"25s"`
	AckWait      time.Duration `envconfig:"WORKER_ACK_WAIT" default:"30s"`
	MaxAttempts  int           `envconfig:"WORKER_MAX_ATTEMPTS" default:"5"`
	TurnTimeout  time.Duration `envconfig:"WORKER_TURN_TIMEOUT" default:"15m"`
}

// OpenAI says where models of OpenAI are, or of a server that speaks its API.
type OpenAI struct {
	APIKey  string `envconfig:"OPENAI_API_KEY"`
	BaseURL string `envconfig:"OPENAI_BASE_URL"`
	Model   string `envconfig:"OPENAI_MODEL" default:"gpt-5.6-luna"`
}

// Configured reports whether there is such a place.
func (o OpenAI) Configured() bool { return o.APIKey != "" || o.BaseURL != "" }

// IngressProcess are the settings of cmd/ingress.
type IngressProcess struct {
	Common
	Ingress
}

// WorkerProcess are the settings of cmd/worker.
type WorkerProcess struct {
	Common
	Worker
	Addr string `envconfig:"WORKER_ADDR" default:"127.0.0.1:8081"`
}

// Migrate are the settings of who migrates a database.
type Migrate struct{ Common }

// Dev are the settings of a process that is everything at once.
type Dev struct {
	Common
	Ingress
	Worker
}

// Load reads the environment into a struct of this package and checks it.
func Load[T any, P interface {
	*T
	check() error
}]() (T, error) {
	var settings T
	if err := envconfig.Process("", P(&settings)); err != nil {
		return settings, explain(err)
	}
	return settings, P(&settings).check()
}

// explain makes one line of what envconfig says: the variable, its value, and
// what was wrong with it.
func explain(err error) error {
	var parse *envconfig.ParseError
	if errors.As(err, &parse) {
		if parse.KeyName == "DATABASE_URL" { // it may have a password
			return fmt.Errorf("DATABASE_URL: want %s", accepted(parse))
		}
		return fmt.Errorf("%s=%q: want %s", parse.KeyName, parse.Value, accepted(parse))
	}
	return err
}

// accepted says what a variable accepts. The types of this package say it
// themselves, in their errors.
func accepted(parse *envconfig.ParseError) string {
	switch parse.TypeName {
	case "int", "int64":
		return "a whole number"
	case "bool":
		return "true or false"
	case "time.Duration":
		return "a duration such as 30s or 15m"
	case "slog.Level":
		return "debug, info, warn or error"
	default:
		return parse.Err.Error()
	}
}

func (d *Dev) check() error {
	if err := d.Common.check(); err != nil {
		return err
	}
	if err := d.Ingress.check(); err != nil {
		return err
	}
	return d.Worker.check(d.Common)
}

func (i *IngressProcess) check() error {
	return cmp.Or(i.Common.check(), i.Common.checkShared(), i.Ingress.check())
}

func (w *WorkerProcess) check() error {
	if _, _, err := net.SplitHostPort(w.Addr); err != nil {
		return fmt.Errorf("WORKER_ADDR=%q: want host:port", w.Addr)
	}
	return cmp.Or(w.Common.check(), w.Common.checkShared(), w.Worker.check(w.Common))
}

func (m *Migrate) check() error { return cmp.Or(m.Common.check(), m.Common.checkShared()) }

// checkShared refuses a process that would have a store of its own: it is of use
// only together with others.
func (c *Common) checkShared() error {
	if c.DatabaseURL == (Database{}) {
		return errors.New("DATABASE_URL is not set: want postgres://… or sqlite:PATH")
	}
	return nil
}

func (c *Common) check() error {
	return cmp.Or(
		atLeast("NATS_TIMEOUT", c.NATSTimeout, 100*time.Millisecond),
		atLeast("NATS_REPLICAS", c.NATSReplicas, 1),
		atLeast("TURNS_MAX_MSGS", c.TurnsMaxMsgs, 1),
		atLeast("EVENTS_MAX_AGE", c.EventsMaxAge, time.Minute),
		c.checkCertificate(),
	)
}

func (c *Common) checkCertificate() error {
	if (c.NATSCert == "") != (c.NATSKey == "") {
		return errors.New("NATS_CERT and NATS_KEY: want both or neither")
	}
	return nil
}

func (i *Ingress) check() error {
	if err := atLeast("INGRESS_WAIT", i.Wait, time.Millisecond); err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(i.Addr)
	if err != nil {
		return fmt.Errorf("INGRESS_ADDR=%q: want host:port", i.Addr)
	}
	if !loopback(host) && !i.AllowUnauthenticated {
		return fmt.Errorf("INGRESS_ADDR=%q: this address can be reached from elsewhere, and nobody is authenticated; "+
			"want a loopback address, or INGRESS_ALLOW_UNAUTHENTICATED=true", i.Addr)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (w *Worker) check(c Common) error {
	if w.TurnTimeout >= c.EventsMaxAge {
		return fmt.Errorf("WORKER_TURN_TIMEOUT=%v: want less than EVENTS_MAX_AGE, %v", w.TurnTimeout, c.EventsMaxAge)
	}
	if w.Reserved != nil && (*w.Reserved < 0 || *w.Reserved >= w.Concurrency) {
		return fmt.Errorf("WORKER_RESERVED=%d: want 0 to less than WORKER_CONCURRENCY, %d", *w.Reserved, w.Concurrency)
	}
	return cmp.Or(
		atLeast("WORKER_CONCURRENCY", w.Concurrency, 1),
		atLeast("WORKER_MAX_ATTEMPTS", w.MaxAttempts, 1),
		atLeast("WORKER_ACK_WAIT", w.AckWait, time.Second),
		atLeast("WORKER_GRACE", w.Grace, time.Millisecond),
		atLeast("WORKER_TURN_TIMEOUT", w.TurnTimeout, time.Millisecond),
	)
}

func atLeast[T int | int64 | time.Duration](name string, value, least T) error {
	if value < least {
		return fmt.Errorf("%s=%v: want at least %v", name, value, least)
	}
	return nil
}

// Size is a number of bytes: 4096, 256KiB, 8MiB or 4GiB.
type Size int64

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"", 1}}

// Decode implements [envconfig.Decoder].
func (s *Size) Decode(value string) error {
	for _, unit := range sizeUnits {
		digits, ok := strings.CutSuffix(value, unit.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 1 || n > math.MaxInt64/unit.bytes {
			break
		}
		*s = Size(n * unit.bytes)
		return nil
	}
	return errors.New("a number of bytes such as 4096, 256KiB, 8MiB or 4GiB")
}

// LogFormat is text or json.
type LogFormat string

// Decode implements [envconfig.Decoder].
func (f *LogFormat) Decode(value string) error {
	if value != "text" && value != "json" {
		return errors.New("text or json")
	}
	*f = LogFormat(value)
	return nil
}

// Database says where sessions and turns are kept. The zero value says nothing.
type Database struct {
	// Path of the SQLite file, or
	Path string
	// URL of the PostgreSQL database.
	URL string
}

// Decode implements [envconfig.Decoder].
func (d *Database) Decode(value string) error {
	scheme, rest, _ := strings.Cut(value, ":")
	switch {
	case value == "":
	case scheme == "sqlite" && rest != "":
		d.Path = rest
	case scheme == "postgres", scheme == "postgresql":
		d.URL = value
	default:
		return errors.New("postgres://USER:PASSWORD@HOST/NAME or sqlite:PATH")
	}
	return nil
}
