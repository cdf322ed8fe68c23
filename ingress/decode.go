package ingress

import (
	"fmt"

	"github.com/turnpool/turnpool/turn"
)

// decodeRequest reads a turn's request. What it returns is valid, its session id
// normalised, and its lane given; the agent may be missing.
func decodeRequest(body []byte) (turn.Request, error) {
	value, err := wellFormed(body)
	if err != nil {
		return turn.Request{}, err
	}
	d := decoder{root: requestShape}
	request := d.request(value)
	if err := d.err(); err != nil {
		return turn.Request{}, err
	}
	if request.Input.Empty() {
		return turn.Request{}, &fault{code: codeEmptyInput, detail: "input needs a message, tools or state"}
	}
	return request, nil
}

// maxFieldErrors bounds the answer to a body that is wrong everywhere.
const maxFieldErrors = 20

// decoder reads a request's fields, and goes on after an error, so that a
// caller hears of all at once. A member that is null counts as absent.
type decoder struct {
	root    *shape
	errors  []fieldError
	dropped int
	unknown bool
}

func (d *decoder) reject(at pointer, format string, args ...any) {
	if len(d.errors) == maxFieldErrors {
		d.dropped++
		return
	}
	d.errors = append(d.errors, fieldError{Path: string(at), Message: fmt.Sprintf(format, args...)})
}

// err is the fault of all that was rejected.
func (d *decoder) err() error {
	if len(d.errors) == 0 {
		return nil
	}
	first := d.errors[0]
	detail := first.Message
	if first.Path != "" {
		detail = pointer(first.Path).dotted() + ": " + first.Message
	}
	if more := len(d.errors) - 1 + d.dropped; more > 0 {
		detail += fmt.Sprintf(" (and %d more)", more)
	}
	code := codeInvalidField
	if d.unknown {
		code = codeUnknownField
	}
	return &fault{code: code, detail: detail, fields: d.errors}
}

// object visits the known members of an object, and rejects the others.
func (d *decoder) object(at pointer, v []byte, known *shape, visit func(name string, at pointer, v []byte)) {
	if !d.expect(at, v, '{', "an object") {
		return
	}
	members(v, func(name string, value []byte) {
		switch {
		case known.member(name) == nil:
			d.unknown = true
			d.reject(at.member(name), "%s", d.root.hint(name, known))
		case !isNull(value):
			visit(name, at.member(name), value)
		}
	})
}

// list visits the elements of an array.
func (d *decoder) list(at pointer, v []byte, visit func(at pointer, v []byte)) {
	if d.expect(at, v, '[', "an array") {
		elements(v, func(n int, value []byte) { visit(at.element(n), value) })
	}
}

func (d *decoder) text(at pointer, v []byte) string {
	if !d.expect(at, v, '"', "a string") {
		return ""
	}
	return unquote(v)
}

func (d *decoder) flag(at pointer, v []byte) bool {
	if v[0] != 't' && v[0] != 'f' {
		d.reject(at, "expected a boolean, got %s", kindOf(v))
	}
	return v[0] == 't'
}

// expect reports whether the value starts as values of the kind do.
func (d *decoder) expect(at pointer, v []byte, first byte, kind string) bool {
	if v[0] == first {
		return true
	}
	d.reject(at, "expected %s, got %s", kind, kindOf(v))
	return false
}

func isNull(v []byte) bool { return v[0] == 'n' }

func kindOf(v []byte) string {
	switch v[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}
