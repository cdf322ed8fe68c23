package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/script"
	"github.com/turnpool/turnpool/ingress"
	"github.com/turnpool/turnpool/jetstream"
	"github.com/turnpool/turnpool/jetstream/embedded"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/session/postgres"
	"github.com/turnpool/turnpool/session/postgres/postgrestest"
	"github.com/turnpool/turnpool/session/sqlite"
	"github.com/turnpool/turnpool/turn"
	"github.com/turnpool/turnpool/worker"
)

// pipeline is the whole system in this process, and the parts to compare with.
type pipeline struct {
	url    string
	client *http.Client
	nc     *nats.Conn
	memory *worker.Handler
	// stored is a handler on a store of the same kind as the pipeline's.
	stored    *worker.Handler
	storeName string
	metrics   *prometheus.Registry
	postgres  *postgrestest.Server // nil: SQLite
	stops     []func()
}

// echo streams 20 deltas of 8 characters.
func echo() (*agent.Agent, error) {
	model, err := script.New("echo", &script.Reply{Text: strings.Repeat("eight ch", 20), ChunkSize: 8})
	return &agent.Agent{Name: "echo", Model: model}, err
}

func start(ctx context.Context, dir string, onPostgres bool) (p *pipeline, err error) {
	p = &pipeline{storeName: "sqlite", metrics: prometheus.NewRegistry()}
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	quiet := slog.New(slog.DiscardHandler)
	echo, err := echo()
	if err != nil {
		return p, err
	}
	agents := []*agent.Agent{echo}

	server, err := embedded.Start(embedded.Config{StoreDir: filepath.Join(dir, "nats"), Port: -1})
	if err != nil {
		return p, err
	}
	p.onStop(server.Shutdown)
	if onPostgres {
		if err := p.startPostgres(); err != nil {
			return p, err
		}
	}
	store, err := p.open(ctx, filepath.Join(dir, "pipeline.db"))
	if err != nil {
		return p, err
	}
	if err := p.startWorker(ctx, server.URL(), agents, store, quiet); err != nil {
		return p, err
	}
	if err := p.startIngress(ctx, server.URL(), store, quiet); err != nil {
		return p, err
	}
	if err := p.startPeers(ctx, server.URL(), dir, agents, quiet); err != nil {
		return p, err
	}
	return p, nil
}

// startPostgres finds or starts a server.
func (p *pipeline) startPostgres() error {
	server, err := postgrestest.Start()
	if err != nil {
		return err
	}
	p.onStop(server.Stop)
	p.postgres, p.storeName = server, "postgres"
	return nil
}

// open opens a store: a schema of its own in PostgreSQL, or the SQLite file.
func (p *pipeline) open(ctx context.Context, file string) (store session.Store, err error) {
	if p.postgres != nil {
		url, drop, err := p.postgres.Schema()
		if err != nil {
			return nil, err
		}
		p.onStop(func() { drop() })
		store, err = postgres.Open(ctx, postgres.Config{URL: url, Migrate: true})
		if err != nil {
			return nil, err
		}
	} else if store, err = sqlite.Open(ctx, sqlite.Config{Path: file}); err != nil {
		return nil, err
	}
	p.onStop(func() { store.Close() })
	return store, nil
}

// commits is what the pipeline's worker has committed.
type commits struct{ transactions, turns, seconds float64 }

func (c commits) minus(d commits) commits {
	return commits{c.transactions - d.transactions, c.turns - d.turns, c.seconds - d.seconds}
}

func (p *pipeline) commits() (c commits) {
	families, _ := p.metrics.Gather() // what there is
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch h := m.GetHistogram(); f.GetName() {
			case "turnpool_commit_duration_seconds":
				c.transactions, c.seconds = float64(h.GetSampleCount()), h.GetSampleSum()
			case "turnpool_commit_batch_size":
				c.turns = h.GetSampleSum()
			}
		}
	}
	return c
}

func (p *pipeline) startWorker(ctx context.Context, url string, agents []*agent.Agent, store session.Store, log *slog.Logger) error {
	client, err := jetstream.Connect(ctx, jetstream.Config{URL: url, Logger: log})
	if err != nil {
		return err
	}
	p.onStop(client.Close)
	consumer, err := client.Consumer(ctx, "default")
	if err != nil {
		return err
	}
	p.onStop(consumer.Close)
	pool, err := worker.NewPool(worker.PoolConfig{Agents: agents, Concurrency: 256, Log: log, Metrics: p.metrics}, worker.Deps{
		Queue: consumer, Log: client, Control: client, Announcer: client, Dead: client, Store: store,
	})
	if err != nil {
		return err
	}
	p.onStop(func() { pool.Stop(context.Background()) })
	return pool.Start(ctx)
}

