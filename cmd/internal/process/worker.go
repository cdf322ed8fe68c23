package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/cmd/internal/builtin"
	"github.com/turnpool/turnpool/cmd/internal/config"
	"github.com/turnpool/turnpool/jetstream"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/worker"
)

// RunWorker is cmd/worker: the side that runs turns alone, until ctx ends. Then
// its turns get their grace.
func RunWorker(ctx context.Context, stderr io.Writer) error {
	cfg, err := config.Load[config.WorkerProcess]()
	if err != nil {
		return err
	}
	log := cfg.Logger(stderr)
	var stack Stack
	failed, err := startWorkerProcess(ctx, cfg, &stack, log)
	if err == nil {
		select {
		case <-ctx.Done():
			log.Info("stopping", "grace", cfg.Grace)
		case err = <-failed:
		}
	}
	return errors.Join(err, stack.Stop())
}

func startWorkerProcess(ctx context.Context, cfg config.WorkerProcess, stack *Stack, log *slog.Logger) (failed <-chan error, err error) {
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	ln, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("WORKER_ADDR=%s: %w", cfg.Addr, err)
	}
	metrics := NewMetrics()
	health := newHealth(ln, metrics, log)
	stack.OnStop(health.Close)
	agents, err := builtin.Agents()
	if err != nil {
		return nil, err
	}
	store, err := OpenStore(ctx, cfg.Common, "", log)
	if err != nil {
		return nil, err
	}
	stack.OnStop(store.Close)
	client, err := BrokerOf(cfg.Common).Connect(ctx, cfg.Common, cfg.AckWait, "worker", log)
	if err != nil {
		return nil, err
	}
	stack.OnStop(func() error { client.Close(); return nil })
	worker, err := StartWorker(ctx, cfg.Worker, agents, client, store, metrics, log)
	if err != nil {
		return nil, err
	}
	stack.OnStop(func() error { return worker.Stop(context.Background()) })
	health.check(map[string]func(context.Context) error{
		"queue":  func(context.Context) error { return worker.Ready() },
		"broker": client.Ping,
		"store":  store.Ping,
	})
	log.Info("worker takes turns", "pool", cfg.Pool, "agents", names(agents), "health", ln.Addr().String())
	return health.served, nil
}

func names(agents []*agent.Agent) string {
	list := make([]string, len(agents))
	for i, a := range agents {
		list[i] = a.Name
	}
	return strings.Join(list, ", ")
}

// Worker is the side that runs turns.
type Worker struct {
	consumer *jetstream.Consumer
	*worker.Pool
}

// StartWorker starts a pool of the agents.
func StartWorker(ctx context.Context, cfg config.Worker, agents []*agent.Agent, client *jetstream.Client, store session.Store, metrics prometheus.Registerer, log *slog.Logger) (*Worker, error) {
	consumer, err := client.Consumer(ctx, cfg.Pool)
	if err != nil {
		return nil, fmt.Errorf("queue of pool %s: %w", cfg.Pool, err)
	}
	pool, err := worker.NewPool(worker.PoolConfig{
		Agents: agents, Pool: cfg.Pool, Concurrency: cfg.Concurrency, Reserved: cfg.Reserved,
		TurnTimeout: cfg.TurnTimeout, MaxAttempts: cfg.MaxAttempts, Grace: cfg.Grace, Log: log, Metrics: metrics,
	}, worker.Deps{
		Queue: consumer, Log: client, Control: client, Announcer: client, Store: store,
	})
	if err == nil {
		err = pool.Start(ctx)
	}
	if err != nil {
		consumer.Close()
		return nil, err
	}
	return &Worker{consumer: consumer, Pool: pool}, nil
}

// Stop stops the pool, then its consumers.
func (w *Worker) Stop(ctx context.Context) error {
	err := w.Pool.Stop(ctx)
	w.consumer.Close()
	return err
}
