package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// turnSummary is a turn without its answer: one that has none yet, or one in a
// list. Attempt is the one that runs, attempts all that there were.
type turnSummary struct {
	InvocationID string               `json:"invocationId"`
	SessionID    string               `json:"sessionId"`
	Agent        string               `json:"agent"`
	Lane         turn.Lane            `json:"lane"`
	Status       session.Status       `json:"status"`
	CommitStatus session.CommitStatus `json:"commitStatus,omitempty"`
	Version      int64                `json:"version,omitempty"`
	Attempt      int                  `json:"attempt,omitempty"`
	Attempts     int                  `json:"attempts,omitempty"`
	TurnUsage    *session.Usage       `json:"turnUsage,omitempty"`
	CreatedAt    int64                `json:"createdAt,omitempty"`
	StartedAt    int64                `json:"startedAt,omitempty"`
	FinishedAt   int64                `json:"finishedAt,omitempty"`
	Metadata     map[string]string    `json:"metadata,omitempty"`
}

func summaryOf(sub *turn.Submission, status session.Status) turnSummary {
	return turnSummary{
		InvocationID: sub.InvocationID, SessionID: sub.Request.SessionID, Agent: sub.Request.Agent,
		Lane: sub.Request.Lane, Status: status, CreatedAt: sub.StoredAt, Metadata: sub.Request.Metadata,
	}
}

func summaryOfRow(row *session.Turn) turnSummary {
	sum := turnSummary{
		InvocationID: row.InvocationID, SessionID: row.SessionID, Agent: row.Agent, Lane: turn.Lane(row.Lane),
		Status: row.Status, CommitStatus: row.CommitStatus, Version: row.Version, TurnUsage: row.Usage,
		CreatedAt: row.CreatedAt, StartedAt: row.StartedAt, FinishedAt: row.FinishedAt,
	}
	if row.Status.Finished() {
		sum.Attempts = row.Attempt
	} else {
		sum.Attempt = row.Attempt
	}
	return sum
}

// standing is where a turn stands: what the store, the queue and the log know
// of it. Row or request is there, or both.
type standing struct {
	row     *session.Turn
	request *turn.Submission
	log     turn.LogState
}

func (st standing) finished() bool { return st.row != nil && st.row.Status.Finished() }

// running: a worker has begun it. Between attempts it is running too.
func (st standing) running() bool { return st.row != nil || hasEvents(st.log) }

func (st standing) sessionID() string {
	if st.row != nil {
		return st.row.SessionID
	}
	return st.request.Request.SessionID
}

// attempts is how many there were. First attempts have no row, and the log may
// have expired.
func (st standing) attempts() int {
	if st.row != nil {
		return max(st.row.Attempt, st.log.Attempt)
	}
	return st.log.Attempt
}

// summary describes a turn that has not finished.
func (st standing) summary() turnSummary {
	var sum turnSummary
	switch {
	case st.request == nil:
		sum = summaryOfRow(st.row)
	case st.running():
		sum = summaryOf(st.request, session.StatusRunning)
	default:
		sum = summaryOf(st.request, session.StatusQueued)
	}
	if st.running() {
		sum.Attempt = st.attempts()
	}
	if st.row != nil {
		sum.StartedAt = st.row.StartedAt
	}
	return sum
}

// where finds out where a turn stands: its outcome in the store; else its
// request in the queue; else a row that is running. A turn that finishes
// between the two questions is in neither, so the store is asked again.
func (s *Server) where(ctx context.Context, tenant, id string) (standing, error) {
	if !turn.ValidInvocationID(id) {
		return standing{}, unknownTurn(id)
	}
	row, err := s.turnRow(ctx, tenant, id)
	if err != nil || row != nil && row.Status.Finished() {
		return standing{row: row}, err
	}
	request, err := s.deps.Queue.Lookup(ctx, tenant, id)
	if err != nil {
		return standing{}, brokerFault(err)
	}
	if request == nil {
		if row, err = s.turnRow(ctx, tenant, id); err != nil {
			return standing{}, err
		}
		if row == nil {
			return standing{}, unknownTurn(id)
		}
		if row.Status.Finished() {
			return standing{row: row}, nil
		}
	}
	log, err := s.deps.Log.State(ctx, tenant, id)
	if err != nil {
		return standing{}, brokerFault(err)
	}
	return standing{row: row, request: request, log: log}, nil
}

func unknownTurn(id string) error {
	return &fault{code: codeUnknownTurn, detail: fmt.Sprintf("there is no turn %q", shorten(id, 80))}
}

// turnRow returns the turn's row, nil if there is none.
func (s *Server) turnRow(ctx context.Context, tenant, id string) (*session.Turn, error) {
	row, err := s.deps.Store.Turn(ctx, tenant, id)
	switch {
	case errors.Is(err, session.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, storeFault(err)
	}
	return row, nil
}

// storedResult is the result of a turn that has finished, as it was stored. Of
// a turn whose session was deleted only the row is left.
func storedResult(row *session.Turn) (json.RawMessage, error) {
	if row.Result != nil {
		return row.Result, nil
	}
	return encodeJSON(resultOf(*row, nil))
}

// getTurn serves the result, or where the turn stands.
func (s *Server) getTurn(w http.ResponseWriter, r *http.Request) error {
	wait, err := s.waitParam(r.URL.Query())
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	stand, err := s.where(r.Context(), tenant(r), id)
	if err != nil {
		return err
	}
	if !stand.finished() && wait > 0 {
		result, err := s.awaitStored(r.Context(), tenant(r), id, stand, wait)
		if err != nil {
			return err
		}
		if result != nil {
			writeRaw(w, http.StatusOK, untag(result))
			return nil
		}
		if stand, err = s.where(r.Context(), tenant(r), id); err != nil {
			return err
		}
	}
	return writeStanding(w, stand)
}

func writeStanding(w http.ResponseWriter, stand standing) error {
	if !stand.finished() {
		writeJSON(w, http.StatusOK, stand.summary())
		return nil
	}
	result, err := storedResult(stand.row)
	if err != nil {
		return err
	}
	writeRaw(w, http.StatusOK, result)
	return nil
}

// awaitStored waits for the result of a turn that was submitted before.
func (s *Server) awaitStored(ctx context.Context, tenant, id string, stand standing, wait time.Duration) (json.RawMessage, error) {
	reader, err := s.deps.Log.Follow(ctx, tenant, id, max(0, stand.log.NextSeq-1))
	if err != nil {
		return nil, brokerFault(err)
	}
	defer reader.Close()
	result, _ := s.await(ctx, reader, wait)
	return result, nil
}

func (s *Server) waitParam(query url.Values) (time.Duration, error) {
	given := query.Get("wait")
	if given == "" {
		return 0, nil
	}
	seconds, ok := parseSeconds(given)
	if !ok {
		return 0, invalidQuery("wait", "expected a number of seconds")
	}
	return s.boundedWait(seconds), nil
}
