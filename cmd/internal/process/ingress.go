package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/turnpool/turnpool/cmd/internal/config"
	"github.com/turnpool/turnpool/ingress"
)

// A stalled reader holds up to this much of the kernel's memory instead of 4 MB.
const streamSendBuffer = 16 << 10

// headerTimeout bounds how long a connection may take to say what it wants.
const headerTimeout = 10 * time.Second

// ingressStop bounds how long open requests hold up a stop.
const ingressStop = 2 * time.Second

// RunIngress is cmd/ingress: the HTTP side alone, until ctx ends.
func RunIngress(ctx context.Context, stderr io.Writer) error {
	cfg, err := config.Load[config.IngressProcess]()
	if err != nil {
		return err
	}
	b := NewBase(cfg.Common, stderr)
	return b.Run(ctx, func(ctx context.Context) (<-chan error, error) {
		ln, err := b.Listen("INGRESS_ADDR", cfg.Addr)
		if err != nil {
			return nil, err
		}
		if err := b.OpenStore(ctx, ""); err != nil {
			return nil, err
		}
		return b.StartIngress(ctx, cfg.Ingress, ln)
	})
}

// StartIngress connects and serves on the listener. The channel has the error that
// ends the serving, if it is not the stop: that tells every open stream to
// reconnect, lets requests end, and closes.
func (b *Base) StartIngress(ctx context.Context, cfg config.Ingress, ln net.Listener) (failed <-chan error, err error) {
	client, err := b.connect(ctx, "ingress", 0)
	if err != nil {
		return nil, err
	}
	registry, err := client.WatchAgents(ctx)
	if err != nil {
		return nil, fmt.Errorf("agents: %w", err)
	}
	b.OnStop(func() error { registry.Close(); return nil })
	b.Metrics.MustRegister(queueMetrics{client, registry, b.Log})
	handler, err := ingress.New(ingress.Config{
		MaxBody: int64(cfg.MaxBody), Wait: cfg.Wait, DefaultAgent: cfg.DefaultAgent,
		CORSOrigins: cfg.CORSOrigins, Metrics: b.Metrics, Logger: b.Log,
	}, ingress.Deps{Queue: client, Log: client, Control: client, Registry: registry, Dead: client, Keys: client, Store: b.Store})
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(b.Log.Handler(), slog.LevelWarn),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetWriteBuffer(streamSendBuffer) // a hint; the system's default works too
			}
			return ctx
		},
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	b.OnStop(func() error { return stopIngress(handler, server) })
	b.Log.Info("ingress is listening", "addr", ln.Addr().String())
	return served, nil
}

func stopIngress(handler *ingress.Server, server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), ingressStop)
	defer cancel()
	err := handler.Shutdown(ctx)
	if shut := server.Shutdown(ctx); shut != nil {
		err = errors.Join(err, shut, server.Close())
	}
	return err
}
