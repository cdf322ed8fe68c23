// Package process builds what the commands run, from their settings: the ingress
// side, the worker side, and what both stand on. Each part is started from the
// leaves up and stopped in reverse.
package process

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"

	"github.com/turnpool/turnpool/cmd/internal/config"
	"github.com/turnpool/turnpool/jetstream"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/session/sqlite"
)

// Broker says how to reach NATS: at the URL, or inside the process.
type Broker struct {
	URL     string
	Options []nats.Option
}

// Connect returns a connection for one side.
func (b Broker) Connect(ctx context.Context, c config.Common, ackWait config.Worker, side string, log *slog.Logger) (*jetstream.Client, error) {
	return jetstream.Connect(ctx, jetstream.Config{
		URL: b.URL, Options: b.Options, Name: c.AppName + " " + side, App: c.AppName,
		Replicas: c.NATSReplicas, TurnsMaxMsgs: c.TurnsMaxMsgs, TurnsMaxBytes: int64(c.TurnsMaxBytes),
		EventsMaxAge: c.EventsMaxAge, EventsMaxBytes: int64(c.EventsMaxBytes),
		AckWait: ackWait.AckWait, Logger: log,
	})
}

// OpenStore opens the database that the settings name, or the file at fallback.
func OpenStore(ctx context.Context, c config.Common, fallback string) (session.Store, error) {
	path := c.DatabaseURL.Path
	if path == "" {
		path = fallback
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("database directory: %w", err)
	}
	return sqlite.Open(ctx, sqlite.Config{Path: path})
}
