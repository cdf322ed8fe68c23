package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agenttest"
	"github.com/turnpool/turnpool/agent/script"
	"github.com/turnpool/turnpool/jetstream"
	"github.com/turnpool/turnpool/session/postgres"
	"github.com/turnpool/turnpool/worker"
)

// gatedWorker is a worker process such as a user writes, with the agent gated, whose
// model streams half of its answer and then waits until there is a file named open
// in dir, and the agent talker, which says the same as the built-in concierge. It
// runs until SIGTERM.
func gatedWorker(dir string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := runGated(ctx, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runGated(ctx context.Context, dir string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	store, err := postgres.Open(ctx, postgres.Config{URL: os.Getenv("DATABASE_URL"), Migrate: true})
	if err != nil {
		return err
	}
	defer store.Close()
	says, err := script.New("talker", &script.Reply{Text: conciergeSays, ChunkSize: 8, ChunkDelay: 20 * time.Millisecond})
	if err != nil {
		return err
	}
	talker := &agent.Agent{Name: "talker", Model: says}
	client, err := jetstream.Connect(ctx, jetstream.Config{URL: os.Getenv("NATS_URL"), Timeout: patience, AckWait: shortAckWait, Logger: log})
	if err != nil {
		return err
	}
	defer client.Close()
	consumer, err := client.Consumer(ctx, "default")
	if err != nil {
		return err
	}
	defer consumer.Close()
	pool, err := worker.NewPool(worker.PoolConfig{Agents: []*agent.Agent{fileGatedAgent(dir), talker}, MaxAttempts: manyAttempts, Log: log}, worker.Deps{
		Queue: consumer, Log: client, Control: client, Announcer: client, Dead: client, Store: store,
	})
	if err != nil {
		return err
	}
	if err := pool.Start(ctx); err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	return pool.Stop(context.Background())
}

func fileGatedAgent(dir string) *agent.Agent {
	return &agent.Agent{Name: "gated", Model: modelFunc(func(ctx context.Context, _ *agent.ModelRequest, emit func(agent.ModelDelta)) (*agent.ModelResponse, error) {
		emit(agent.ModelDelta{Kind: agent.ItemText, Text: "half "})
		for {
			if _, err := os.Stat(filepath.Join(dir, "open")); err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(10 * time.Millisecond):
			}
		}
		emit(agent.ModelDelta{Kind: agent.ItemText, Text: "and whole"})
		return agenttest.Text("half and whole"), nil
	})}
}