func (p *pipeline) startIngress(ctx context.Context, url string, store session.Store, log *slog.Logger) error {
	client, err := jetstream.Connect(ctx, jetstream.Config{URL: url, Logger: log})
	if err != nil {
		return err
	}
	p.onStop(client.Close)
	registry, err := client.WatchAgents(ctx)
	if err != nil {
		return err
	}
	p.onStop(registry.Close)
	handler, err := ingress.New(ingress.Config{DefaultAgent: "echo", Logger: log},
		ingress.Deps{Queue: client, Log: client, Control: client, Registry: registry, Dead: client, Keys: client, Store: store})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler}
	go server.Serve(ln)
	p.onStop(func() { handler.Shutdown(context.Background()); server.Close() })
	p.url = "http://" + ln.Addr().String() + "/v1/turns"
	p.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	p.onStop(p.client.CloseIdleConnections)
	return nil
}

func (p *pipeline) startPeers(ctx context.Context, url, dir string, agents []*agent.Agent, log *slog.Logger) (err error) {
	store, err := p.open(ctx, filepath.Join(dir, "handler.db"))
	if err != nil {
		return err
	}
	if p.stored, err = worker.NewHandler(worker.HandlerConfig{Agents: agents, Store: store, Log: log}); err != nil {
		return err
	}
	if p.memory, err = worker.NewHandler(worker.HandlerConfig{Agents: agents, Store: session.NewMemory(), Log: log}); err != nil {
		return err
	}
	if p.nc, err = nats.Connect(url); err != nil {
		return err
	}
	p.onStop(p.nc.Close)
	_, err = p.nc.Subscribe("bench.echo", func(m *nats.Msg) { _ = m.Respond(m.Data) })
	return err
}

func (p *pipeline) onStop(stop func()) { p.stops = append(p.stops, stop) }

func (p *pipeline) stop() {
	for i := len(p.stops) - 1; i >= 0; i-- {
		p.stops[i]()
	}
}

// requestReply asks a core NATS responder: the least that two processes need.
func (p *pipeline) requestReply(ctx context.Context, _ int) (time.Time, error) {
	_, err := p.nc.RequestWithContext(ctx, "bench.echo", make([]byte, 160))
	return time.Time{}, err
}

// handler runs the turn in this process.
func (p *pipeline) handler(h *worker.Handler) func(context.Context, int) (time.Time, error) {
	return func(ctx context.Context, _ int) (first time.Time, err error) {
		stream := h.Turn(ctx, turn.Request{Input: turn.Input{Message: turn.Text("hello")}})
		for e := range stream.Events() {
			if _, ok := e.(*turn.Delta); ok && first.IsZero() {
				first = time.Now()
			}
		}
		if result := stream.Result(); result.Status != session.StatusCompleted {
			err = fmt.Errorf("turn %s: %s", result.Status, result.Error)
		}
		return first, err
	}
}

func (p *pipeline) post(ctx context.Context, accept string) (*http.Response, error) {
	body := []byte(`{"input": {"message": "hello"}}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", accept)
	resp, err := p.client.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		return nil, fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	return resp, err
}

// json waits for the whole answer.
func (p *pipeline) json(ctx context.Context, _ int) (time.Time, error) {
	resp, err := p.post(ctx, "application/json")
	if err != nil {
		return time.Time{}, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return time.Time{}, err
}

// sse reads the stream to its result.
func (p *pipeline) sse(ctx context.Context, _ int) (first time.Time, err error) {
	resp, err := p.post(ctx, "text/event-stream")
	if err != nil {
		return first, err
	}
	defer resp.Body.Close()
	ended := false
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		switch name, ok := strings.CutPrefix(lines.Text(), "event: "); {
		case ok && name == turn.TypeAssistantDelta && first.IsZero():
			first = time.Now()
		case ok && name == turn.TypeResult:
			ended = true
		}
	}
	if err := lines.Err(); err != nil {
		return first, err
	}
	if !ended {
		return first, errors.New("the stream ended without a result")
	}
	return first, nil
}
