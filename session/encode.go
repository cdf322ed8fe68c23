package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// constructors has one entry a ledger event type; it is the list of them.
var constructors = map[string]func() Event{
	TypeUser:             func() Event { return new(User) },
	TypeAssistant:        func() Event { return new(Assistant) },
	TypeThought:          func() Event { return new(Thought) },
	TypeToolCall:         func() Event { return new(ToolCall) },
	TypeToolYield:        func() Event { return new(ToolYield) },
	TypeToolInput:        func() Event { return new(ToolInput) },
	TypeToolResult:       func() Event { return new(ToolResult) },
	TypeStateChange:      func() Event { return new(StateChange) },
	TypeInvocationStart:  func() Event { return new(InvocationStart) },
	TypeInvocationEnd:    func() Event { return new(InvocationEnd) },
	TypeInvocationYield:  func() Event { return new(InvocationYield) },
	TypeInvocationResume: func() Event { return new(InvocationResume) },
	TypeModelStart:       func() Event { return new(ModelStart) },
	TypeModelEnd:         func() Event { return new(ModelEnd) },
	TypeAnnotation:       func() Event { return new(Annotation) },
}

// IsLedgerType reports whether name is a type of ledger event. The types that
// exist in streams alone (deltas, restarts, results) are not.
func IsLedgerType(name string) bool { return constructors[name] != nil }

// Encode returns the event's wire JSON: one object, "type" first. Text that is
// not UTF-8 comes out with U+FFFD in the place of each bad byte, so that every
// text can be stored. It fails on a nil event, and on a raw value that is no
// JSON or so deeply nested that nobody could read it back.
func Encode(e Event) ([]byte, error) {
	if isNil(e) {
		return nil, errors.New("encode event: it is nil")
	}
	if unknown, ok := e.(*Unknown); ok {
		return encodeUnknown(unknown)
	}
	return EncodeTagged(e.Type(), e)
}

// encodeUnknown checks what it carries through: an event that cannot be read
// back would make its whole session unreadable.
func encodeUnknown(e *Unknown) ([]byte, error) {
	var buf bytes.Buffer
	if err := json.Compact(&buf, e.Raw); err != nil {
		return nil, fmt.Errorf("encode %s event: %w", e.TypeName, err)
	}
	out := validJSON(buf.Bytes())
	if _, err := Decode(out); err != nil {
		return nil, fmt.Errorf("encode %s event: %w", e.TypeName, err)
	}
	return out, checkDepth(e.TypeName, out)
}

// isNil reports whether there is no event: no value, or a nil pointer in it.
func isNil(e Event) bool {
	if e == nil {
		return true
	}
	v := reflect.ValueOf(e)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// EncodeTagged encodes a struct as an object that starts with its type.
func EncodeTagged(typeName string, v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode %s event: %w", typeName, err)
	}
	body := validJSON(bytes.TrimRight(buf.Bytes(), "\n")) // a raw value's text is copied through unchecked
	if err := checkDepth(typeName, body); err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(body)+len(typeName)+12)
	out = append(out, `{"type":"`...)
	out = append(out, typeName...)
	out = append(out, '"')
	if len(body) > 2 {
		out = append(out, ',')
	}
	return append(out, body[1:]...), nil
}

// checkDepth refuses an event that could not be read back, because the decoder's
// limit of nesting counts the slice and the page around the event too.
func checkDepth(typeName string, data []byte) error {
	const limit, around = 10_000, 8
	if bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) < limit-around {
		return nil // what nearly every event is, for the price of a scan
	}
	wrapped := strings.Repeat("[", around) + string(data) + strings.Repeat("]", around)
	if !json.Valid([]byte(wrapped)) {
		return fmt.Errorf("encode %s event: nested too deeply", typeName)
	}
	return nil
}

// validText and validJSON put U+FFFD in the place of each byte that is not
// UTF-8, as the encoder does with the text of events. They return the argument
// itself if there is nothing to do.
func validText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.Map(func(r rune) rune { return r }, s)
}

func validJSON(data []byte) []byte {
	if utf8.Valid(data) {
		return data
	}
	return bytes.Map(func(r rune) rune { return r }, data)
}

// Decode reads what [Encode] wrote. An object of an unknown type becomes an
// [Unknown].
func Decode(data []byte) (Event, error) {
	var tag struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(data, &tag); err != nil {
		return nil, fmt.Errorf("decode event: %w", err)
	}
	if tag.Type == "" {
		return nil, fmt.Errorf("decode event: no type in %.80s", data)
	}
	construct := constructors[tag.Type]
	if construct == nil {
		unknown := &Unknown{TypeName: tag.Type, Raw: bytes.Clone(data)}
		if err := json.Unmarshal(data, &unknown.EventBase); err != nil {
			return nil, fmt.Errorf("decode %s event: %w", tag.Type, err)
		}
		return unknown, nil
	}
	e := construct()
	if err := json.Unmarshal(data, e); err != nil {
		return nil, fmt.Errorf("decode %s event: %w", tag.Type, err)
	}
	return e, nil
}

// EncodeAll returns the events as one JSON array: the form of a slice's row.
func EncodeAll(events []Event) ([]byte, error) {
	out := []byte{'['}
	for i, e := range events {
		if i > 0 {
			out = append(out, ',')
		}
		one, err := Encode(e)
		if err != nil {
			return nil, err
		}
		out = append(out, one...)
	}
	return append(out, ']'), nil
}

// DecodeAll reads what [EncodeAll] wrote.
func DecodeAll(data []byte) ([]Event, error) {
	var raws []json.RawMessage
	if err := json.Unmarshal(data, &raws); err != nil {
		return nil, fmt.Errorf("decode slice: %w", err)
	}
	events := make([]Event, len(raws))
	for i, raw := range raws {
		e, err := Decode(raw)
		if err != nil {
			return nil, err
		}
		events[i] = e
	}
	return events, nil
}

// Events is a list of events with their wire form.
type Events []Event

// MarshalJSON implements [json.Marshaler].
func (l Events) MarshalJSON() ([]byte, error) { return EncodeAll(l) }

// UnmarshalJSON implements [json.Unmarshaler].
func (l *Events) UnmarshalJSON(data []byte) (err error) {
	*l, err = DecodeAll(data)
	return err
}
