package agent

import "github.com/turnpool/turnpool/session"

// unanswered is what the model is told of a call that has no result, because
// another turn is about to answer it.
const unanswered = "no result yet"

// wellFormed returns the events in the order that providers ask for: the results
// of a step's calls come right after them, each call has one, and there is no
// result without a call. In a ledger they can stand apart: a person answered
// later, and meanwhile another turn was merged.
func wellFormed(events []session.Event) []session.Event {
	results := map[string]*session.ToolResult{}
	for _, e := range events {
		if result, ok := e.(*session.ToolResult); ok && results[result.CallID] == nil {
			results[result.CallID] = result
		}
	}
	ordered := make([]session.Event, 0, len(events))
	var open []*session.ToolCall // of the step that is being copied
	closeStep := func() {
		for _, call := range open {
			result := results[call.CallID]
			if result == nil {
				result = &session.ToolResult{EventBase: call.EventBase, CallID: call.CallID, Name: call.Name, Error: unanswered}
			}
			ordered = append(ordered, result)
		}
		open = nil
	}
	for _, e := range events {
		_, isResult := e.(*session.ToolResult)
		if len(open) > 0 && (isResult || e.Base().InvocationID != open[0].InvocationID) {
			closeStep()
		}
		if isResult {
			continue
		}
		ordered = append(ordered, e)
		if call, ok := e.(*session.ToolCall); ok {
			open = append(open, call)
		}
	}
	closeStep()
	return ordered
}
