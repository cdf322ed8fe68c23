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

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpool/turnpool/cmd/internal/config"
	"github.com/turnpool/turnpool/ingress"
	"github.com/turnpool/turnpool/jetstream"
	"github.com/turnpool/turnpool/session"
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
	log := cfg.Logger(stderr)
	var stack Stack
	ingress, err := startIngressProcess(ctx, cfg, &stack, log)
	if err == nil {
		select {
		case <-ctx.Done():
			log.Info("stopping")
		case err = <-ingress.Failed():
		}
	}
	return errors.Join(err, stack.Stop())
}

// startIngressProcess takes the port first, so that a second process in the same
// place fails at once.
func startIngressProcess(ctx context.Context, cfg config.IngressProcess, stack *Stack, log *slog.Logger) (*Ingress, error) {
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	ln, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("INGRESS_ADDR=%s: %w", cfg.Addr, err)
	}
	stack.OnStop(func() error { ln.Close(); return nil }) // closed twice after a whole start
	store, err := OpenStore(ctx, cfg.Common, "", log)
	if err != nil {
		return nil, err
	}
	stack.OnStop(store.Close)
	client, err := BrokerOf(cfg.Common).Connect(ctx, cfg.Common, 0, "ingress", log)
	if err != nil {
		return nil, err
	}
	stack.OnStop(func() error { client.Close(); return nil })
	ingress, err := StartIngress(ctx, ln, cfg.Ingress, client, store, NewMetrics(), log)
	if err != nil {
		return nil, err
	}
	stack.OnStop(ingress.StopSoon)
	log.Info("ingress is listening", "addr", ln.Addr().String())
	return ingress, nil
}

// Ingress is the HTTP side, serving.
type Ingress struct {
	client   *jetstream.Client
	registry *jetstream.Registry
	server   *ingress.Server
	http     *http.Server
	served   chan error // has what Serve returned
}

// StartIngress serves on the listener, which it owns from then on.
func StartIngress(ctx context.Context, ln net.Listener, cfg config.Ingress, client *jetstream.Client, store session.Store, metrics *prometheus.Registry, log *slog.Logger) (*Ingress, error) {
	registry, err := client.WatchAgents(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("agents: %w", err), ln.Close())
	}
	metrics.MustRegister(queueMetrics{client, registry, log})
	server, err := ingress.New(ingress.Config{
		MaxBody: int64(cfg.MaxBody), Wait: cfg.Wait, DefaultAgent: cfg.DefaultAgent,
		CORSOrigins: cfg.CORSOrigins, Metrics: metrics, Logger: log,
	}, ingress.Deps{Queue: client, Log: client, Control: client, Registry: registry, Store: store})
	if err != nil {
		registry.Close()
		return nil, errors.Join(err, ln.Close())
	}
	i := &Ingress{
		client: client, registry: registry, server: server, served: make(chan error, 1),
		http: &http.Server{
			Handler:           server,
			ReadHeaderTimeout: headerTimeout,
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

// StopSoon is Stop with the time that open requests get.
func (i *Ingress) StopSoon() error {
	ctx, cancel := context.WithTimeout(context.Background(), ingressStop)
	defer cancel()
	return i.Stop(ctx)
}

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
