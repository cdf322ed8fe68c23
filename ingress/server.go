package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// Queue holds the turns that were accepted and have no outcome yet. Its methods
// may be called concurrently.
type Queue interface {
	// Publish queues a turn, once however often it is called with one id. It
	// fails with [turn.ErrQueueFull], [turn.ErrTooLarge] or, when it is unknown
	// whether the turn was queued, [turn.ErrUnavailable].
	Publish(ctx context.Context, s *turn.Submission) error
	// Lookup returns a turn that is queued or in the hands of a worker, with the
	// time it was stored. Nil and no error: there is none.
	Lookup(ctx context.Context, tenant, invocationID string) (*turn.Submission, error)
	// Remove takes a turn out of the queue, if it is there.
	Remove(ctx context.Context, tenant, invocationID string) error
	// Now is the broker's clock, in milliseconds.
	Now(ctx context.Context) (int64, error)
	// Ping reports whether the broker answers.
	Ping(ctx context.Context) error
}

// Log has what turns stream. Its methods may be called concurrently.
type Log interface {
	// Watch returns a reader of a turn that is about to be published, which is
	// subscribed when Watch returns.
	Watch(ctx context.Context, tenant, invocationID string) (turn.LogReader, error)
	// Follow returns a reader of a turn's events after a number, 0 for all.
	Follow(ctx context.Context, tenant, invocationID string, after int64) (turn.LogReader, error)
	// State returns what the last stored message says; the zero Sequence for an
	// empty log.
	State(ctx context.Context, tenant, invocationID string) (turn.LogState, error)
	// Finish appends the result, unless the log has one.
	Finish(ctx context.Context, tenant, invocationID string, r *turn.Result) error
}

// Control reaches the workers that hold a turn.
type Control interface {
	// Cancel tells whoever runs the turn to stop, again and again until somebody
	// answers that it held the turn, or ctx ends. Not held and no error: nobody
	// answered in that time.
	Cancel(ctx context.Context, invocationID string) (held bool, err error)
}

// Registry knows the agents that workers have announced. It answers from
// memory, and its methods may be called concurrently.
type Registry interface {
	Agents() []turn.AgentInfo
	Agent(name string) (turn.AgentInfo, bool)
	// Any reports whether any worker was ever seen.
	Any() bool
}

// Config is what a deployment chooses. The zero value of a field is its
// default.
type Config struct {
	// MaxBody is the greatest request body, in bytes; 256 KiB.
	MaxBody int64
	// Wait is how long a caller that waits for a result is held, at most; 30 s.
	Wait time.Duration
	// DefaultAgent gets the requests that name none; without it they are refused.
	DefaultAgent string
	// CORSOrigins are the origins whose scripts may call, like
	// "https://app.example.com", or "*" for all; none.
	CORSOrigins []string
	// Heartbeat is how often an open stream gets a comment, and a waiting reader
	// looks up whether it missed something; 15 s.
	Heartbeat time.Duration
	// AvailableFor is how long after it was last announced an agent counts as
	// available; 30 s.
	AvailableFor time.Duration
	// WriteTimeout is how long one write to a stream may take before that viewer
	// is cut; 10 s.
	WriteTimeout time.Duration
	// Clock returns the present time; the system's.
	Clock func() time.Time
	// Metrics gets the ingress's metrics, whose names begin with turnpool_, and is
	// what /metrics serves; a registry of its own.
	Metrics *prometheus.Registry
	// Logger gets a line for each turn accepted or cancelled and each failure;
	// [slog.Default].
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if c.MaxBody < 0 || c.Wait < 0 || c.Heartbeat < 0 || c.AvailableFor < 0 || c.WriteTimeout < 0 {
		return c, errors.New("ingress: sizes and durations must not be negative")
	}
	if c.DefaultAgent != "" && !turn.ValidName(c.DefaultAgent) {
		return c, fmt.Errorf("ingress: default agent %q is no valid name", c.DefaultAgent)
	}
	c.MaxBody = orDefault(c.MaxBody, 256<<10)
	c.Wait = orDefault(c.Wait, 30*time.Second)
	c.Heartbeat = orDefault(c.Heartbeat, 15*time.Second)
	c.AvailableFor = orDefault(c.AvailableFor, 30*time.Second)
	c.WriteTimeout = orDefault(c.WriteTimeout, 10*time.Second)
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, nil
}

func orDefault[T int64 | time.Duration](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

// Deps are what the ingress works with; all must be given. It closes none of
// them.
type Deps struct {
	Queue    Queue
	Log      Log
	Control  Control
	Registry Registry
	Dead     DeadLetters
	Keys     Keys
	Store    session.Store
}

func (d Deps) check() error {
	switch {
	case d.Queue == nil:
		return errors.New("ingress: no queue")
	case d.Log == nil:
		return errors.New("ingress: no log")
	case d.Control == nil:
		return errors.New("ingress: no control")
	case d.Registry == nil:
		return errors.New("ingress: no registry")
	case d.Dead == nil:
		return errors.New("ingress: no dead letters")
	case d.Keys == nil:
		return errors.New("ingress: no keys")
	case d.Store == nil:
		return errors.New("ingress: no store")
	}
	return nil
}

// Server is the ingress as an [http.Handler]. It can be embedded in any
// http.Server; one with a ReadTimeout or a WriteTimeout does not cut its
// streams.
type Server struct {
	cfg  Config
	deps Deps
	log  *slog.Logger
	cors cors
	mux  *http.ServeMux
	life life

	metrics *metrics
	// cancels are those whose workers are still being told.
	cancels *cancels
}

// New returns a server, or says what is wrong with its configuration. It starts
// nothing.
func New(cfg Config, deps Deps) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := deps.check(); err != nil {
		return nil, err
	}
	cors, err := newCORS(cfg.CORSOrigins)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, deps: deps, log: cfg.Logger, cors: cors, life: newLife(), metrics: newMetrics(cfg.Metrics), cancels: &cancels{running: map[string]int{}}}
	s.mux = s.routes()
	return s, nil
}

