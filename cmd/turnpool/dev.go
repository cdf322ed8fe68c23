package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/nats-io/nats.go"

	"github.com/turnpool/turnpool/cmd/internal/config"
	"github.com/turnpool/turnpool/cmd/internal/process"
	"github.com/turnpool/turnpool/jetstream/embedded"
)

// devCommand runs the ingress and a worker in this process. Where NATS_URL and
// DATABASE_URL do not say otherwise, NATS is embedded and the store is SQLite,
// both under Dir.
type devCommand struct {
	Dir string `help:"Where the embedded NATS and SQLite keep their data." default:".turnpool" type:"path"`
}

// Run starts everything, says so, and stops it again when ctx ends.
func (c *devCommand) Run(ctx context.Context, out output) error {
	cfg, err := config.Load[config.Dev]()
	if err != nil {
		return err
	}
	b := process.NewBase(cfg.Common, out.stderr)
	return b.Run(ctx, func(ctx context.Context) (<-chan error, error) {
		ln, err := b.Listen("INGRESS_ADDR", cfg.Ingress.Addr)
		if err != nil {
			return nil, err
		}
		if cfg.NATSURL == "" {
			if err := c.embed(b); err != nil {
				return nil, err
			}
		}
		if err := b.OpenStore(ctx, filepath.Join(c.Dir, "turnpool.db")); err != nil {
			return nil, err
		}
		agents, err := process.Agents(cfg.Worker)
		if err != nil {
			return nil, err
		}
		if cfg.DefaultAgent == "" {
			cfg.DefaultAgent = agents[0].Name
		}
		if _, err := b.StartWorker(ctx, cfg.Worker, agents); err != nil {
			return nil, err
		}
		failed, err := b.StartIngress(ctx, cfg.Ingress, ln)
		if err == nil {
			fmt.Fprintf(out.stdout, "turnpool is ready on http://%s  (agents: %s)\n", ln.Addr(), process.Names(agents))
		}
		return failed, err
	})
}

// embed runs NATS in this process.
func (c *devCommand) embed(b *process.Base) error {
	server, err := embedded.Start(embedded.Config{StoreDir: filepath.Join(c.Dir, "nats"), DontListen: true})
	if err != nil {
		return err
	}
	b.OnStop(func() error { server.Shutdown(); return nil })
	b.Broker = process.Broker{Options: []nats.Option{server.ConnectOption()}}
	return nil
}
