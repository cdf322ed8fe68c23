package agent

import (
	"slices"

	"github.com/turnpool/turnpool/session"
)

// A later attempt of a turn goes on where the earlier ones were: what they had
// finished, as their stream tells, is not done again. Finished says what that is;
// the run gets it as [Run.Replay] and begins after it.

// Finished returns how many of a run's events, in the order they were streamed in
// (without deltas), a later attempt keeps: up to the last whole answer of the
// model, or the last result of a tool. What comes after is run again. 0: nothing
// was finished.
func Finished(events []session.Event) (n int) {
	missing := 0    // events of the model's answer
	acting := false // an answer is whole, or answers of people are there, so tools may run
	for i, e := range events {
		whole := false
		switch e := e.(type) {
		case *session.InvocationResume:
			acting = true
		case *session.ModelStart:
			acting = false
		case *session.ModelEnd:
			missing = e.Items
			acting = e.Error == nil && missing == 0
			whole = acting
		case *session.Thought, *session.Assistant, *session.ToolCall:
			missing--
			acting = missing == 0
			whole = acting
		case *session.ToolResult:
			whole = acting
		}
		if whole {
			n = i + 1
		}
	}
	return n
}

// replay is what earlier attempts have left, in three parts.
type replay struct {
	opening []session.Event // before the first tool or model
	resumed []session.Event // of calls whose answers came
	steps   []session.Event
	// results are those of finished calls, by id.
	results map[string]*session.ToolResult
	// step is the last step with an answer, calls are those of that answer.
	step  int
	calls []*session.ToolCall
}

func newReplay(events []session.Event) replay {
	p := replay{results: map[string]*session.ToolResult{}}
	begun := func(e session.Event) bool {
		switch e.(type) {
		case *session.InvocationResume, *session.ModelStart:
			return true
		}
		return false
	}
	stepped := func(e session.Event) bool { _, ok := e.(*session.ModelStart); return ok }
	cut := func(is func(session.Event) bool) (before []session.Event) {
		at := slices.IndexFunc(events, is)
		if at < 0 {
			at = len(events)
		}
		before, events = events[:at], events[at:]
		return before
	}
	p.opening, p.resumed, p.steps = cut(begun), cut(stepped), events
	for _, e := range slices.Concat(p.resumed, p.steps) {
		if result, ok := e.(*session.ToolResult); ok {
			p.results[result.CallID] = result
		}
	}
	return p
}

// reopen keeps what opened the turn. Calls that its message closed come before the
// message, as they did.
func (r *run) reopen() {
	for _, e := range r.replay.opening {
		if _, ok := e.(*session.ToolResult); ok {
			r.keep(e)
		}
	}
	r.keepUser()
	for _, e := range r.replay.opening {
		if _, ok := e.(*session.ToolResult); !ok {
			r.keep(e)
		}
	}
}

// replaySteps keeps the steps that were finished: of each the model's answer, and
// the results of its calls in the model's order. Of the last one only the answer:
// whatever of its calls has a result is not run again.
func (r *run) replaySteps() {
	p := &r.replay
	for _, e := range p.steps {
		switch e := e.(type) {
		case *session.ModelStart:
			for _, call := range p.calls {
				if result := p.results[call.CallID]; result != nil {
					r.keep(result)
				}
			}
			p.step, p.calls = e.StepIndex, nil
		case *session.ModelEnd:
			r.usage.AddCall(r.Agent.Model.Name(), e.Usage)
		case *session.ToolCall:
			p.calls = append(p.calls, e)
		case *session.ToolResult:
			continue
		}
		r.keep(e)
	}
}
