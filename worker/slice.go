package worker

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// slice is what the turn wants to commit after its run.
func (j *job) slice(run agent.Outcome, finishedAt int64) *session.Slice {
	s := &session.Slice{
		Turn: session.Turn{
			Tenant: j.Tenant, InvocationID: j.InvocationID, SessionID: j.Request.SessionID,
			Agent: j.Request.Agent, Lane: string(j.Request.Lane), Status: run.Status,
			Attempt: j.attempt, Failures: j.failures, Usage: run.Usage,
			CreatedAt: j.StoredAt, StartedAt: j.startedAt, FinishedAt: finishedAt,
		},
		Base:   j.base,
		Events: run.Events,
		Policy: session.Resolve,
		Scopes: j.Request.Scopes,
	}
	j.addInitialState(s)
	s.Result = func(out session.Outcome) (json.RawMessage, error) {
		ended := run
		if out.Turn.Version == 1 { // this commit made the session
			ended.Events = slices.Concat(s.Initial, run.Events)
		}
		return json.Marshal(j.result(ended, out))
	}
	return s
}

// addInitialState adds the state that a new session starts with. A shared scope
// that the request does not bind has nowhere to go, and temp is never stored.
func (j *job) addInitialState(s *session.Slice) {
	initial := j.Request.Input.InitialState
	for _, scope := range slices.Sorted(maps.Keys(initial)) {
		id, bound := j.Request.Scopes[scope]
		if scope == session.ScopeTemp || !bound && scope != session.ScopeSession {
			continue
		}
		changes := session.State{}.Diff(initial[scope])
		if len(changes) == 0 {
			continue
		}
		s.Initial = append(s.Initial, &session.StateChange{
			EventBase: session.EventBase{
				ID: turn.NewEventID(), CreatedAt: j.StoredAt, InvocationID: j.InvocationID, AgentName: j.Request.Agent,
			},
			Scope: scope, Source: session.SourceDirect, Changes: changes,
		})
		if scope == session.ScopeSession {
			continue
		}
		for _, c := range changes {
			s.InitialScoped = append(s.InitialScoped, session.ScopedWrite{
				Scope: scope, ScopeID: id, Key: c.Key, Value: c.NewValue,
			})
		}
	}
}

// result is the turn's result, once the store has decided.
func (j *job) result(run agent.Outcome, out session.Outcome) *turn.Result {
	row := out.Turn
	r := &turn.Result{
		SessionID: row.SessionID, InvocationID: row.InvocationID, Status: row.Status,
		Output: run.Output, CommitStatus: row.CommitStatus, Version: row.Version,
		YieldedTools: run.Yielded, Error: run.Error, Warning: row.CommitStatus.Warning(),
		Agent: row.Agent, Lane: turn.Lane(row.Lane), Attempts: row.Attempt,
		CreatedAt: row.CreatedAt, StartedAt: row.StartedAt, FinishedAt: row.FinishedAt,
		RedriveOf: j.RedriveOf, Metadata: j.Request.Metadata,
	}
	if j.dead {
		r.Failures = row.Failures
	}
	if r.Output.Items == nil {
		r.Output.Items = session.Events{}
	}
	if out.TooLate {
		r.YieldedTools = nil
		r.Error = &turn.Error{Code: turn.CodeAlreadyAnswered, Message: "another turn answered these calls first"}
	}
	if want := j.Request.Response; want != nil {
		include(r, *want, run.Events, out)
	}
	return r
}

// include adds what the request asked for; it is there also if it is empty.
func include(r *turn.Result, want turn.Response, events []session.Event, out session.Outcome) {
	head := out.Head
	if head == nil {
		head = &session.Head{} // no session: no state, and nothing used
	}
	if want.Events {
		r.Events = mayLeave(events)
	}
	if want.Usage {
		r.Usage, r.TurnUsage = head.Usage.Clone(), out.Turn.Usage.Clone()
	}
	if want.State {
		r.State = head.State.Clone()
	}
}

// mayLeave returns the events that may leave the process.
func mayLeave(events []session.Event) session.Events {
	left := session.Events{}
	for _, e := range events {
		if session.MayLeave(e) {
			left = append(left, e)
		}
	}
	return left
}
