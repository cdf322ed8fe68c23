package process

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/cmd/internal/config"
	"github.com/turnpool/turnpool/jetstream"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/worker"
)

// Worker is the side that runs turns.
type Worker struct {
	consumer *jetstream.Consumer
	*worker.Pool
}

// StartWorker starts a pool of the agents.
func StartWorker(ctx context.Context, cfg config.Worker, agents []*agent.Agent, client *jetstream.Client, store session.Store, log *slog.Logger) (*Worker, error) {
	consumer, err := client.Consumer(ctx, cfg.Pool)
	if err != nil {
		return nil, fmt.Errorf("queue of pool %s: %w", cfg.Pool, err)
	}
	pool, err := worker.NewPool(worker.PoolConfig{
		Agents: agents, Pool: cfg.Pool, Concurrency: cfg.Concurrency, Reserved: cfg.Reserved,
		TurnTimeout: cfg.TurnTimeout, MaxAttempts: cfg.MaxAttempts, Grace: cfg.Grace, Log: log,
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
