package process

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/cmd/internal/config"
	"github.com/turnpool/turnpool/worker"
)

// RunWorker is cmd/worker: the side that runs turns alone, until ctx ends. Then
// its turns get their grace.
func RunWorker(ctx context.Context, stderr io.Writer) error {
	cfg, err := config.Load[config.WorkerProcess]()
	if err != nil {
		return err
	}
	b := NewBase(cfg.Common, stderr)
	return b.Run(ctx, func(ctx context.Context) (<-chan error, error) {
		ln, err := b.Listen("WORKER_ADDR", cfg.Addr)
		if err != nil {
			return nil, err
		}
		probes := serveProbes(ln, b.Metrics, b.Log)
		b.OnStop(probes.Close)
		agents, err := Agents(cfg.Worker)
		if err != nil {
			return nil, err
		}
		if err := b.OpenStore(ctx, ""); err != nil {
			return nil, err
		}
		checks, err := b.StartWorker(ctx, cfg.Worker, agents)
		if err != nil {
			return nil, err
		}
		probes.check(checks)
		return probes.served, nil
	}, "grace", cfg.Grace)
}

// StartWorker connects and starts a pool of the agents. It returns what readiness
// is. The stop gives running turns their grace.
func (b *Base) StartWorker(ctx context.Context, cfg config.Worker, agents []*agent.Agent) (checks, error) {
	client, err := b.connect(ctx, "worker", cfg.AckWait)
	if err != nil {
		return nil, err
	}
	consumer, err := client.Consumer(ctx, cfg.Pool)
	if err != nil {
		return nil, fmt.Errorf("queue of pool %s: %w", cfg.Pool, err)
	}
	b.OnStop(func() error { consumer.Close(); return nil })
	pool, err := worker.NewPool(worker.PoolConfig{
		Agents: agents, Pool: cfg.Pool, Concurrency: cfg.Concurrency, Reserved: cfg.Reserved,
		TurnTimeout: cfg.TurnTimeout, MaxAttempts: cfg.MaxAttempts, Grace: cfg.Grace, Log: b.Log, Metrics: b.Metrics,
	}, worker.Deps{
		Queue: consumer, Log: client, Control: client, Announcer: client, Dead: client, Store: b.Store,
	})
	if err != nil {
		return nil, err
	}
	if err := pool.Start(ctx); err != nil {
		return nil, err
	}
	b.OnStop(func() error { return pool.Stop(context.Background()) })
	b.Log.Info("worker takes turns", "pool", cfg.Pool, "agents", Names(agents))
	return checks{
		"queue":  func(context.Context) error { return pool.Ready() },
		"broker": client.Ping,
		"store":  b.Store.Ping,
	}, nil
}

// Names lists agents for people.
func Names(agents []*agent.Agent) string {
	list := make([]string, len(agents))
	for i, a := range agents {
		list[i] = a.Name
	}
	return strings.Join(list, ", ")
}
