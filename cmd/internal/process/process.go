// Package process builds what the commands run, from their settings: the ingress
// side, the worker side, and what both stand on. Each part is started from the
// leaves up and stopped in reverse.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpool/turnpool/cmd/internal/config"
	"github.com/turnpool/turnpool/jetstream"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/session/postgres"
	"github.com/turnpool/turnpool/session/sqlite"
)

// StartTimeout bounds the start of a process, and with it how long it waits for
// a broker or a database that is not there yet.
const StartTimeout = time.Minute

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

// Stack is what was started, to be stopped in reverse.
type Stack struct{ stops []func() error }

// OnStop adds what undoes the step that was just taken.
func (s *Stack) OnStop(stop func() error) { s.stops = append(s.stops, stop) }

// Stop undoes every step, the last one first. It is called once.
func (s *Stack) Stop() error {
	var errs []error
	for i := len(s.stops) - 1; i >= 0; i-- {
		errs = append(errs, s.stops[i]())
	}
	return errors.Join(errs...)
}

// Broker says how to reach NATS: at the URL, or inside the process.
type Broker struct {
	URL     string
	Options []nats.Option
}

// BrokerOf returns the broker that the settings name.
func BrokerOf(c config.Common) Broker {
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

// Connect returns a connection for one side. It waits for a broker that is not
// there yet, until ctx ends.
func (b Broker) Connect(ctx context.Context, c config.Common, ackWait time.Duration, side string, log *slog.Logger) (*jetstream.Client, error) {
	return patiently(ctx, log, "NATS", func() (*jetstream.Client, error) {
		return jetstream.Connect(ctx, jetstream.Config{
			URL: b.URL, Options: b.Options, Name: c.AppName + " " + side, App: c.AppName,
			Replicas: c.NATSReplicas, TurnsMaxMsgs: c.TurnsMaxMsgs, TurnsMaxBytes: int64(c.TurnsMaxBytes),
			EventsMaxAge: c.EventsMaxAge, EventsMaxBytes: int64(c.EventsMaxBytes),
			AckWait: ackWait, Logger: log,
		})
	})
}

// OpenStore opens the database that the settings name, or the file at fallback.
// It waits for a server that is not there yet, until ctx ends.
func OpenStore(ctx context.Context, c config.Common, fallback string, log *slog.Logger) (session.Store, error) {
	if c.DatabaseURL.URL != "" {
		return patiently(ctx, log, "PostgreSQL", func() (session.Store, error) {
			return postgres.Open(ctx, postgres.Config{URL: c.DatabaseURL.URL, Migrate: c.StoreMigrate})
		})
	}
	path := c.DatabaseURL.Path
	if path == "" {
		path = fallback
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("database directory: %w", err)
	}
	return sqlite.Open(ctx, sqlite.Config{Path: path})
}

// patiently tries again until it succeeds or ctx ends; processes that are started
// together may come up in any order.
func patiently[T any](ctx context.Context, log *slog.Logger, what string, connect func() (T, error)) (T, error) {
	for {
		got, err := connect()
		if err == nil || ctx.Err() != nil || errors.Is(err, postgres.ErrSchema) {
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
