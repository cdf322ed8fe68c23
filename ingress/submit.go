package ingress

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// publishTimeout bounds how long a caller waits to hear that its turn was
// accepted. The broker's client repeats within it.
const publishTimeout = 10 * time.Second

// submit accepts a turn and answers in the form that the caller wants. Once it
// was accepted, no way of losing the caller or the result changes that: the
// answer is then where to look.
func (s *Server) submit(w http.ResponseWriter, r *http.Request) error {
	err := s.submitTurn(w, r)
	if err != nil {
		s.metrics.submits.WithLabelValues(faultOf(err).code).Inc()
	}
	return err
}

func (s *Server) submitTurn(w http.ResponseWriter, r *http.Request) error {
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	request, err := decodeRequest(body)
	if err != nil {
		return err
	}
	sub, err := s.accept(tenant(r), request)
	if err != nil {
		return err
	}
	if r.Header.Get(headerKey) != "" {
		return s.submitOnce(w, r, sub, body)
	}
	return s.take(w, r, sub)
}

// take publishes a turn, and answers in the form that the caller wants.
func (s *Server) take(w http.ResponseWriter, r *http.Request, sub *turn.Submission) error {
	want := s.wantedBy(r.Header)
	switch {
	case want.stream:
		return s.submitAndStream(w, r, sub)
	case want.wait > 0:
		return s.submitAndWait(w, r, sub, want)
	}
	if err := s.publish(r.Context(), sub); err != nil {
		return err
	}
	writeAccepted(w, sub, want, summaryOf(sub, session.StatusQueued))
	return nil
}

// accept makes a submission of a valid request: an agent that workers serve,
// and the ids.
func (s *Server) accept(tenant string, request turn.Request) (*turn.Submission, error) {
	if request.Agent == "" {
		request.Agent = s.cfg.DefaultAgent
	}
	if request.Agent == "" {
		return nil, &fault{code: codeMissingAgent, detail: "the request names no agent, and there is no default one"}
	}
	agent, ok := s.deps.Registry.Agent(request.Agent)
	if !ok {
		return nil, s.unknownAgent(request.Agent)
	}
	if request.SessionID == "" {
		request.SessionID = turn.NewSessionID()
	}
	return &turn.Submission{
		Tenant: tenant, InvocationID: turn.NewInvocationID(), Pool: agent.Pool, Request: request,
	}, nil
}

// maxAgentsNamed bounds the list in an answer to somebody who knows no agent.
const maxAgentsNamed = 10

func (s *Server) unknownAgent(name string) error {
	if !s.deps.Registry.Any() {
		return &fault{code: codeUnavailable, detail: "no worker has announced its agents yet"}
	}
	var known []string
	for _, agent := range s.agents() {
		known = append(known, agent.Name)
	}
	if len(known) > maxAgentsNamed {
		known = append(known[:maxAgentsNamed], "…")
	}
	return &fault{code: codeUnknownAgent, detail: fmt.Sprintf("no worker has announced an agent %q; there are: %s", name, strings.Join(known, ", "))}
}

// watch subscribes to the events of a turn that is not published yet, so that
// none is missed.
func (s *Server) watch(ctx context.Context, sub *turn.Submission) (turn.LogReader, error) {
	reader, err := s.deps.Log.Watch(ctx, sub.Tenant, sub.InvocationID)
	if err != nil {
		return nil, brokerFault(err)
	}
	return reader, nil
}

// publish queues the turn. It goes on when the caller hangs up: a publish that
// was given up on is neither made nor not made.
func (s *Server) publish(ctx context.Context, sub *turn.Submission) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	err := s.deps.Queue.Publish(ctx, sub)
	if err != nil {
		return publishFault(err, sub)
	}
	s.metrics.submits.WithLabelValues(submitAccepted).Inc()
	s.log.Info("turn accepted", "invocation", sub.InvocationID, "session", sub.Request.SessionID,
		"agent", sub.Request.Agent, "lane", sub.Request.Lane)
	return nil
}

func publishFault(err error, sub *turn.Submission) error {
	switch code := codeOf(err); {
	case errors.Is(err, turn.ErrQueueFull):
		return &fault{code: code, cause: err, detail: fmt.Sprintf("the %s lane takes no more turns now; nothing was queued", sub.Request.Lane)}
	case errors.Is(err, turn.ErrTooLarge):
		return &fault{code: code, cause: err, detail: "the request is larger than the broker takes; nothing was queued"}
	default:
		address := turnPath(sub.InvocationID)
		return &fault{
			code: code, cause: err, instance: address, location: address,
			detail: fmt.Sprintf("the broker did not confirm the turn %s; it may still run: see %s", sub.InvocationID, address),
		}
	}
}

func turnPath(invocationID string) string { return "/v1/turns/" + invocationID }

// submitAndWait holds the caller until the turn has its result. When that takes
// too long, or the ingress stops, the store has the last word before the caller
// is told to look later: the result's event may have been missed.
func (s *Server) submitAndWait(w http.ResponseWriter, r *http.Request, sub *turn.Submission, want wanted) error {
	reader, err := s.watch(r.Context(), sub)
	if err != nil {
		return err
	}
	defer reader.Close()
	if err := s.publish(r.Context(), sub); err != nil {
		return err
	}
	result, started := s.await(r.Context(), reader, want.wait)
	if result != nil {
		writeOutcome(w, untag(result))
		return nil
	}
	if r.Context().Err() != nil {
		return nil // the caller is gone; the turn goes on
	}
	row, err := s.turnRow(r.Context(), sub.Tenant, sub.InvocationID)
	if err != nil { // the turn was accepted, whatever the store is up to
		s.log.Warn("cannot look up the outcome of a turn", "invocation", sub.InvocationID, "error", err)
	}
	if row != nil && row.Status.Finished() {
		return writeRowOutcome(w, row)
	}
	status := session.StatusQueued
	if started || row != nil {
		status = session.StatusRunning
	}
	writeAccepted(w, sub, want, summaryOf(sub, status))
	return nil
}

func writeRowOutcome(w http.ResponseWriter, row *session.Turn) error {
	result, err := storedResult(row)
	if err != nil {
		return err
	}
	writeOutcome(w, result)
	return nil
}

// writeAccepted is the 202. It has no createdAt: that is the broker's to say.
func writeAccepted(w http.ResponseWriter, sub *turn.Submission, want wanted, body turnSummary) {
	w.Header().Set("Location", turnPath(sub.InvocationID))
	w.Header().Set("Preference-Applied", want.applied)
	writeJSON(w, http.StatusAccepted, body)
}

// submitAndStream answers with the turn's events from the first one on.
func (s *Server) submitAndStream(w http.ResponseWriter, r *http.Request, sub *turn.Submission) error {
	view, err := viewOf(r.URL.Query())
	if err != nil {
		return err
	}
	reader, err := s.watch(r.Context(), sub)
	if err != nil {
		return err
	}
	defer reader.Close()
	if err := s.publish(r.Context(), sub); err != nil {
		return err
	}
	s.relay(w, r, reader, view, streamHead{sub.InvocationID, sub.Request.SessionID}, nil)
	return nil
}
