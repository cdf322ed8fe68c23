package process

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// checkTimeout is less than the second that a probe usually waits.
const checkTimeout = 800 * time.Millisecond

// health serves a worker's probes and metrics: /healthz says that the process
// runs, /readyz that turns can come. It serves from before the start is complete; until then
// the worker is not ready.
type health struct {
	http   *http.Server
	served chan error // has what Serve returned
	log    *slog.Logger

	mu     sync.Mutex
	checks map[string]func(context.Context) error
}

func newHealth(ln net.Listener, metrics prometheus.Gatherer, log *slog.Logger) *health {
	h := &health{served: make(chan error, 1), log: log}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{})
	})
	mux.HandleFunc("GET /readyz", h.ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	h.http = &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	go func() { h.served <- h.http.Serve(ln) }()
	return h
}

// check says what readiness is, once everything has started.
func (h *health) check(checks map[string]func(context.Context) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = checks
}

// Close ends the serving. Probes are cut off.
func (h *health) Close() error { return h.http.Close() }

func (h *health) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	h.mu.Lock()
	checks := h.checks
	h.mu.Unlock()
	if checks == nil {
		checks = map[string]func(context.Context) error{"started": func(context.Context) error { return errors.New("starting") }}
	}
	status, words := http.StatusOK, map[string]string{}
	for name, check := range checks {
		words[name] = "ok"
		if err := check(ctx); err != nil {
			status, words[name] = http.StatusServiceUnavailable, "unavailable"
			h.log.Warn("not ready", "check", name, "error", err)
		}
	}
	answer(w, status, words)
}

// answer writes {status, checks}, as the ingress does.
func answer(w http.ResponseWriter, status int, checks map[string]string) {
	word := "ok"
	if status != http.StatusOK {
		word = "unavailable"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(struct {
		Status string            `json:"status"`
		Checks map[string]string `json:"checks"`
	}{word, checks}) // a prober that is gone needs no answer
}