// handler answers a request. An error is for before the first byte: it becomes
// the problem body.
type handler func(s *Server, w http.ResponseWriter, r *http.Request) error

type route struct {
	method, path string
	handle       handler
}

// routes are all there are; the OpenAPI document has the same.
var routes = []route{
	{http.MethodPost, "/v1/turns", (*Server).submit},
	{http.MethodGet, "/v1/turns/{id}", (*Server).getTurn},
	{http.MethodGet, "/v1/turns/{id}/events", (*Server).streamTurn},
	{http.MethodPost, "/v1/turns/{id}/cancel", (*Server).cancelTurn},
	{http.MethodPost, "/v1/sessions", (*Server).createSession},
	{http.MethodGet, "/v1/sessions", (*Server).listSessions},
	{http.MethodGet, "/v1/sessions/{id}", (*Server).getSession},
	{http.MethodDelete, "/v1/sessions/{id}", (*Server).deleteSession},
	{http.MethodGet, "/v1/sessions/{id}/events", (*Server).listEvents},
	{http.MethodGet, "/v1/sessions/{id}/turns", (*Server).listTurns},
	{http.MethodGet, "/v1/agents", (*Server).listAgents},
	{http.MethodGet, "/v1/dead", (*Server).listDead},
	{http.MethodGet, "/v1/dead/{id}", (*Server).getDead},
	{http.MethodDelete, "/v1/dead/{id}", (*Server).dropDead},
	{http.MethodPost, "/v1/dead/{id}/redrive", (*Server).redrive},
	{http.MethodGet, "/healthz", (*Server).health},
	{http.MethodGet, "/readyz", (*Server).ready},
	{http.MethodGet, "/metrics", (*Server).serveMetrics},
	{http.MethodGet, "/openapi.json", (*Server).openAPI},
}

// routes registers the routes, and behind them the answers for wrong methods
// and unknown paths, which net/http would give as plain text.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	allowed := map[string][]string{}
	for _, rt := range routes {
		mux.Handle(rt.method+" "+rt.path, s.handle(rt.handle))
		allowed[rt.path] = append(allowed[rt.path], rt.method)
		if rt.method == http.MethodGet {
			allowed[rt.path] = append(allowed[rt.path], http.MethodHead)
		}
	}
	for path, methods := range allowed {
		mux.Handle(path, s.handle(wrongMethod(methods)))
	}
	mux.Handle("/", s.handle(unknownPath))
	return mux
}

func wrongMethod(methods []string) handler {
	slices.Sort(methods)
	allow := strings.Join(methods, ", ")
	return func(_ *Server, w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Allow", allow)
		return &fault{code: codeMethodNotAllowed, detail: r.Method + " is not allowed here; allowed: " + allow}
	}
}

func unknownPath(_ *Server, _ http.ResponseWriter, r *http.Request) error {
	return &fault{code: codeNotFound, detail: "there is nothing at this path; see /openapi.json"}
}

// tenant is whose turns and sessions a request is about. It is the one place
// to change when callers are authenticated.
func tenant(*http.Request) string { return turn.DefaultTenant }

// ServeHTTP implements [http.Handler]. A panic becomes a 500, or cuts the
// connection if the answer has begun; its text goes to the log alone.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec := &recorder{ResponseWriter: w}
	defer s.recover(rec, r)
	if s.cors.serve(rec, r) {
		return
	}
	if escaped := r.URL.EscapedPath(); escaped != path.Clean(escaped) {
		s.fail(rec, r, unknownPath(s, rec, r)) // ServeMux would redirect
		return
	}
	s.mux.ServeHTTP(rec, r)
}

func (s *Server) handle(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h(s, w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

func (s *Server) recover(rec *recorder, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	s.log.Error("panic in a request", "method", r.Method, "path", r.URL.Path, "panic", v, "stack", string(debug.Stack()))
	if rec.begun {
		panic(http.ErrAbortHandler)
	}
	writeProblem(rec, r, &fault{code: codeInternal})
}

// recorder knows whether the answer has begun.
type recorder struct {
	http.ResponseWriter
	begun bool
}

// WriteHeader implements [http.ResponseWriter].
func (r *recorder) WriteHeader(status int) {
	r.begun = true
	r.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (r *recorder) Write(p []byte) (int, error) {
	r.begun = true
	return r.ResponseWriter.Write(p)
}

// Unwrap is for [http.ResponseController].
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
