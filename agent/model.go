package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/turnpool/turnpool/session"
)

// Model answers a conversation. An adapter is used by many runs at once.
type Model interface {
	// Name is what usage is counted under.
	Name() string
	// Generate answers once. It calls emit for each piece of text as it comes,
	// from its own goroutine and not after it has returned, and returns the
	// whole answer. It returns soon after ctx is cancelled, with its provider
	// request cancelled too; what it returns then is not used. Failures of the
	// provider are a [*ModelError].
	Generate(ctx context.Context, req *ModelRequest, emit func(ModelDelta)) (*ModelResponse, error)
}

// ModelRequest is one step's question. The adapter reads it only.
type ModelRequest struct {
	Agent string
	// Step counts the model calls of the run, from 1.
	Step         int
	Instructions string
	// Conversation are the events that the model should know, oldest first:
	// user, assistant, thought, tool_call and tool_result, each call with its
	// result.
	Conversation []session.Event
	Tools        []*Tool
}

// ModelDelta is a piece of a text item that is being written.
type ModelDelta struct {
	// Item is the place that the item will have in the response's Items.
	Item int
	Kind ItemKind
	Text string
}

// ItemKind says what an item of a model's answer is.
type ItemKind int

// Kinds of items.
const (
	ItemText ItemKind = iota
	ItemThought
	ItemCall
)

// Item is one part of a model's answer.
type Item struct {
	Kind ItemKind
	// Text of a text or a thought.
	Text string
	// CallID, Name and Args of a call. An empty CallID is minted. Args is what
	// the model wrote, which may be no JSON.
	CallID string
	Name   string
	Args   json.RawMessage
	// ProviderContext goes with the item's event, and comes back with it.
	ProviderContext *session.ProviderContext
}

// ModelResponse is a model's whole answer.
type ModelResponse struct {
	Items []Item
	Usage *session.ModelUsage
	// FinishReason is stop, length, tool_calls or content_filter.
	FinishReason string
}

// ModelError is a failure that the provider, or the way to it, is the cause of.
type ModelError struct {
	// Status is the HTTP status, 0 when there was no answer.
	Status  int
	Message string
	// RetryAfter is the provider's own word, 0 if it said nothing.
	RetryAfter time.Duration
}

// Error implements the error interface.
func (e *ModelError) Error() string {
	if e.Status == 0 {
		return "model: " + e.Message
	}
	return fmt.Sprintf("model: status %d: %s", e.Status, e.Message)
}

// Retryable reports whether the same call may work later: the connection was
// cut, or the provider said 408, 409, 429 or 5xx.
func (e *ModelError) Retryable() bool {
	switch e.Status {
	case 0, 408, 409, 429:
		return true
	default:
		return e.Status >= 500
	}
}
