package agentsfile

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/google/jsonschema-go/jsonschema"
)

// decoder fills the types of document.go from a syntax tree. It goes on after a
// mistake, so that all are found.
type decoder struct {
	file    string
	getenv  func(string) (string, bool)
	aliases map[*ast.AliasNode]ast.Node

	// expand says whether texts may have variables, here.
	expand bool
	// places are the fields that there are, by path, with where their values
	// begin; bad are those that were found wrong, of which no more is said.
	places map[string]position
	bad    map[string]bool
	// written are the texts that have variables, as the file has them; secrets
	// are the values of those variables.
	written map[string]string
	secrets []string

	depth, nodes int
	stopped      bool

	errs Errors
}

// An alias may make a small file large, and a file without end of itself.
const (
	maxDepth = 100
	maxNodes = 50_000
)

func newDecoder(file string, getenv func(string) (string, bool)) *decoder {
	if getenv == nil {
		getenv = func(string) (string, bool) { return "", false }
	}
	return &decoder{
		file: file, getenv: getenv, expand: true,
		places: map[string]position{}, bad: map[string]bool{}, written: map[string]string{},
	}
}

// root decodes the whole tree, and reports whether there is something to build
// from.
func (d *decoder) root(node ast.Node, doc *document) bool {
	if node == nil {
		d.fault("agents", noAgents)
		return false
	}
	d.aliases = findAliases(node)
	d.value("", node, reflectOf(doc))
	return !d.bad[""]
}

// fault notes a mistake at the field, or, if it is absent, at what it should be
// in.
func (d *decoder) fault(path, format string, args ...any) {
	at, found := start, false
	for in := path; !found && in != ""; in = in[:max(0, strings.LastIndexAny(in, ".["))] {
		at, found = d.places[in]
	}
	if !found {
		at = start
	}
	d.faultAt(path, at, format, args...)
}

func (d *decoder) faultAt(path string, at position, format string, args ...any) {
	d.bad[path] = true
	text := fmt.Sprintf(format, args...)
	d.errs = append(d.errs, &Error{File: d.file, Line: at.line, Column: at.column, Path: path, Text: text})
}

// has reports whether the field is in the file, and is not null.
func (d *decoder) has(path string) bool {
	_, ok := d.places[path]
	return ok
}

// badWithin reports whether the field, or something in it, was found wrong.
func (d *decoder) badWithin(path string) bool {
	for bad := range d.bad {
		if after, ok := strings.CutPrefix(bad, path); ok && (after == "" || after[0] == '.' || after[0] == '[') {
			return true
		}
	}
	return false
}

// enter counts a node, and reports whether to go on with it. Too many, or too
// deep, is the last mistake that is looked for: there may be no end of them.
func (d *decoder) enter(path string) bool {
	d.nodes++
	switch {
	case d.stopped:
		return false
	case d.nodes > maxNodes:
		d.fault(path, "with its aliases, the file has more than %d values", maxNodes)
	case d.depth == maxDepth:
		d.fault(path, "it is nested more than %d deep", maxDepth)
	default:
		d.depth++
		return true
	}
	d.stopped = true
	return false
}

func (d *decoder) leave() { d.depth-- }

// resolve goes through anchors and aliases to the node that they stand for. It
// returns nil, and says why, if there is none.
func (d *decoder) resolve(path string, node ast.Node) ast.Node {
	for range maxDepth { // an alias may stand for an alias
		switch n := node.(type) {
		case *ast.AnchorNode:
			node = n.Value
		case *ast.AliasNode:
			if node = d.aliases[n]; node == nil {
				d.faultAt(path, positionAt(n), "there is no anchor &%s before it", n.Value.String())
				return nil
			}
		case *ast.TagNode:
			d.faultAt(path, positionAt(n), "it has a tag, %s; want none", clip(n.Start.Value))
			return nil
		case nil:
			d.fault(path, "it is empty")
			return nil
		default:
			return node
		}
	}
	d.fault(path, "its alias stands for itself")
	return nil
}

// peek is resolve without a word: of what is not there, it returns nil.
func (d *decoder) peek(node ast.Node) ast.Node {
	for range maxDepth {
		switch n := node.(type) {
		case *ast.AnchorNode:
			node = n.Value
		case *ast.AliasNode:
			node = d.aliases[n]
		default:
			return node
		}
	}
	return nil
}

