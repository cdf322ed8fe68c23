package session

import "encoding/json"

// Event is one entry of a session's ledger. The concrete types are the structs
// of this file, always as pointers. Events are not changed once they were
// emitted; they may be read from several goroutines.
type Event interface {
	// Type is the event's wire name, for example "tool_call".
	Type() string
	// Base is what every event has. The pointer leads into the event.
	Base() *EventBase
}

// Wire names of the ledger's events.
const (
	TypeUser             = "user"
	TypeAssistant        = "assistant"
	TypeThought          = "thought"
	TypeToolCall         = "tool_call"
	TypeToolYield        = "tool_yield"
	TypeToolInput        = "tool_input"
	TypeToolResult       = "tool_result"
	TypeStateChange      = "state_change"
	TypeInvocationStart  = "invocation_start"
	TypeInvocationEnd    = "invocation_end"
	TypeInvocationYield  = "invocation_yield"
	TypeInvocationResume = "invocation_resume"
	TypeModelStart       = "model_start"
	TypeModelEnd         = "model_end"
	TypeAnnotation       = "annotation"
)

// EventBase is the part that every ledger event has.
type EventBase struct {
	ID string `json:"id"`
	// CreatedAt is in milliseconds since the epoch. A user event has the time
	// at which the broker stored the request, so that replicas cannot skew it.
	CreatedAt    int64  `json:"createdAt"`
	InvocationID string `json:"invocationId"`
	AgentName    string `json:"agentName"`
	// ParentInvocationID is set on the events of a sub-agent's run.
	ParentInvocationID string           `json:"parentInvocationId,omitempty"`
	ProviderContext    *ProviderContext `json:"providerContext,omitempty"`
}

// Base implements [Event].
func (b *EventBase) Base() *EventBase { return b }

// ProviderContext is what a model provider needs to get back with an event, for
// example an encrypted reasoning item. It is opaque to everything but the
// adapter of that provider.
type ProviderContext struct {
	Provider string          `json:"provider"`
	Data     json.RawMessage `json:"data"`
}

// User is a message from the person, or from the program that acts for one.
type User struct {
	EventBase
	Text   string  `json:"text"`
	Media  []Media `json:"media,omitempty"`
	Source string  `json:"source,omitempty"`
	// MessageID is the front end's own id of the message.
	MessageID string `json:"messageId,omitempty"`
}

// Media is an image, a sound or a document of a message.
type Media struct {
	Type   string      `json:"type"` // image, audio or document
	Source MediaSource `json:"source"`
}

// MediaSource is where the bytes are: an address, or inline in base64.
type MediaSource struct {
	Type     string `json:"type"` // url or base64
	URL      string `json:"url,omitempty"`
	MimeType string `json:"mimeType,omitempty"`
	Data     string `json:"data,omitempty"`
}

// Assistant is a text the agent answered with. Output is the structured value,
// when there is one.
type Assistant struct {
	EventBase
	Text   string          `json:"text"`
	Output json.RawMessage `json:"output,omitempty"`
}

// Thought is a reasoning text of the model.
type Thought struct {
	EventBase
	Text string `json:"text"`
}

// ToolCall is the model's wish to call a tool. Yields says that the tool stops
// the turn to ask a person.
type ToolCall struct {
	EventBase
	CallID string          `json:"callId"`
	Name   string          `json:"name"`
	Args   json.RawMessage `json:"args"`
	Yields bool            `json:"yields,omitempty"`
}

// ToolYield says that a call waits for a person's answer.
type ToolYield struct {
	EventBase
	CallID string          `json:"callId"`
	Name   string          `json:"name"`
	Args   json.RawMessage `json:"args"`
}

// ToolInput is the answer to a call that waited.
type ToolInput struct {
	EventBase
	CallID string          `json:"callId"`
	Name   string          `json:"name"`
	Input  json.RawMessage `json:"input"`
}

// ToolResult closes a call, with a result or with an error that the model sees.
type ToolResult struct {
	EventBase
	CallID     string          `json:"callId"`
	Name       string          `json:"name"`
	Result     json.RawMessage `json:"result,omitempty"`
	Error      string          `json:"error,omitempty"`
	DurationMs int64           `json:"durationMs,omitempty"`
	RetryCount int             `json:"retryCount,omitempty"`
	TimedOut   bool            `json:"timedOut,omitempty"`
}

// StateChange records writes to one scope of the state.
type StateChange struct {
	EventBase
	Scope   string   `json:"scope"`
	Source  string   `json:"source"` // mutation (by the agent) or direct (by the caller)
	Changes []Change `json:"changes"`
}

