package ingress

import (
	"slices"
	"strings"
)

// shape is the tree of a body's known fields. A field whose members are the
// caller's own (state, metadata) has none here.
type shape struct {
	name   string
	list   bool // an array of such objects
	fields []*shape
}

func fields(names ...string) []*shape {
	out := make([]*shape, len(names))
	for i, name := range names {
		out[i] = &shape{name: name}
	}
	return out
}

// requestShape is that of a turn.Request.
var requestShape = &shape{fields: slices.Concat(
	fields("agent", "sessionId"),
	[]*shape{
		{name: "input", fields: slices.Concat(
			[]*shape{
				{name: "message", fields: slices.Concat(fields("text"), []*shape{
					{name: "media", list: true, fields: slices.Concat(fields("type"), []*shape{
						{name: "source", fields: fields("type", "url", "mimeType", "data")},
					})},
				})},
				{name: "tools", list: true, fields: fields("callId", "input")},
			},
			fields("state", "initialState"),
		)},
		{name: "frontendTools", list: true, fields: fields("name", "description", "parameters")},
		{name: "response", fields: fields("events", "usage", "state", "deltas")},
	},
	fields("timeout", "lane", "onDisconnect", "scopes", "metadata"),
)}

// sessionShape is that of a session to create.
var sessionShape = &shape{fields: fields("sessionId", "scopes", "state", "initialState")}

// member returns the field of that name, nil if it is unknown.
func (s *shape) member(name string) *shape {
	for _, f := range s.fields {
		if f.name == name {
			return f
		}
	}
	return nil
}

// hint says what a caller may have meant by an unknown member of the shape at.
// The nearest known name counts, wherever it belongs; of equally near ones that
// of the same object, then the one that is least deep.
func (s *shape) hint(name string, at *shape) string {
	best := candidate{distance: nearEnough(name) + 1}
	s.walk("", 0, func(c candidate) {
		c.distance = distance(fold(name), fold(c.field.name), best.distance)
		c.sibling = at.member(c.field.name) == c.field
		if c.distance <= nearEnough(name) && (best.field == nil || c.before(best)) {
			best = c
		}
	})
	if best.field != nil {
		return "did you mean " + best.path + "?"
	}
	known := make([]string, len(at.fields))
	for i, f := range at.fields {
		known[i] = f.name
	}
	return "unknown field; known here: " + strings.Join(known, ", ")
}

// candidate is a known field that an unknown name may stand for.
type candidate struct {
	field    *shape
	path     string
	depth    int
	distance int
	sibling  bool
}

func (c candidate) before(other candidate) bool {
	if c.distance != other.distance {
		return c.distance < other.distance
	}
	if c.sibling != other.sibling {
		return c.sibling
	}
	return c.depth < other.depth
}

func (s *shape) walk(prefix string, depth int, visit func(candidate)) {
	for _, f := range s.fields {
		path := prefix + f.name
		visit(candidate{field: f, path: path, depth: depth})
		if f.list {
			path += "[]"
		}
		f.walk(path+".", depth+1, visit)
	}
}

// nearEnough is how many letters may differ: a third.
func nearEnough(name string) int {
	if len(name) > 40 {
		return -1 // no known name is that long
	}
	return len(name) / 3
}

// fold makes session_id and SessionID the same.
func fold(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
}

// distance is how many bytes have to be changed, put in, left out or swapped
// with the next, counted up to limit.
func distance(a, b string, limit int) int {
	if diff := len(a) - len(b); max(diff, -diff) > limit {
		return limit + 1
	}
	// The rows of the table for the last two prefixes of a, and for this one.
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
