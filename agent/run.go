package agent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// ErrTimeout is the cause to cancel a run's context with when its time is over:
// the run then ends in error, code timeout. Any other cancellation ends it as
// aborted.
var ErrTimeout = errors.New("the turn's time is over")

// Sink takes what a run streams.
type Sink interface {
	// Emit takes an event at once. It may be called from several goroutines.
	Emit(e turn.Event)
	// Flush waits until all that was emitted is safe. A run calls it before the
	// first tool of a step starts and before the model is called again, so that
	// what was finished is not run twice. An error ends the run.
	Flush(ctx context.Context) error
}

// Run is one run of an agent on a session.
type Run struct {
	Agent        *Agent
	InvocationID string
	SessionID    string
	// Attempt counts from 1.
	Attempt int
	// Base and Events are the session as the turn's first attempt loaded it.
	Base   session.Base
	Events []session.Event
	// State is the session scope that goes with Events.
	State session.State
	Input turn.Input
	// Replay is what earlier attempts of the turn finished, see [Finished]. The
	// run goes on after it, and does not stream it again.
	Replay []session.Event
	// Frontend are tools of the caller's own: the model may call them, and the
	// turn stops for the caller to answer. A tool of the agent's goes before one
	// of the same name.
	Frontend []*Tool
	// ClaimCalls claims the calls that the input answers or closes, before the
	// run does anything. Nil: there is no other turn on this session.
	ClaimCalls ClaimCalls
	// UserAt is the time of the user event: the broker's, in milliseconds.
	UserAt int64
	Sink   Sink
	// Now is the clock, in milliseconds; nil: the system's. Tools that run at
	// the same time ask it at the same time.
	Now func() int64
	// Log gets what callers are not told: the panics of tools and models, each
	// once, with its stack. Nil: [slog.Default].
	Log *slog.Logger
}

// Outcome is how a run ended.
type Outcome struct {
	Status session.Status
	// Events are this run's part of the ledger, the user event first.
	Events []session.Event
	Output turn.Output
	// Yielded are the calls that wait for an answer, with status yielded_tool.
	Yielded []turn.YieldedTool
	// Error is what the caller is told, with status error.
	Error *turn.Error
	// Err is the failure itself, for the log.
	Err   error
	Usage *session.Usage
	// Progress: the run finished something that a later attempt keeps.
	Progress bool
}

// run is the state of a [Run] under way. Its goroutine owns every field; tools
// run beside it, and only emit.
type run struct {
	Run
	events       []session.Event // the ledger's part, in order
	conversation []session.Event // what the model sees
	callIDs      map[string]bool // of all calls in the conversation
	tools        []*Tool         // the agent's, then the caller's
	calls        calls           // that wait, or waited
	replay       replay
	yielded      []turn.YieldedTool
	usage        session.Usage
	progress     bool // see Outcome; set by the run's own goroutine
}

// Do runs the agent to its end. It returns when ctx is cancelled, also if a tool
// or a model ignores that; such a one is left behind, and nothing that it still
// does is seen. Do is called once a value.
func (r Run) Do(ctx context.Context) Outcome {
	if r.Now == nil {
		r.Now = func() int64 { return time.Now().UnixMilli() }
	}
	if r.Log == nil {
		r.Log = slog.Default()
	}
	one := newRun(r)
	err := one.claim(ctx)
	one.open()
	if err != nil {
		return one.close(ctx, session.StatusError, err)
	}
	status, err := one.steps(ctx)
	return one.close(ctx, status, err)
}

func newRun(r Run) *run {
	one := &run{Run: r, callIDs: map[string]bool{}, tools: slices.Clip(r.Agent.Tools), replay: newReplay(r.Replay)}
	for _, t := range r.Frontend {
		if r.Agent.tool(t.Name) == nil {
			one.tools = append(one.tools, t)
		}
	}
	for _, e := range r.Events {
		one.hear(e)
	}
	return one
}

// open adds what comes before the first step.
func (r *run) open() {
	r.keepAnswers()
	if len(r.Replay) > 0 {
		r.reopen()
		return
	}
	closed := r.keepSuperseded()
	r.keepUser()
	r.add(&session.InvocationStart{
		EventBase: r.base(), Kind: "turn", SessionID: r.SessionID,
		Version: r.Base.Version, EventCount: r.Base.EventCount, Epoch: r.Base.Epoch, Attempt: r.Attempt,
	})
	for _, result := range closed {
		r.Sink.Emit(result)
	}
	if changes := r.State.Diff(r.Input.State); len(changes) > 0 {
		r.add(&session.StateChange{
			EventBase: r.base(), Scope: session.ScopeSession, Source: session.SourceDirect, Changes: changes,
		})
	}
}

func (r *run) keepUser() {
	if m := r.Input.Message; m != nil {
		user := &session.User{EventBase: r.base(), Text: m.Text, Media: m.Media}
		user.ID, user.CreatedAt = turn.UserEventID(r.InvocationID), r.UserAt
		r.keep(user)
	}
}

