package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// HandlerConfig is the deployment's part of a [Handler].
type HandlerConfig struct {
	// Agents that requests may name. The first one answers requests that name
	// none.
	Agents []*agent.Agent
	Store  session.Store
	// Timeout is the default running time of a turn, and its limit; 0: 15
	// minutes.
	Timeout time.Duration
	// Response is what results carry where the request does not say.
	Response turn.Response
	// Tenant owns the sessions; empty: [turn.DefaultTenant].
	Tenant string
	// Now is the clock, in milliseconds; nil: the system's. It decides which of
	// two messages is the newer one. It is called from many goroutines.
	Now func() int64
	// Log gets what callers are not told; nil: [slog.Default].
	Log *slog.Logger
}

// Handler runs turns in this process, on any Store, with no broker: attempt is
// always 1, and nothing is delivered again. It may be used concurrently; turns
// of one session race by the same rule as everywhere (see [session.Decide]).
type Handler struct {
	cfg       HandlerConfig
	agents    map[string]*agent.Agent
	committer committer
}

// NewHandler checks the configuration. The handler holds nothing that needs
// closing; the store stays the caller's, to close after the last turn has ended.
func NewHandler(cfg HandlerConfig) (*Handler, error) {
	agents, err := byName(cfg.Agents)
	if err != nil {
		return nil, err
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTurnTimeout
	}
	if cfg.Tenant == "" {
		cfg.Tenant = turn.DefaultTenant
	}
	if cfg.Now == nil {
		cfg.Now = systemClock
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	switch {
	case cfg.Store == nil:
		return nil, errors.New("worker: a handler needs a store")
	case cfg.Timeout < 0:
		return nil, errors.New("worker: the timeout must not be negative")
	case !turn.ValidName(cfg.Tenant):
		return nil, fmt.Errorf("worker: tenant %q: a name has 1 to 64 letters, digits, _ or -", cfg.Tenant)
	}
	return &Handler{cfg: cfg, agents: agents, committer: committer{store: cfg.Store}}, nil
}

// DefaultTurnTimeout bounds a turn's running time.
const DefaultTurnTimeout = 15 * time.Minute

func systemClock() int64 { return time.Now().UnixMilli() }

// byName checks the agents and returns them by name.
func byName(agents []*agent.Agent) (map[string]*agent.Agent, error) {
	if len(agents) == 0 {
		return nil, errors.New("worker: there must be at least one agent")
	}
	named := map[string]*agent.Agent{}
	for _, a := range agents {
		if err := a.Check(); err != nil {
			return nil, fmt.Errorf("worker: %w", err)
		}
		if named[a.Name] != nil {
			return nil, fmt.Errorf("worker: agent %q is there twice", a.Name)
		}
		named[a.Name] = a
	}
	return named, nil
}

// Rest runs a turn to its end and returns its result. Whatever goes wrong is in
// the result: a turn that failed, or was refused before it ran, has status error
// and an Error that says why. When ctx is cancelled the turn is aborted and
// nothing of it is kept.
func (h *Handler) Rest(ctx context.Context, req turn.Request) *turn.Result {
	return h.Turn(ctx, req).Result()
}

// Turn returns a turn that has not started: it runs once somebody ranges over
// its events or asks for its result. When ctx is cancelled it is aborted.
func (h *Handler) Turn(ctx context.Context, req turn.Request) *Stream {
	return newStream(ctx, func(ctx context.Context, s *Stream) *turn.Result {
		return h.run(ctx, s, req)
	})
}

// run does what a turn is: load, run, commit.
func (h *Handler) run(ctx context.Context, s *Stream, req turn.Request) *turn.Result {
	j, refusal := h.accept(s.invocationID, req)
	if refusal != nil {
		return h.uncommitted(j, agent.Outcome{Error: refusal})
	}
	log := h.cfg.Log.With("invocation", j.InvocationID, "session", j.Request.SessionID, "agent", j.Request.Agent)
	running, cancel := context.WithTimeoutCause(ctx, j.Timeout(h.cfg.Timeout), agent.ErrTimeout)
	defer cancel()
	// If it is the turn's own end that cut the loading short, there is nothing to
	// run on, and the run has ended before it does anything.
	if err := h.load(running, j); err != nil && running.Err() == nil {
		log.Error("session not loaded", "error", err)
		return h.uncommitted(j, failed(turn.CodeInternal, "the session could not be loaded"))
	}
	ended := j.run(running, environment{sink: (*streamSink)(s), claim: h.cfg.Store.ClaimCalls, now: h.cfg.Now, log: h.cfg.Log})
	if ended.Status == session.StatusError {
		log.Warn("turn failed", "error", ended.Err)
	}
	// The answer exists: an abort that comes now comes too late.
	return h.commit(context.WithoutCancel(ctx), j, ended, log)
}

func (h *Handler) load(ctx context.Context, j *job) error {
	loaded, err := h.cfg.Store.Load(ctx, loadQuery(j.Submission, 0))
	if err == nil {
		j.on(loaded.Head.Base(), loaded)
	}
	return err
}

// commit commits the run, and returns the result as it is stored. A turn whose
// events the store cannot write ends as failed.
func (h *Handler) commit(ctx context.Context, j *job, ended agent.Outcome, log *slog.Logger) *turn.Result {
	out, err := h.committer.commit(ctx, j.slice(ended, h.cfg.Now()))
	if err == nil && out.Err != nil {
		log.Error("turn cannot be written", "error", out.Err)
		unwritten := failed(turn.CodeInternal, "the turn's events could not be stored")
		unwritten.Usage = ended.Usage
		out, err = h.committer.commit(ctx, j.slice(unwritten, h.cfg.Now()))
	}
	if err == nil {
		err = out.Err
	}
	if err == nil {
		var result *turn.Result
		if result, err = turn.ResultOf(&out.Turn); err == nil {
			return result
		}
	}
	log.Error("turn not committed", "error", err)
	lost := failed(turn.CodeInternal, "the store failed; whether the turn was kept is not known")
	lost.Output = ended.Output // it was paid for
	return h.uncommitted(j, lost)
}

// uncommitted is the result of a turn of which nothing is known to be stored.
func (h *Handler) uncommitted(j *job, ended agent.Outcome) *turn.Result {
	j.Request.Response = nil // nothing is known of the session
	return j.result(ended, session.Outcome{Turn: session.Turn{
		SessionID: j.Request.SessionID, InvocationID: j.InvocationID, Status: session.StatusError,
		Agent: j.Request.Agent, Lane: string(j.Request.Lane), Attempt: j.attempt,
		CreatedAt: j.StoredAt, StartedAt: j.startedAt, FinishedAt: h.cfg.Now(),
	}})
}
