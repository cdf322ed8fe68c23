package worker

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// Codes of a request that is refused before anything runs. Over HTTP the ingress
// refuses the same requests with the same codes.
const (
	codeInvalidField = "invalid_field"
	codeUnknownAgent = "unknown_agent"
	codeEmptyInput   = "empty_input"
)

// accept makes a job of a request, or says why not.
func (h *Handler) accept(invocationID string, req turn.Request) (*job, *turn.Error) {
	if req.Agent == "" {
		req.Agent = h.cfg.Agents[0].Name
	}
	if req.Lane == "" {
		req.Lane = turn.LaneInteractive
	}
	if req.Response == nil {
		req.Response = &h.cfg.Response
	}
	if m := req.Input.Message; m != nil && m.Text == "" && len(m.Media) == 0 {
		req.Input.Message = nil // it says nothing
	}
	var refusal *turn.Error
	if req.SessionID, refusal = sessionID(req.SessionID); refusal == nil {
		refusal = h.check(req)
	}
	now := h.cfg.Now()
	j := &job{
		Submission: &turn.Submission{Tenant: h.cfg.Tenant, InvocationID: invocationID, Request: req, StoredAt: now},
		agent:      h.agents[req.Agent], attempt: 1, startedAt: now,
	}
	if err := j.addFrontendTools(); err != nil && refusal == nil {
		refusal = invalid("%v", err)
	}
	return j, refusal
}

// sessionID returns the one form of a session's id: a new one for none. The
// prefix that the form adds does not count towards an id's length, so that every
// id which a result has is one that a request may have.
func sessionID(given string) (string, *turn.Error) {
	if given == "" {
		return turn.NewSessionID(), nil
	}
	id := turn.NormalizeSessionID(given)
	bare := strings.TrimPrefix(id, turn.NormalizeSessionID(""))
	if !turn.ValidSessionID(given) && !turn.ValidSessionID(bare) {
		return given, invalid("sessionId: 1 to %d characters, none of them a control character", turn.MaxSessionID)
	}
	return id, nil
}

func (h *Handler) check(req turn.Request) *turn.Error {
	if h.agents[req.Agent] == nil {
		return &turn.Error{Code: codeUnknownAgent, Message: fmt.Sprintf("there is no agent %q", req.Agent)}
	}
	if req.Input.Empty() {
		return &turn.Error{Code: codeEmptyInput, Message: "give a message, answers to tools, or state"}
	}
	for _, scope := range slices.Sorted(maps.Keys(req.Scopes)) {
		if !sharedScope(scope) || !turn.ValidSessionID(req.Scopes[scope]) {
			return invalid("scopes: %q is not the name of a shared scope, or its id is malformed", scope)
		}
	}
	for _, scope := range slices.Sorted(maps.Keys(req.Input.InitialState)) {
		if _, bound := req.Scopes[scope]; !bound && scope != session.ScopeSession {
			return invalid("initialState: scopes does not say which %s: a new session binds its scopes by id", scope)
		}
		if refusal := checkState("initialState", req.Input.InitialState[scope]); refusal != nil {
			return refusal
		}
	}
	return checkState("state", req.Input.State)
}

// checkState refuses values that are no JSON. None at all deletes the key.
func checkState(field string, state session.State) *turn.Error {
	for _, key := range slices.Sorted(maps.Keys(state)) {
		if value := state[key]; len(value) > 0 && !json.Valid(value) {
			return invalid("%s: the value of %q is not JSON", field, key)
		}
	}
	return nil
}

// sharedScope reports whether the name can be that of a scope between sessions.
func sharedScope(name string) bool {
	return turn.ValidName(name) && name != session.ScopeSession && name != session.ScopeTemp
}

func invalid(format string, args ...any) *turn.Error {
	return &turn.Error{Code: codeInvalidField, Message: fmt.Sprintf(format, args...)}
}
