// Package process builds what the commands run, from their settings: the ingress
// side, the worker side, and what both stand on. Each part is started from the
// leaves up and stopped in reverse.
package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpool/turnpool/cmd/internal/config"
	"github.com/turnpool/turnpool/jetstream"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/session/postgres"
	"github.com/turnpool/turnpool/session/sqlite"
	"github.com/turnpool/turnpool/turn"
)

// startTimeout bounds the start of a process, and with it how long it waits for
// a broker or a database that is not there yet.
const startTimeout = time.Minute

// Main runs a process until it is told to stop, by SIGTERM or SIGINT, and returns
// its exit code: 0, or 1 when it failed, which is said in one line.
func Main(name string, run func(ctx context.Context, stderr io.Writer) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// Base is what both sides stand on, and the order in which it all is stopped. Its
// methods start one thing each, and see to its stop.
type Base struct {
	Common  config.Common
	Broker  Broker
	Store   session.Store // see OpenStore
	Metrics *prometheus.Registry
	Log     *slog.Logger

	stops []func() error
}

// NewBase returns the base of a process with these settings. Nothing is started.
func NewBase(c config.Common, stderr io.Writer) *Base {
	return &Base{Common: c, Broker: brokerOf(c), Metrics: newMetrics(), Log: c.Logger(stderr)}
}

// Run calls start, for which there is a minute, then waits until ctx ends or
// something fails, and stops what was started. The stopping is logged with args.
func (b *Base) Run(ctx context.Context, start func(context.Context) (failed <-chan error, err error), args ...any) error {
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	failed, err := start(starting)
	cancel()
	if err == nil {
		select {
		case <-ctx.Done():
			b.Log.Info("stopping", args...)
		case err = <-failed:
		}
	}
	return errors.Join(err, b.stop())
}

// OnStop adds what undoes the step that was just taken.
func (b *Base) OnStop(stop func() error) { b.stops = append(b.stops, stop) }

// stop undoes every step, the last one first. It is called once.
func (b *Base) stop() error {
	var errs []error
	for i := len(b.stops) - 1; i >= 0; i-- {
		errs = append(errs, b.stops[i]())
	}
	return errors.Join(errs...)
}

// Listen takes the address that a variable names. It comes before all else, so
// that a second process in the same place fails before it touches anything.
func (b *Base) Listen(variable, addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s=%s: %w", variable, addr, err)
	}
	b.OnStop(func() error {
		if err := ln.Close(); !errors.Is(err, net.ErrClosed) { // by its server, mostly
			return err
		}
		return nil
	})
	return ln, nil
}

// Broker says how to reach NATS: at the URL, or inside the process.
type Broker struct {
	URL     string
	Options []nats.Option
}

// brokerOf returns the broker that the settings name.
func brokerOf(c config.Common) Broker {
	b := Broker{URL: c.NATSURL}
	if c.NATSCreds != "" {
		b.Options = append(b.Options, nats.UserCredentials(c.NATSCreds))
	}
	if c.NATSCA != "" {
		b.Options = append(b.Options, nats.RootCAs(c.NATSCA))
	}
	if c.NATSCert != "" {
		b.Options = append(b.Options, nats.ClientCert(c.NATSCert, c.NATSKey))
	}
	return b
}

// connect returns a connection for one side. It waits for a broker that is not
// there yet, until ctx ends.
func (b *Base) connect(ctx context.Context, side string, ackWait time.Duration) (*jetstream.Client, error) {
	c := b.Common
	client, err := patiently(ctx, b.Log, "NATS", brokerAway, func() (*jetstream.Client, error) {
		return jetstream.Connect(ctx, jetstream.Config{
			URL: b.Broker.URL, Options: b.Broker.Options, Name: c.AppName + " " + side, App: c.AppName,
			Replicas: c.NATSReplicas, TurnsMaxMsgs: c.TurnsMaxMsgs, TurnsMaxBytes: int64(c.TurnsMaxBytes),
			EventsMaxAge: c.EventsMaxAge, EventsMaxBytes: int64(c.EventsMaxBytes),
			Timeout: c.NATSTimeout, AckWait: ackWait, Logger: b.Log,
		})
	})
	if err == nil {
		b.OnStop(func() error { client.Close(); return nil })
	}
	return client, err
}

func brokerAway(err error) bool { return errors.Is(err, turn.ErrUnavailable) }

// OpenStore opens the database that the settings name, or the file at fallback.
// It waits for a server that is not there yet, until ctx ends.
func (b *Base) OpenStore(ctx context.Context, fallback string) (err error) {
	if url := b.Common.DatabaseURL.URL; url != "" {
		b.Store, err = patiently(ctx, b.Log, "PostgreSQL", postgres.Passes, func() (session.Store, error) {
			return postgres.Open(ctx, postgres.Config{URL: url, Migrate: b.Common.StoreMigrate})
		})
	} else {
		b.Store, err = openFile(ctx, cmp.Or(b.Common.DatabaseURL.Path, fallback))
	}
	if err == nil {
		b.OnStop(b.Store.Close)
	}
	return err
}

func openFile(ctx context.Context, path string) (session.Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("database directory: %w", err)
	}
	return sqlite.Open(ctx, sqlite.Config{Path: path})
}

// patiently tries again while the failure passes, until ctx ends; processes that
// are started together may come up in any order.
func patiently[T any](ctx context.Context, log *slog.Logger, what string, passes func(error) bool, connect func() (T, error)) (T, error) {
	for {
		got, err := connect()
		if err == nil || ctx.Err() != nil || !passes(err) {
			return got, err
		}
		log.Warn("waiting for "+what, "error", err)
		select {
		case <-ctx.Done():
			return got, err
		case <-time.After(time.Second):
		}
	}
}
