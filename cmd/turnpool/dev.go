package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"

	"github.com/nats-io/nats.go"

	"github.com/turnpool/turnpool/cmd/internal/builtin"
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
	log := cfg.Logger(out.stderr)
	d := dev{cfg: cfg, dir: c.Dir, log: log}
	err = d.start(ctx)
	if err == nil {
		fmt.Fprintf(out.stdout, "turnpool is ready on http://%s  (agents: %s)\n", d.addr, d.names)
		select {
		case <-ctx.Done():
			log.Info("stopping")
		case err = <-d.ingress.Failed():
		}
	}
	return errors.Join(err, d.stack.Stop())
}

// dev is everything in one process.
type dev struct {
	cfg   config.Dev
	dir   string
	log   *slog.Logger
	addr  string
	names string

	ingress *process.Ingress
	stack   process.Stack
}

// start starts the leaves first. The port is taken before anything else, so that
// a second process in the same place fails before it touches the data.
func (d *dev) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, process.StartTimeout)
	defer cancel()
	ln, err := net.Listen("tcp", d.cfg.Addr)
	if err != nil {
		return fmt.Errorf("INGRESS_ADDR=%s: %w", d.cfg.Addr, err)
	}
	d.addr = ln.Addr().String()
	d.stack.OnStop(func() error { ln.Close(); return nil }) // closed twice after a whole start
	broker, err := d.broker()
	if err != nil {
		return err
	}
	store, err := process.OpenStore(ctx, d.cfg.Common, filepath.Join(d.dir, "turnpool.db"), d.log)
	if err != nil {
		return err
	}
	d.stack.OnStop(store.Close)
	agents, err := builtin.Agents()
	if err != nil {
		return err
	}
	if d.cfg.DefaultAgent == "" {
		d.cfg.DefaultAgent = agents[0].Name
	}
	for i, a := range agents {
		if i > 0 {
			d.names += ", "
		}
		d.names += a.Name
	}

	metrics := process.NewMetrics()
	workerClient, err := broker.Connect(ctx, d.cfg.Common, d.cfg.AckWait, "worker", d.log)
	if err != nil {
		return err
	}
	d.stack.OnStop(func() error { workerClient.Close(); return nil })
	worker, err := process.StartWorker(ctx, d.cfg.Worker, agents, workerClient, store, metrics, d.log)
	if err != nil {
		return err
	}
	d.stack.OnStop(func() error { return worker.Stop(context.Background()) })

	ingressClient, err := broker.Connect(ctx, d.cfg.Common, d.cfg.AckWait, "ingress", d.log)
	if err != nil {
		return err
	}
	d.stack.OnStop(func() error { ingressClient.Close(); return nil })
	d.ingress, err = process.StartIngress(ctx, ln, d.cfg.Ingress, ingressClient, store, metrics, d.log)
	if err != nil {
		return err
	}
	d.stack.OnStop(d.ingress.StopSoon)
	return nil
}

// broker is NATS_URL, or a server in this process.
func (d *dev) broker() (process.Broker, error) {
	if d.cfg.NATSURL != "" {
		return process.BrokerOf(d.cfg.Common), nil
	}
	server, err := embedded.Start(embedded.Config{StoreDir: filepath.Join(d.dir, "nats"), DontListen: true})
	if err != nil {
		return process.Broker{}, err
	}
	d.stack.OnStop(func() error { server.Shutdown(); return nil })
	return process.Broker{Options: []nats.Option{server.ConnectOption()}}, nil
}