// Change is one key's write. No NewValue: the key was deleted. The JSON null is
// a value like any other.
type Change struct {
	Key      string          `json:"key"`
	OldValue json.RawMessage `json:"oldValue,omitempty"`
	NewValue json.RawMessage `json:"newValue,omitempty"`
}

// InvocationStart opens a turn. Version, EventCount and Epoch are those of the
// session as the turn's first attempt loaded it.
type InvocationStart struct {
	EventBase
	Kind       string `json:"kind"`
	SessionID  string `json:"sessionId"`
	Version    int64  `json:"version"`
	EventCount int64  `json:"eventCount"`
	Epoch      string `json:"epoch"`
	Attempt    int    `json:"attempt"`
}

// InvocationEnd closes a turn that did not stop to ask. Reason is its status.
type InvocationEnd struct {
	EventBase
	Reason Status `json:"reason"`
	Error  *Error `json:"error,omitempty"`
}

// InvocationYield closes a turn that stopped to ask.
type InvocationYield struct {
	EventBase
	YieldedToolIDs []string `json:"yieldedToolIds"`
	YieldIndex     int      `json:"yieldIndex"`
}

// InvocationResume says that a turn goes on where the turn Resumes stopped.
type InvocationResume struct {
	EventBase
	YieldIndex int    `json:"yieldIndex"`
	Resumes    string `json:"resumes"`
}

// ModelStart opens a step: one call of the model. Steps count from 1.
type ModelStart struct {
	EventBase
	StepIndex    int             `json:"stepIndex"`
	MessageCount int             `json:"messageCount"`
	Tools        []ToolSummary   `json:"tools,omitempty"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
}

// ToolSummary names a tool that a step offers to the model.
type ToolSummary struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

// ModelEnd closes a step's model call.
type ModelEnd struct {
	EventBase
	StepIndex  int         `json:"stepIndex"`
	DurationMs int64       `json:"durationMs"`
	Usage      *ModelUsage `json:"usage,omitempty"`
	// Items is how many events of the answer follow: thoughts, texts and calls.
	Items        int    `json:"items,omitempty"`
	FinishReason string `json:"finishReason,omitempty"` // stop, length, tool_calls, content_filter or error
	Error        *Error `json:"error,omitempty"`
}

// ModelUsage is what one model call was billed for. InputTokens include cached
// and cache-write tokens; OutputTokens include reasoning tokens.
type ModelUsage struct {
	InputTokens      int64 `json:"inputTokens"`
	OutputTokens     int64 `json:"outputTokens"`
	CachedTokens     int64 `json:"cachedTokens,omitempty"`
	CacheWriteTokens int64 `json:"cacheWriteTokens,omitempty"`
	ReasoningTokens  int64 `json:"reasoningTokens,omitempty"`
}

// Annotation is a note in the ledger that is no part of the conversation.
type Annotation struct {
	EventBase
	Kind    string          `json:"kind"` // phase, log or mark
	Label   string          `json:"label,omitempty"`
	Message string          `json:"message,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Unknown is an event of a type that this version does not know, written by a
// newer one. It is carried through as it is.
type Unknown struct {
	EventBase
	TypeName string
	Raw      json.RawMessage
}

// Error is why something failed, as a caller sees it.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	// Retryable says that the same request may work later.
	Retryable bool `json:"retryable"`
}

// Error implements the error interface.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// MayLeave reports whether an event may leave the process. Changes of shared
// scopes may not: they carry data that belongs to more than this session.
func MayLeave(e Event) bool {
	change, ok := e.(*StateChange)
	return !ok || change.Scope == ScopeSession
}

func (*User) Type() string             { return TypeUser }
func (*Assistant) Type() string        { return TypeAssistant }
func (*Thought) Type() string          { return TypeThought }
func (*ToolCall) Type() string         { return TypeToolCall }
func (*ToolYield) Type() string        { return TypeToolYield }
func (*ToolInput) Type() string        { return TypeToolInput }
func (*ToolResult) Type() string       { return TypeToolResult }
func (*StateChange) Type() string      { return TypeStateChange }
func (*InvocationStart) Type() string  { return TypeInvocationStart }
func (*InvocationEnd) Type() string    { return TypeInvocationEnd }
func (*InvocationYield) Type() string  { return TypeInvocationYield }
func (*InvocationResume) Type() string { return TypeInvocationResume }
func (*ModelStart) Type() string       { return TypeModelStart }
func (*ModelEnd) Type() string         { return TypeModelEnd }
func (*Annotation) Type() string       { return TypeAnnotation }

// Type implements [Event].
func (e *Unknown) Type() string { return e.TypeName }