// value decodes a node into a Go value. Null is as if the field was absent, and
// is reported.
func (d *decoder) value(path string, node ast.Node, to reflect.Value) (null bool) {
	if node = d.resolve(path, node); node == nil || !d.enter(path) {
		return false
	}
	defer d.leave()
	if _, null := node.(*ast.NullNode); null {
		return true
	}
	d.places[path] = positionAt(node)
	switch to := to.Addr().Interface().(type) {
	case *string:
		*to, _ = d.text(path, node)
	case *time.Duration:
		*to = d.duration(path, node)
	case *size:
		*to = d.size(path, node)
	case *int:
		*to = int(d.whole(path, node, math.MaxInt))
	case *int64:
		*to = d.whole(path, node, math.MaxInt64)
	case *float64:
		*to = d.number(path, node)
	case *bool:
		*to = d.boolean(path, node)
	case *any:
		*to = d.plain(path, node)
	case *jsonschema.Schema:
		d.schema(path, node, to)
	default:
		d.composite(path, node, reflect.ValueOf(to).Elem())
	}
	return false
}

// composite decodes what has parts.
func (d *decoder) composite(path string, node ast.Node, to reflect.Value) {
	switch to.Kind() {
	case reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		d.value(path, node, to.Elem())
	case reflect.Struct:
		d.fields(path, node, to)
	case reflect.Map:
		d.mapping(path, node, to)
	case reflect.Slice:
		d.list(path, node, to)
	default: // a field of a type that nobody has decoded yet, which the tests see
		panic("agentsfile: no decoder for " + to.Type().String())
	}
}

func (d *decoder) fields(path string, node ast.Node, to reflect.Value) {
	entries, ok := d.entries(path, node)
	if !ok {
		d.fault(path, "%s is no mapping; want fields: %s", kind(node), strings.Join(fieldNames(to.Type()), ", "))
		return
	}
	for _, e := range entries {
		d.field(path, e, to)
	}
}

// field decodes an entry of a mapping into the field of its name.
func (d *decoder) field(path string, e entry, to reflect.Value) {
	below := join(path, e.key)
	field, ok := fieldNamed(to.Type(), e.key)
	if !ok {
		d.faultAt(below, e.at, "%s", unknown("unknown field", e.key, fieldNames(to.Type())))
		return
	}
	defer func(was bool) { d.expand = was }(d.expand)
	d.expand = d.expand && field.Tag.Get("env") != "-"
	d.value(below, e.value, to.FieldByIndex(field.Index))
}

func (d *decoder) mapping(path string, node ast.Node, to reflect.Value) {
	entries, ok := d.entries(path, node)
	if !ok {
		d.fault(path, "%s is no mapping", kind(node))
		return
	}
	to.Set(reflect.MakeMap(to.Type()))
	for _, e := range entries {
		item := reflect.New(to.Type().Elem()).Elem()
		d.item(join(path, e.key), e.value, item)
		to.SetMapIndex(reflect.ValueOf(e.key), item)
	}
}

func (d *decoder) list(path string, node ast.Node, to reflect.Value) {
	sequence, ok := node.(*ast.SequenceNode)
	if !ok {
		d.fault(path, "%s is no list", kind(node))
		return
	}
	to.Set(reflect.MakeSlice(to.Type(), len(sequence.Values), len(sequence.Values)))
	for i, each := range sequence.Values {
		d.item(fmt.Sprintf("%s[%d]", path, i), each, to.Index(i))
	}
}

// item decodes a part of a map or a list, which must be there.
func (d *decoder) item(path string, node ast.Node, to reflect.Value) {
	if null := d.value(path, node, to); null && to.Kind() != reflect.Interface {
		d.faultAt(path, positionAt(node), "it is empty")
	}
}

func reflectOf[T any](to *T) reflect.Value { return reflect.ValueOf(to).Elem() }

// join is the path of a key in what is at path.
func join(path, key string) string {
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || strings.ContainsRune(`.[]"`, r) }) {
		return fmt.Sprintf("%s[%q]", path, key)
	}
	return strings.TrimPrefix(path+"."+key, ".")
}

// fieldName is the name of a struct's field in the file, or nothing: from its yaml
// tag, or, as in a JSON schema, its json tag.
func fieldName(f reflect.StructField) string {
	tag, ok := f.Tag.Lookup("yaml")
	if !ok {
		tag = f.Tag.Get("json")
	}
	name, _, _ := strings.Cut(tag, ",")
	return strings.TrimPrefix(name, "-")
}

func fieldNamed(t reflect.Type, name string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); name != "" && fieldName(f) == name {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func fieldNames(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		if name := fieldName(t.Field(i)); name != "" {
			names = append(names, name)
		}
	}
	return names
}
