package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Scopes of state with a meaning of their own. Any other name is a scope shared
// between the sessions that are bound to the same id of it.
const (
	ScopeSession = "session"
	ScopeTemp    = "temp"
)

// Sources of a [StateChange].
const (
	SourceMutation = "mutation"
	SourceDirect   = "direct"
)

// State is one scope's keys, each value a JSON text.
type State map[string]json.RawMessage

// Clone returns a copy that shares the values, which nobody changes.
func (s State) Clone() State {
	out := make(State, len(s))
	for k, v := range s {
		out[k] = v
	}
	return out
}

// Apply writes the changes, the last one of a key winning.
func (s State) Apply(changes []Change) {
	for _, c := range changes {
		key := validText(c.Key) // as the ledger has it
		if len(c.NewValue) == 0 {
			delete(s, key)
		} else {
			s[key] = validJSON(c.NewValue)
		}
	}
}

// Diff returns the changes that writing the given keys makes, sorted by key.
// A value equal to the present one is no change; an empty value deletes.
func (s State) Diff(writes State) []Change {
	var changes []Change
	for key, value := range writes {
		old, had := s[key]
		deletes := len(value) == 0
		if deletes && !had || !deletes && had && EqualJSON(old, value) {
			continue
		}
		c := Change{Key: key, OldValue: old}
		if !deletes {
			c.NewValue = value
		}
		changes = append(changes, c)
	}
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Key, b.Key) })
	return changes
}

// EqualJSON reports whether two JSON texts mean the same value, whatever their
// spacing, key order and notation of numbers. Text that is no JSON is equal
// only to itself.
func EqualJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	va, errA := decodeExact(a)
	vb, errB := decodeExact(b)
	return errA == nil && errB == nil && equalValue(va, vb)
}

func decodeExact(data []byte) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err = dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err = dec.Token(); err != io.EOF {
		return nil, errors.New("more than one value")
	}
	return v, nil
}

func equalValue(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		return ok && equalNumber(a, b)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equalValue)
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for k, v := range a {
			if w, has := b[k]; !has || !equalValue(v, w) {
				return false
			}
		}
		return true
	default:
		return reflect.DeepEqual(a, b)
	}
}

// equalNumber compares exactly, so that 1e2 is 100 and 2^53+1 is not 2^53.
func equalNumber(a, b json.Number) bool {
	if a == b {
		return true
	}
	x, okX := toDecimal(a)
	y, okY := toDecimal(b)
	return okX && okY && x == y
}

// decimal is a number in the one notation that each number has: its digits,
// with no zero at either end, times a power of ten.
type decimal struct {
	negative bool
	digits   string
	exponent int64
}

// toDecimal gives up on exponents that are absurd; such numbers are equal only
// to their own text.
func toDecimal(n json.Number) (d decimal, ok bool) {
	text, negative := strings.CutPrefix(n.String(), "-")
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		exponent, err := strconv.ParseInt(text[at+1:], 10, 32)
		if err != nil {
			return d, false
		}
		text, d.exponent = text[:at], exponent
	}
	whole, fraction, _ := strings.Cut(text, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	d.digits = strings.TrimRight(digits, "0")
	if d.digits == "" {
		return decimal{}, true
	}
	d.negative = negative
	d.exponent += int64(len(digits) - len(d.digits) - len(fraction))
	return d, true
}
