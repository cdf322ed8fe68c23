package process

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/turnpool/turnpool/internal/health"
)

// probes serves a worker's health and metrics: /healthz says that the process
// runs, /readyz that turns can come. It serves from before the start is complete;
// until then the worker is not ready.
type probes struct {
	http   *http.Server
	served chan error // has what Serve returned
	log    *slog.Logger
	checks atomic.Pointer[checks]
}

type checks map[string]func(context.Context) error

func serveProbes(ln net.Listener, metrics prometheus.Gatherer, log *slog.Logger) *probes {
	p := &probes{served: make(chan error, 1), log: log}
	p.check(checks{"started": func(context.Context) error { return errors.New("starting") }})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, health.View{Status: health.OK, Checks: map[string]string{}})
	})
	mux.HandleFunc("GET /readyz", p.ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	p.http = &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	go func() { p.served <- p.http.Serve(ln) }()
	return p
}

// check says what readiness is from now on.
func (p *probes) check(c checks) { p.checks.Store(&c) }

// Close ends the serving. Probes are cut off.
func (p *probes) Close() error { return p.http.Close() }

func (p *probes) ready(w http.ResponseWriter, r *http.Request) {
	view, failures := health.Check(r.Context(), *p.checks.Load())
	for name, err := range failures {
		p.log.Warn("not ready", "check", name, "error", err)
	}
	answer(w, view)
}

func answer(w http.ResponseWriter, view health.View) {
	w.Header().Set("Content-Type", "application/json")
	if view.Status != health.OK {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	json.NewEncoder(w).Encode(view) // a prober that is gone needs no answer
}
