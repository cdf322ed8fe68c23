package ingress

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// What a cancel does is bounded in time and, behind its caller's back, in
// number.
const (
	abortTimeout     = 5 * time.Second
	announceTimeout  = 500 * time.Millisecond // of what the caller waits for
	broadcastTimeout = 3 * time.Second
	removeTimeout    = 5 * time.Second
	maxCancels       = 1024
)

// cancelAnswer says where the turn stands, and whether this call brought it
// there.
type cancelAnswer struct {
	InvocationID    string         `json:"invocationId"`
	Status          session.Status `json:"status"`
	CancelRequested bool           `json:"cancelRequested"`
}

// cancelTurn aborts a turn. The row decides: whoever writes the outcome first
// has the last word, so a second cancel, or one that comes too late, answers
// with what there is. The worker that runs the turn is told afterwards.
func (s *Server) cancelTurn(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	stand, err := s.where(r.Context(), tenant(r), id)
	if err != nil {
		return err
	}
	answer := cancelAnswer{InvocationID: id}
	if stand.finished() {
		answer.Status = stand.row.Status
		s.resumeCancel(r.Context(), stand.row)
	} else if answer, err = s.cancel(r.Context(), tenant(r), stand); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

// cancel takes its place among the cancels before it writes anything, so that
// none is left half done.
func (s *Server) cancel(ctx context.Context, tenant string, stand standing) (cancelAnswer, error) {
	id := stand.summary().InvocationID
	if err := s.beginCancel(id); err != nil {
		return cancelAnswer{}, err
	}
	result, outcome, err := s.abort(ctx, tenant, stand)
	if err != nil || outcome.Repeat {
		s.endCancel(id)
		return cancelAnswer{InvocationID: id, Status: outcome.Turn.Status}, err
	}
	s.log.Info("turn cancelled", "invocation", id, "session", outcome.Turn.SessionID,
		"agent", outcome.Turn.Agent, "lane", outcome.Turn.Lane)
	s.announce(ctx, tenant, result)
	return cancelAnswer{InvocationID: id, Status: outcome.Turn.Status, CancelRequested: true}, nil
}

// abort writes the outcome, unless there is one. It goes on when the caller
// hangs up, or nobody would announce what it wrote.
func (s *Server) abort(ctx context.Context, tenant string, stand standing) (*turn.Result, session.Outcome, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	slice, result := abortedSlice(tenant, stand, s.cfg.Clock())
	outcomes, err := s.deps.Store.Commit(ctx, []*session.Slice{slice})
	if err == nil {
		err = outcomes[0].Err
	}
	if err != nil {
		return nil, session.Outcome{}, storeFault(err)
	}
	return result, outcomes[0], nil
}

// resumeCancel goes on with a cancel that somebody began and could not finish:
// the turn is aborted, but its request is still there and nobody here is at it.
// It is a help, so it tells nobody of a failure.
func (s *Server) resumeCancel(ctx context.Context, row *session.Turn) {
	if row.Status != session.StatusAborted || s.cancels.at(row.InvocationID) {
		return
	}
	request, err := s.deps.Queue.Lookup(ctx, row.Tenant, row.InvocationID)
	if err != nil || request == nil || s.beginCancel(row.InvocationID) != nil {
		return
	}
	s.announce(ctx, row.Tenant, resultOf(*row, request.Request.Metadata))
}

// abortedSlice is the outcome of a turn that is cancelled by nobody who runs
// it. The result is filled in when the store settles the slice.
func abortedSlice(tenant string, stand standing, now time.Time) (*session.Slice, *turn.Result) {
	sum := stand.summary()
	result := new(turn.Result)
	return &session.Slice{
		Turn: session.Turn{
			Tenant: tenant, InvocationID: sum.InvocationID, SessionID: sum.SessionID,
			Agent: sum.Agent, Lane: string(sum.Lane), Status: session.StatusAborted,
			CreatedAt: sum.CreatedAt, StartedAt: sum.StartedAt, FinishedAt: now.UnixMilli(),
		},
		Result: func(o session.Outcome) (json.RawMessage, error) {
			*result = *resultOf(o.Turn, sum.Metadata)
			result.Attempts = max(result.Attempts, sum.Attempt)
			return encodeJSON(result)
		},
	}, result
}

// cancels counts the cancels under way, by turn. Two callers may be at one turn;
// the store lets one of them win.
type cancels struct {
	mu      sync.Mutex
	running map[string]int
	total   int
}

func (c *cancels) begin(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.total == maxCancels {
		return false
	}
	c.total++
	c.running[id]++
	return true
}

func (c *cancels) end(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total--
	if c.running[id]--; c.running[id] == 0 {
		delete(c.running, id)
	}
}

func (c *cancels) at(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[id] > 0
}

func (s *Server) beginCancel(id string) error {
	if !s.life.open.enter() {
		return &fault{code: codeUnavailable, detail: "this server is stopping; nothing was cancelled"}
	}
	if !s.cancels.begin(id) {
		s.life.open.leave()
		return &fault{code: codeRateLimited, detail: "too many turns are being cancelled; nothing was done"}
	}
	return nil
}

func (s *Server) endCancel(id string) {
	s.cancels.end(id)
	s.life.open.leave()
}

// announce gives the readers the result, for which the caller waits a moment,
// then goes on in the background. It ends the cancel.
func (s *Server) announce(ctx context.Context, tenant string, result *turn.Result) {
	announced := s.finish(context.WithoutCancel(ctx), tenant, result)
	go func() {
		defer s.endCancel(result.InvocationID)
		nobody := s.broadcast(result.InvocationID)
		announced = announced || s.finish(s.life.background, tenant, result)
		if announced && nobody {
			s.remove(tenant, result.InvocationID)
		}
		// A request that stays queued is not run: whoever receives it finds the
		// outcome, and announces that.
	}()
}

func (s *Server) finish(ctx context.Context, tenant string, result *turn.Result) bool {
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	if err := s.deps.Log.Finish(ctx, tenant, result.InvocationID, result); err != nil {
		s.log.Warn("cannot announce a cancelled turn", "invocation", result.InvocationID, "error", err)
		return false
	}
	return true
}

// broadcast tells whoever runs the turn to stop. It reports whether nobody does,
// as far as asking for the whole time can tell.
func (s *Server) broadcast(id string) (nobody bool) {
	ctx, cancel := context.WithTimeout(s.life.background, broadcastTimeout)
	defer cancel()
	held, err := s.deps.Control.Cancel(ctx, id)
	if err != nil {
		s.log.Warn("cannot tell workers of a cancelled turn", "invocation", id, "error", err)
		return false
	}
	return !held && s.life.background.Err() == nil
}

func (s *Server) remove(tenant, id string) {
	ctx, cancel := context.WithTimeout(s.life.background, removeTimeout)
	defer cancel()
	if err := s.deps.Queue.Remove(ctx, tenant, id); err != nil {
		s.log.Warn("cannot remove a cancelled turn from the queue", "invocation", id, "error", err)
	}
}
