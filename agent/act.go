package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/turnpool/turnpool/session"
)

// callJob is a call to run: with its idempotency token, and, if its tool stopped
// the turn to ask, with the answer.
type callJob struct {
	*session.ToolCall
	token  string
	answer json.RawMessage
}

// act is the tools' half of a step: every call is run, but for those that stop the
// turn to ask, which it returns.
func (r *run) act(ctx context.Context, step int, calls []*session.ToolCall) (asking []*session.ToolCall, err error) {
	var jobs []callJob
	tokens := r.tokens(step, calls)
	for i, call := range calls {
		if call.Yields {
			asking = append(asking, call)
		} else {
			jobs = append(jobs, callJob{ToolCall: call, token: tokens[i]})
		}
	}
	return asking, r.runCalls(ctx, jobs)
}

// runCalls runs calls, and streams each result when it is there. The ledger has
// them in the order given. When ctx ends first, the calls still open are closed
// with an error, so that the ledger never has a call without a result, and ctx's
// cause comes back.
func (r *run) runCalls(ctx context.Context, jobs []callJob) error {
	// What the model asked for is safe before anything acts on it. If it was ctx
	// that cut the flush short, no call starts any more, and all are closed.
	if err := r.Sink.Flush(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	results := make([]*session.ToolResult, len(jobs))
	serve := func(i int) {
		if results[i] = r.replay.results[jobs[i].CallID]; results[i] != nil { // an earlier attempt finished it
			return
		}
		results[i] = r.serve(ctx, jobs[i])
		if r.cutOff(ctx) == nil {
			r.Sink.Emit(results[i])
		}
	}
	if r.Agent.Sequential {
		for i := range jobs {
			serve(i)
		}
	} else {
		var all sync.WaitGroup
		for i := range jobs {
			all.Go(func() { serve(i) })
		}
		all.Wait()
	}
	for _, result := range results {
		r.keep(result)
		r.progress = r.progress || r.replay.results[result.CallID] == nil && r.cutOff(ctx) == nil
	}
	return context.Cause(ctx)
}

// cutOff is why the run was stopped from outside, if it was. The result of a call
// that was cut off so is no result: a later attempt would take it for one. (At the
// run's own limit of time, the turn ends with the results there are.)
func (r *run) cutOff(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, errMaxDuration) {
		return cause
	}
	return nil
}

// tokens returns the idempotency token of each call.
func (r *run) tokens(step int, calls []*session.ToolCall) []string {
	tokens := make([]string, len(calls))
	equal := map[string]int{}
	for i, call := range calls {
		args := canonical(call.Args)
		same := call.Name + "\n" + args
		tokens[i] = callToken(r.InvocationID, step, call.Name, args, equal[same])
		equal[same]++
	}
	return tokens
}

// serve runs one call. Whatever goes wrong is a result that the model sees.
func (r *run) serve(ctx context.Context, call callJob) *session.ToolResult {
	started := r.Now()
	value, err := r.execute(ctx, call)
	result := &session.ToolResult{
		EventBase: r.base(), CallID: call.CallID, Name: call.Name, Result: value,
		TimedOut: errors.Is(err, errToolTimeout),
	}
	result.DurationMs = result.CreatedAt - started
	if err != nil {
		result.Result, result.Error = nil, err.Error()
	}
	return result
}

func (r *run) execute(ctx context.Context, call callJob) (json.RawMessage, error) {
	tool := r.tool(call.Name)
	if tool == nil {
		return nil, fmt.Errorf("%w: %q; there are: %s", errNoTool, call.Name, r.toolNames())
	}
	if err := tool.check(call.Args); err != nil {
		return nil, err
	}
	if tool.Execute == nil { // the answer is the result
		return call.answer, nil
	}
	if timeout := cmp.Or(tool.Timeout, r.Agent.ToolTimeout); timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w after %v", errToolTimeout, timeout))
		defer cancel()
	}
	value, err := await(ctx, r.panics("tool", call.Name), func() (json.RawMessage, error) {
		return tool.Execute(ctx, &Call{
			ID: call.CallID, Tool: call.Name, Args: call.Args, AgentName: r.Agent.Name,
			InvocationID: r.InvocationID, SessionID: r.SessionID, Token: call.token, Answer: call.answer,
		})
	})
	switch {
	case err != nil && ctx.Err() != nil: // the body saw its context end, and says so in its own words
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	case len(value) == 0:
		return json.RawMessage("null"), nil
	case !json.Valid(value):
		return nil, errors.New("the tool's result is not JSON")
	}
	return value, nil
}

func (r *run) tool(name string) *Tool {
	for _, t := range r.tools {
		if t.Name == name {
			return t
		}
	}
	return nil
}

func (r *run) toolNames() string {
	names := make([]string, len(r.tools))
	for i, t := range r.tools {
		names[i] = t.Name
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}

// panics returns what logs a panic of the tool or model that has the name.
func (r *run) panics(kind, name string) func(*panicError) {
	return func(p *panicError) {
		r.Log.Error(kind+" panicked", kind, name, "invocation", r.InvocationID, "session", r.SessionID,
			"attempt", r.Attempt, "panic", fmt.Sprint(p.value), "stack", string(p.stack))
	}
}
