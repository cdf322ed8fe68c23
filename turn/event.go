package turn

import (
	"encoding/json"
	"fmt"

	"github.com/turnpool/turnpool/session"
)

// Event is what a turn streams: the ledger's events, and those of this file,
// which exist in streams alone.
type Event interface {
	// Type is the event's wire name.
	Type() string
}

// Wire names of the events that are in no ledger.
const (
	TypeAssistantDelta = "assistant_delta"
	TypeThoughtDelta   = "thought_delta"
	TypeRestart        = "invocation_restart"
	TypeResult         = "result"
	// TypeReleased is the mark that a stopping worker leaves in the log, and
	// TypeRetried that of an attempt which failed and is made again. They are for
	// workers, no reader sees them.
	TypeReleased = "released"
	TypeRetried  = "retried"
)

// Delta is a piece of a text that the model is still writing.
type Delta struct {
	// Kind is [TypeAssistantDelta] or [TypeThoughtDelta].
	Kind string `json:"-"`
	// MessageID is the id of the assistant or thought event to come.
	MessageID string `json:"messageId"`
	Delta     string `json:"delta"`
	CreatedAt int64  `json:"createdAt"`
	// Text is the accumulation so far, for hooks and readers in the process.
	Text string `json:"-"`
}

// Type implements [Event].
func (d *Delta) Type() string { return d.Kind }

// Reasons of a [Restart].
const (
	RestartCrash   = "crash"
	RestartRetry   = "retry"
	RestartHandoff = "handoff"
)

// Restart opens a later attempt of a turn. A reader discards what it has of the
// turn after the event number RewindTo (0: all of it).
type Restart struct {
	Attempt   int    `json:"attempt"`
	Failures  int    `json:"failures"`
	Reason    string `json:"reason"`
	RewindTo  int64  `json:"rewindTo"`
	CreatedAt int64  `json:"createdAt"`
	// The session as the turn's first attempt loaded it, so that every log that
	// holds this attempt has it.
	session.Base
}

// Type implements [Event].
func (*Restart) Type() string { return TypeRestart }

// Released says that a stopping worker gave the turn back, unfinished.
type Released struct {
	Attempt   int   `json:"attempt"`
	CreatedAt int64 `json:"createdAt"`
}

// Type implements [Event].
func (*Released) Type() string { return TypeReleased }

// Retried says that an attempt failed in a way that may pass, and that the turn's
// row has counted it.
type Retried struct {
	Attempt   int   `json:"attempt"`
	Failures  int   `json:"failures"`
	CreatedAt int64 `json:"createdAt"`
}

// Type implements [Event].
func (*Retried) Type() string { return TypeRetried }

// Private reports whether no reader may see the event: it is a mark between
// workers, or it may not leave the process. Private events have no number.
func Private(e Event) bool {
	if t := e.Type(); t == TypeReleased || t == TypeRetried {
		return true
	}
	ledger, ok := e.(session.Event)
	return ok && !session.MayLeave(ledger)
}

// EncodeEvent returns the event's wire JSON: one line, "type" first.
func EncodeEvent(e Event) ([]byte, error) {
	if ledger, ok := e.(session.Event); ok {
		return session.Encode(ledger)
	}
	return session.EncodeTagged(e.Type(), e)
}

// DecodeEvent reads what [EncodeEvent] wrote, given its type.
func DecodeEvent(typeName string, data []byte) (Event, error) {
	var e Event
	switch typeName {
	case TypeAssistantDelta, TypeThoughtDelta:
		e = &Delta{Kind: typeName}
	case TypeRestart:
		e = new(Restart)
	case TypeReleased:
		e = new(Released)
	case TypeRetried:
		e = new(Retried)
	case TypeResult:
		e = new(Result)
	default:
		return session.Decode(data)
	}
	if err := json.Unmarshal(data, e); err != nil {
		return nil, fmt.Errorf("decode %s event: %w", typeName, err)
	}
	return e, nil
}
