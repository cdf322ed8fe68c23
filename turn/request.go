package turn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/turnpool/turnpool/session"
)

// Request is one turn as a caller asks for it.
type Request struct {
	Agent     string `json:"agent,omitempty"`
	SessionID string `json:"sessionId,omitempty"`
	Input     Input  `json:"input"`
	// FrontendTools are tools of the caller's own: the model may call them, and
	// the turn then stops for the caller to answer.
	FrontendTools []FrontendTool `json:"frontendTools,omitempty"`
	// Response says what the result carries beside the answer.
	Response *Response `json:"response,omitempty"`
	// Timeout is the running time of each attempt, in milliseconds; 0: the
	// worker's own limit, which also caps it.
	Timeout      int64        `json:"timeout,omitempty"`
	Lane         Lane         `json:"lane,omitempty"`
	OnDisconnect OnDisconnect `json:"onDisconnect,omitempty"`
	// Scopes binds a new session to shared scopes of state, by id.
	Scopes map[string]string `json:"scopes,omitempty"`
	// Metadata comes back on the result.
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Input is what the caller says: a message, answers to calls that wait, writes
// to the session's state; at least one of them.
type Input struct {
	Message *Message      `json:"message,omitempty"`
	Tools   []ToolAnswer  `json:"tools,omitempty"`
	State   session.State `json:"state,omitempty"`
	// InitialState has the first keys of each scope, for a session that is new.
	InitialState map[string]session.State `json:"initialState,omitempty"`
}

// Empty reports whether the input asks for nothing.
func (in Input) Empty() bool {
	return in.Message == nil && len(in.Tools) == 0 && len(in.State) == 0
}

// Message is what the person said. Its JSON is a string, or an object with text
// and media.
type Message struct {
	Text  string          `json:"text,omitempty"`
	Media []session.Media `json:"media,omitempty"`
}

// Text returns a message with no media.
func Text(text string) *Message { return &Message{Text: text} }

// MarshalJSON implements [json.Marshaler]: a message with no media is a string.
func (m Message) MarshalJSON() ([]byte, error) {
	if len(m.Media) == 0 {
		return json.Marshal(m.Text)
	}
	type object Message
	return json.Marshal(object(m))
}

// UnmarshalJSON implements [json.Unmarshaler]. Unknown members are refused.
func (m *Message) UnmarshalJSON(data []byte) error {
	*m = Message{}
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &m.Text)
	}
	type object Message
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode((*object)(m))
}

// ToolAnswer answers a call that waits.
type ToolAnswer struct {
	CallID string          `json:"callId"`
	Input  json.RawMessage `json:"input"`
}

// FrontendTool is a tool that the caller runs.
type FrontendTool struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Parameters is the JSON schema of the arguments, an object; absent: none.
	Parameters json.RawMessage `json:"parameters,omitempty"`
}

// Response chooses what the result carries beside the answer.
type Response struct {
	// Events: this turn's ledger events that may leave the process.
	Events bool `json:"events,omitempty"`
	// Usage: the session's roll-up, and this turn's own.
	Usage bool `json:"usage,omitempty"`
	// State: the session scope after the turn.
	State bool `json:"state,omitempty"`
	// Deltas: publish deltas in the batch lane too.
	Deltas bool `json:"deltas,omitempty"`
}

// Lane is the queue that a turn waits in.
type Lane string

// Turns of the batch lane run when no interactive one waits, and never on the
// slots that a worker reserves for those.
const (
	LaneInteractive Lane = "interactive"
	LaneBatch       Lane = "batch"
)

// Lanes are all lanes, the preferred one first.
var Lanes = []Lane{LaneInteractive, LaneBatch}

// OnDisconnect is what becomes of a turn whose last reader is gone.
type OnDisconnect string

// By default a turn goes on without readers.
const (
	OnDisconnectContinue OnDisconnect = "continue"
	OnDisconnectCancel   OnDisconnect = "cancel"
)

// Submission is an accepted request: what is queued, and what a worker gets.
type Submission struct {
	Tenant       string `json:"tenant"`
	InvocationID string `json:"invocationId"`
	Pool         string `json:"pool"`
	// RedriveOf is the turn that was given up and that this one makes again.
	RedriveOf string  `json:"redriveOf,omitempty"`
	Request   Request `json:"request"`
	// StoredAt is when the broker stored the submission, in milliseconds. It is
	// the broker's to say, so it is not in the queued form.
	StoredAt int64 `json:"-"`
}

// Timeout is how long an attempt may run, at most limit.
func (s *Submission) Timeout(limit time.Duration) time.Duration {
	asked := s.Request.Timeout
	if asked <= 0 || asked > limit.Milliseconds() { // compared before the product could overflow
		return limit
	}
	return time.Duration(asked) * time.Millisecond
}

// Encode returns the queued form.
func (s *Submission) Encode() ([]byte, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode submission %s: %w", s.InvocationID, err)
	}
	return data, nil
}

// DecodeSubmission reads the queued form.
func DecodeSubmission(data []byte) (*Submission, error) {
	var s Submission
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("decode submission: %w", err)
	}
	if !ValidInvocationID(s.InvocationID) || !ValidName(s.Tenant) || s.Request.SessionID == "" {
		return nil, fmt.Errorf("decode submission: ids are missing or malformed in %.120s", data)
	}
	return &s, nil
}
