package turn

import (
	"encoding/json"
	"fmt"

	"github.com/turnpool/turnpool/session"
)

// Error is why a turn failed, as its caller sees it.
type Error = session.Error

// Codes of a turn's error.
const (
	CodeTimeout         = "timeout"
	CodeModelError      = "model_error"
	CodeRateLimited     = "rate_limited"
	CodeToolError       = "tool_error"
	CodeUnknownTool     = "unknown_tool"
	CodeUnknownCall     = "unknown_call"
	CodeInvalidAnswer   = "invalid_answer"
	CodeAlreadyAnswered = session.CodeAlreadyAnswered
	CodeOutputInvalid   = "output_invalid"
	CodeBudgetExceeded  = "budget_exceeded"
	CodeWorkerLost      = "worker_lost"
	CodeInternal        = "internal"
)

// Result ends a turn. It is the body of an answer, the last event of a stream,
// and what is stored under the invocation id.
type Result struct {
	SessionID    string               `json:"sessionId"`
	InvocationID string               `json:"invocationId"`
	Status       session.Status       `json:"status"`
	Output       Output               `json:"output"`
	CommitStatus session.CommitStatus `json:"commitStatus,omitempty"`
	// Version is the session's after the commit.
	Version      int64          `json:"version,omitempty"`
	YieldedTools []YieldedTool  `json:"yieldedTools,omitempty"`
	Error        *Error         `json:"error,omitempty"`
	Warning      string         `json:"warning,omitempty"`
	Usage        *session.Usage `json:"usage,omitempty"`
	TurnUsage    *session.Usage `json:"turnUsage,omitempty"`
	State        session.State  `json:"state,omitzero"`
	Events       session.Events `json:"events,omitzero"`

	Agent string `json:"agent"`
	Lane  Lane   `json:"lane,omitempty"`
	// Attempts is how many attempts the turn took, and Failures how many of them
	// failed, of a turn that was given up.
	Attempts   int               `json:"attempts"`
	Failures   int               `json:"failures,omitempty"`
	RedriveOf  string            `json:"redriveOf,omitempty"`
	CreatedAt  int64             `json:"createdAt"`
	StartedAt  int64             `json:"startedAt,omitempty"`
	FinishedAt int64             `json:"finishedAt"`
	Metadata   map[string]string `json:"metadata,omitempty"`
}

// Output is what the agent answered.
type Output struct {
	// Text is the last assistant text.
	Text string `json:"text,omitempty"`
	// Value is the structured value, or what an AfterAgent hook returned.
	Value json.RawMessage `json:"value,omitempty"`
	// Items are the turn's assistant events, in order.
	Items session.Events `json:"items"`
}

// YieldedTool is a call that waits for an answer.
type YieldedTool struct {
	CallID string          `json:"callId"`
	Name   string          `json:"name"`
	Args   json.RawMessage `json:"args"`
}

// Type implements [Event].
func (*Result) Type() string { return TypeResult }

// ResultOf returns the result that a finished turn's row stands for: the stored
// one, or, where it was scrubbed with its session, what the row still says.
func ResultOf(row *session.Turn) (*Result, error) {
	if row.Result == nil {
		return &Result{
			SessionID: row.SessionID, InvocationID: row.InvocationID, Status: row.Status,
			Output: Output{Items: session.Events{}}, CommitStatus: row.CommitStatus, Version: row.Version,
			Warning: row.CommitStatus.Warning(), Agent: row.Agent, Lane: Lane(row.Lane), Attempts: row.Attempt,
			CreatedAt: row.CreatedAt, StartedAt: row.StartedAt, FinishedAt: row.FinishedAt,
		}, nil
	}
	var result Result
	if err := json.Unmarshal(row.Result, &result); err != nil {
		return nil, fmt.Errorf("stored result of %s: %w", row.InvocationID, err)
	}
	return &result, nil
}
