package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// job is one attempt of one turn, ready to run.
type job struct {
	*turn.Submission
	agent    *agent.Agent
	frontend []*agent.Tool
	attempt  int
	failures int
	// base and events are the session as the turn's first attempt loaded it.
	base      session.Base
	events    []session.Event
	state     session.State
	startedAt int64
	// replay is what earlier attempts finished, and rewindTo the number of its
	// last event.
	replay   []session.Event
	rewindTo int64
	// dead: the turn is given up.
	dead bool
	// claimed says that the turn's row names this attempt.
	claimed bool
}

// loadQuery asks for what a turn needs to begin.
func loadQuery(s *turn.Submission, upTo int64) session.LoadQuery {
	return session.LoadQuery{
		Tenant: s.Tenant, SessionID: s.Request.SessionID, InvocationID: s.InvocationID, UpTo: upTo,
	}
}

// on puts the session that was loaded into the job, as it was at base. The
// events loaded are those up to base, or more.
func (j *job) on(base session.Base, loaded session.Loaded) {
	j.base, j.events = base, loaded.Events[:min(base.EventCount, int64(len(loaded.Events)))]
	switch {
	case base == session.Base{} || loaded.Head == nil || loaded.Head.Epoch != base.Epoch:
		// No session, or another one than the first attempt loaded: the turn
		// runs on nothing, and its commit finds out what that means.
		j.events, j.state = nil, session.State{}
	case loaded.Head.EventCount == base.EventCount:
		j.state = loaded.Head.State
	default: // the session has grown since
		var then session.Head
		then.Fold(j.events)
		j.state = then.State
	}
}

// addFrontendTools makes tools of those that the request brings.
func (j *job) addFrontendTools() error {
	for _, t := range j.Request.FrontendTools {
		var parameters *jsonschema.Schema
		if len(t.Parameters) > 0 {
			if err := json.Unmarshal(t.Parameters, &parameters); err != nil {
				return fmt.Errorf("frontendTools: %s: parameters: %w", t.Name, err)
			}
		}
		tool := agent.FrontendTool(t.Name, t.Description, parameters)
		if err := tool.Check(); err != nil {
			return fmt.Errorf("frontendTools: %w", err)
		}
		j.frontend = append(j.frontend, tool)
	}
	return nil
}

// callClaim is what the turn asks the store for, before it answers or closes calls
// that wait in its session.
func (j *job) callClaim(answers []session.CallAnswer, supersede []string) session.CallClaim {
	return session.CallClaim{
		Tenant: j.Tenant, SessionID: j.Request.SessionID, InvocationID: j.InvocationID, Epoch: j.base.Epoch,
		Answers: answers, Supersede: supersede,
	}
}

// run runs the agent.
func (j *job) run(ctx context.Context, env environment) agent.Outcome {
	return agent.Run{
		Agent: j.agent, InvocationID: j.InvocationID, SessionID: j.Request.SessionID, Attempt: j.attempt,
		Base: j.base, Events: j.events, State: j.state, Input: j.Request.Input, Replay: j.replay, Frontend: j.frontend, UserAt: j.StoredAt,
		Sink: env.sink, Now: env.now, Log: env.log,
		ClaimCalls: func(ctx context.Context, answers []session.CallAnswer, supersede []string) (session.ClaimedCalls, error) {
			return env.claim(ctx, j.callClaim(answers, supersede))
		},
	}.Do(ctx)
}

// environment is what a run needs of whoever drives it.
type environment struct {
	sink  agent.Sink
	claim func(context.Context, session.CallClaim) (session.ClaimedCalls, error)
	now   func() int64
	log   *slog.Logger
}
