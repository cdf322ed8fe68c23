package sessiontest

import (
	"encoding/json"
	"fmt"

	"github.com/turnpool/turnpool/session"
)

func sameJSON(a, b json.RawMessage) bool {
	return len(a) == 0 && len(b) == 0 || session.EqualJSON(a, b)
}

// turnOf is a first attempt that completed, of a request stored at the time.
func turnOf(invocation string, at int64) session.Turn {
	return session.Turn{
		Tenant: tenant, InvocationID: invocation, SessionID: thread, Agent: "concierge", Lane: "interactive",
		Status: session.StatusCompleted, Attempt: 1,
		CreatedAt: at, StartedAt: at + 1, FinishedAt: at + 2,
	}
}

// slice is what such a turn commits. Its events become this invocation's, with
// ids that say so.
func slice(invocation string, at int64, base session.Base, events ...session.Event) *session.Slice {
	for i, e := range events {
		b := e.Base()
		b.ID = fmt.Sprintf("%s/%d", invocation, i)
		b.InvocationID = invocation
		b.AgentName = "concierge"
		if b.CreatedAt == 0 {
			b.CreatedAt = at
		}
	}
	return &session.Slice{Turn: turnOf(invocation, at), Base: base, Events: events, Result: report}
}

// ask is a slice with a question and its answer.
func ask(invocation string, at int64, base session.Base) *session.Slice {
	return slice(invocation, at, base, user("question of "+invocation), says("answer of "+invocation))
}

// report is a result that repeats what the store made of the slice.
func report(o session.Outcome) (json.RawMessage, error) {
	return json.Marshal(map[string]any{
		"invocationId": o.Turn.InvocationID, "status": o.Turn.Status, "commitStatus": o.Turn.CommitStatus,
		"version": o.Turn.Version, "tooLate": o.TooLate, "eventCount": o.Head.Base().EventCount,
	})
}

func user(text string) *session.User { return &session.User{Text: text} }

func userAt(at int64, text string) *session.User {
	return &session.User{EventBase: session.EventBase{CreatedAt: at}, Text: text}
}

func says(text string) *session.Assistant { return &session.Assistant{Text: text} }

func calls(callID string) *session.ToolCall {
	return &session.ToolCall{CallID: callID, Name: "ask_guest", Args: json.RawMessage(`{"q":"Which night?"}`), Yields: true}
}

func yields(callID string) *session.ToolYield {
	return &session.ToolYield{CallID: callID, Name: "ask_guest", Args: json.RawMessage(`{"q":"Which night?"}`)}
}

func answers(callID string) *session.ToolInput {
	return &session.ToolInput{CallID: callID, Name: "ask_guest", Input: json.RawMessage(`{"answer":"Friday"}`)}
}

func closes(callID string) *session.ToolResult {
	return &session.ToolResult{CallID: callID, Name: "ask_guest", Result: json.RawMessage(`"booked"`)}
}

func supersedes(callID string) *session.ToolResult {
	return &session.ToolResult{CallID: callID, Name: "ask_guest", Error: "superseded"}
}

// sets writes a key of the session scope; no value deletes it.
func sets(key, value string) *session.StateChange {
	change := session.Change{Key: key}
	if value != "" {
		change.NewValue = json.RawMessage(value)
	}
	return &session.StateChange{Scope: session.ScopeSession, Source: session.SourceMutation, Changes: []session.Change{change}}
}

func writes(key, value string) session.ScopedWrite {
	return session.ScopedWrite{Scope: "user", ScopeID: "u1", Key: key, Value: json.RawMessage(value)}
}

func bound() map[string]string { return map[string]string{"user": "u1", "org": "o1"} }

func usage(calls int64) *session.Usage {
	u := &session.Usage{}
	for range calls {
		u.AddCall("model-a", &session.ModelUsage{InputTokens: 10, OutputTokens: 3, CachedTokens: 2})
	}
	return u
}

// state makes a State of keys and values in turn.
func state(pairs ...string) session.State {
	s := session.State{}
	for i := 0; i < len(pairs); i += 2 {
		s[pairs[i]] = json.RawMessage(pairs[i+1])
	}
	return s
}