var errMaxDuration = errors.New("the agent's maxDuration is over")

// steps runs the model and its tools until the model has answered, or a limit or
// a failure ends it.
func (r *run) steps(ctx context.Context) (session.Status, error) {
	if r.Agent.MaxDuration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.Agent.MaxDuration, errMaxDuration)
		defer cancel()
	}
	status, err := r.loop(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errMaxDuration) {
		return session.StatusMaxDuration, nil
	}
	return status, err
}

func (r *run) loop(ctx context.Context) (session.Status, error) {
	if r.waits() {
		return r.waitOn(), nil
	}
	if r.calls.claimed.Resumes {
		if err := r.resume(ctx); err != nil {
			return session.StatusError, err
		}
	}
	r.conversation = wellFormed(r.conversation)
	r.replaySteps()
	for step, calls := r.replay.step, r.replay.calls; ; {
		if step > 0 { // there is an answer
			status, err := r.actOn(ctx, step, calls)
			if status != session.StatusRunning || err != nil {
				return status, err
			}
		}
		if ctx.Err() != nil {
			return session.StatusError, context.Cause(ctx)
		}
		step++
		var err error
		if calls, err = r.think(ctx, step); err != nil {
			return session.StatusError, err
		}
	}
}

// actOn does what the model's answer asks for. The status is running if the model
// is to be called again.
func (r *run) actOn(ctx context.Context, step int, calls []*session.ToolCall) (session.Status, error) {
	if len(calls) == 0 {
		return session.StatusCompleted, nil
	}
	asking, err := r.act(ctx, step, calls)
	switch {
	case err != nil:
		return session.StatusError, err
	case len(asking) > 0:
		r.ask(asking)
		return session.StatusYieldedTool, nil
	case step >= r.Agent.maxSteps():
		return session.StatusMaxSteps, nil
	}
	if err := r.Sink.Flush(ctx); err != nil {
		return session.StatusError, err
	}
	return session.StatusRunning, nil
}

// close works out how the run ended, and adds its last event.
func (r *run) close(ctx context.Context, status session.Status, err error) Outcome {
	out := Outcome{Status: status}
	switch {
	case err == nil:
	case errors.Is(context.Cause(ctx), ErrTimeout):
		out.Err = ErrTimeout
		out.Error = &turn.Error{Code: turn.CodeTimeout, Message: "the turn took longer than its timeout", Retryable: true}
	case ctx.Err() != nil:
		out.Status, out.Err = session.StatusAborted, context.Cause(ctx)
	default:
		out.Err, out.Error = err, failure(err)
	}
	if out.Status == session.StatusYieldedTool {
		out.Yielded = r.yielded
	} else {
		r.add(&session.InvocationEnd{EventBase: r.base(), Reason: out.Status, Error: out.Error})
	}
	out.Events, out.Progress = r.events, r.progress
	out.Output = outputOf(r.events)
	if r.usage.ModelCalls > 0 {
		out.Usage = &r.usage
	}
	return out
}

// failure is what a caller is told of an error. The text of an error that is
// not known here stays in the log.
func failure(err error) *turn.Error {
	var model *ModelError
	var told *turn.Error
	switch {
	case errors.As(err, &told):
		return told
	case errors.As(err, &model) && model.Status == 429:
		return &turn.Error{Code: turn.CodeRateLimited, Message: model.Message, Retryable: true}
	case errors.As(err, &model):
		return &turn.Error{Code: turn.CodeModelError, Message: model.Error(), Retryable: model.Retryable()}
	default:
		return &turn.Error{Code: turn.CodeInternal, Message: "the run failed; the worker's log says why", Retryable: true}
	}
}

func outputOf(events []session.Event) turn.Output {
	out := turn.Output{Items: session.Events{}}
	for _, e := range events {
		if answer, ok := e.(*session.Assistant); ok {
			out.Items = append(out.Items, answer)
			out.Text, out.Value = answer.Text, answer.Output
		}
	}
	return out
}

// add streams an event and keeps it for the ledger.
func (r *run) add(e session.Event) {
	r.Sink.Emit(e)
	r.keep(e)
}

// keep adds an event to the ledger's part, and to what the model sees.
func (r *run) keep(e session.Event) {
	r.events = append(r.events, e)
	r.hear(e)
}

// hear adds an event to what the model sees, if it is of its kind.
func (r *run) hear(e session.Event) {
	switch e := e.(type) {
	case *session.ToolCall:
		r.callIDs[e.CallID] = true
	case *session.User, *session.Assistant, *session.Thought, *session.ToolResult:
	default:
		return
	}
	r.conversation = append(r.conversation, e)
}

func (r *run) base() session.EventBase {
	return session.EventBase{
		ID: turn.NewEventID(), CreatedAt: r.Now(), InvocationID: r.InvocationID, AgentName: r.Agent.Name,
	}
}
