package ingress

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The functions of this file read JSON that is known to be well-formed, in
// place: values are slices of the body, and nothing is built that the caller
// did not ask for. [wellFormed] is the check that must go before.

// maxDepth is how deep a body may be nested. Nothing of the request's own is
// deeper than six; the rest is for values that are passed through.
const maxDepth = 64

// pointer is a JSON pointer.
type pointer string

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// maxNameInPointer keeps a huge member name of the caller's out of the answer.
const maxNameInPointer = 64

func (p pointer) member(name string) pointer {
	return p + "/" + pointer(pointerEscapes.Replace(shorten(name, maxNameInPointer)))
}

func (p pointer) element(i int) pointer { return p + "/" + pointer(strconv.Itoa(i)) }

// dotted is the pointer as people write it: input.tools[0].callId.
func (p pointer) dotted() string {
	var out strings.Builder
	for i, part := range strings.Split(string(p), "/") {
		_, err := strconv.Atoi(part)
		switch {
		case i == 0:
		case err == nil:
			out.WriteString("[" + part + "]")
		default:
			if out.Len() > 0 {
				out.WriteByte('.')
			}
			out.WriteString(strings.NewReplacer("~1", "/", "~0", "~").Replace(part))
		}
	}
	return out.String()
}

// shorten cuts a text at a rune boundary.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + "…"
}

// wellFormed returns the body's one value, without the space around it. It
// refuses what is not UTF-8, no JSON, followed by anything, nested too deep, or
// has a member twice.
func wellFormed(body []byte) ([]byte, error) {
	body = bytes.TrimRight(body, " \t\r\n")
	if len(body) == 0 {
		return nil, malformed("", "the body is empty; expected a JSON object")
	}
	if !utf8.Valid(body) {
		return nil, malformed("", fmt.Sprintf("the body is not UTF-8: byte %d", invalidAt(body)))
	}
	if !json.Valid(body) {
		var v json.RawMessage
		return nil, malformed("", syntaxMessage(json.Unmarshal(body, &v)))
	}
	start := space(body, 0)
	c := checker{body: body}
	if _, at, message := c.value(start); message != "" {
		return nil, malformed(at, message)
	}
	return body[start:], nil
}

func malformed(at pointer, message string) error {
	f := &fault{code: codeMalformedJSON, detail: message}
	if at != "" {
		f.detail = at.dotted() + ": " + message
		f.fields = []fieldError{{Path: string(at), Message: message}}
	}
	return f
}

// invalidAt is the place of the first byte that is not UTF-8.
func invalidAt(body []byte) int {
	at := 0
	for at < len(body) {
		r, size := utf8.DecodeRune(body[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return at
}

func syntaxMessage(err error) string {
	if syntax, ok := err.(*json.SyntaxError); ok {
		return fmt.Sprintf("%s, at byte %d", syntax.Error(), syntax.Offset)
	}
	return "the body is no JSON"
}

// checker walks a whole value once.
type checker struct {
	body  []byte
	depth int
}

// value checks the value at i and returns where it ends, or where in the
// document what is wrong, and what.
func (c *checker) value(i int) (end int, at pointer, message string) {
	if c.body[i] != '{' && c.body[i] != '[' {
		return skip(c.body, i), "", ""
	}
	if c.depth++; c.depth > maxDepth {
		return 0, "", fmt.Sprintf("nested deeper than %d", maxDepth)
	}
	defer func() { c.depth-- }()
	if c.body[i] == '{' {
		return c.object(i)
	}
	return c.array(i)
}

func (c *checker) object(i int) (end int, at pointer, message string) {
	var seen nameSet
	for i = space(c.body, i+1); c.body[i] != '}'; {
		nameEnd := skipString(c.body, i)
		name := unquote(c.body[i:nameEnd])
		if !seen.add(name) {
			return 0, pointer("").member(name), "given twice"
		}
		i = space(c.body, space(c.body, nameEnd)+1)
		end, at, message := c.value(i)
		if message != "" {
			return 0, pointer("").member(name) + at, message
		}
		i = next(c.body, end)
	}
	return i + 1, "", ""
}

func (c *checker) array(i int) (end int, at pointer, message string) {
	i = space(c.body, i+1)
	for n := 0; c.body[i] != ']'; n++ {
		end, at, message := c.value(i)
		if message != "" {
			return 0, pointer("").element(n) + at, message
		}
		i = next(c.body, end)
	}
	return i + 1, "", ""
}

// nameSet is a set that needs no map for the few names that most objects have.
type nameSet struct {
	few  [8]string
	n    int
	many map[string]struct{}
}

// add reports whether the name is new.
func (s *nameSet) add(name string) bool {
	for _, have := range s.few[:s.n] {
		if have == name {
			return false
		}
	}
	if s.n < len(s.few) {
		s.few[s.n] = name
		s.n++
		return true
	}
	if _, have := s.many[name]; have {
		return false
	}
	if s.many == nil {
		s.many = map[string]struct{}{}
	}
	s.many[name] = struct{}{}
	return true
}

// members calls visit with each member of an object.
func members(object []byte, visit func(name string, value []byte)) {
	for i := space(object, 1); object[i] != '}'; {
		nameEnd := skipString(object, i)
		start := space(object, space(object, nameEnd)+1)
		end := skip(object, start)
		visit(unquote(object[i:nameEnd]), object[start:end:end])
		i = next(object, end)
	}
}

// elements calls visit with each element of an array.
func elements(array []byte, visit func(n int, value []byte)) {
	i := space(array, 1)
	for n := 0; array[i] != ']'; n++ {
		end := skip(array, i)
		visit(n, array[i:end:end])
		i = next(array, end)
	}
}

// next returns where the next member or element starts, or the closing bracket.
func next(b []byte, end int) int {
	i := space(b, end)
	if b[i] == ',' {
		i = space(b, i+1)
	}
	return i
}

// space returns the first place from i on that is no white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skip returns where the value that starts at i ends.
func skip(b []byte, i int) int {
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipNested(b, i)
	}
	for i < len(b) && !strings.ContainsRune(" \n\t\r,]}", rune(b[i])) {
		i++
	}
	return i
}

func skipNested(b []byte, i int) int {
	depth := 0
	for {
		switch b[i] {
		case '"':
			i = skipString(b, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		i++
		if depth == 0 {
			return i
		}
	}
}

func skipString(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// unquote returns the text of a string. An escaped surrogate without its other
// half becomes U+FFFD.
func unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var text string
	if err := json.Unmarshal(quoted, &text); err != nil {
		panic(err) // well-formed, so this cannot be
	}
	return text
}
