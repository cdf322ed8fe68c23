package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/turnpool/turnpool/cmd/internal/config"
	"github.com/turnpool/turnpool/ingress"
	"github.com/turnpool/turnpool/jetstream"
	"github.com/turnpool/turnpool/session"
)

// A stalled reader holds up to this much of the kernel's memory instead of 4 MB.
const streamSendBuffer = 16 << 10

// Ingress is the HTTP side, serving.
type Ingress struct {
	client   *jetstream.Client
	registry *jetstream.Registry
	server   *ingress.Server
	http     *http.Server
	served   chan error // has what Serve returned
}

// StartIngress serves on the listener, which it owns from then on.
func StartIngress(ctx context.Context, ln net.Listener, cfg config.Dev, client *jetstream.Client, store session.Store, log *slog.Logger) (*Ingress, error) {
	registry, err := client.WatchAgents(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("agents: %w", err), ln.Close())
	}
	server, err := ingress.New(ingress.Config{
		MaxBody: int64(cfg.MaxBody), Wait: cfg.Wait, DefaultAgent: cfg.DefaultAgent,
		CORSOrigins: cfg.CORSOrigins, Logger: log,
	}, ingress.Deps{Queue: client, Log: client, Control: client, Registry: registry, Store: store})
	if err != nil {
		registry.Close()
		return nil, errors.Join(err, ln.Close())
	}
	i := &Ingress{
		client: client, registry: registry, server: server, served: make(chan error, 1),
		http: &http.Server{
			Handler:           server,
			ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout:       2 * time.Minute,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
			ConnContext: func(ctx context.Context, c net.Conn) context.Context {
				if tcp, ok := c.(*net.TCPConn); ok {
					_ = tcp.SetWriteBuffer(streamSendBuffer) // a hint; the system's default works too
				}
				return ctx
			},
		},
	}
	go func() { i.served <- i.http.Serve(ln) }()
	return i, nil
}

// Failed has the error that ended the serving, if it was not Stop.
func (i *Ingress) Failed() <-chan error { return i.served }

// Stop tells every open stream to reconnect, lets requests end, and closes. It
// is called once.
func (i *Ingress) Stop(ctx context.Context) error {
	err := i.server.Shutdown(ctx)
	if shut := i.http.Shutdown(ctx); shut != nil {
		err = errors.Join(err, shut, i.http.Close())
	}
	i.registry.Close()
	return err
}
