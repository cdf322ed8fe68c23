package agentsfile

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/google/jsonschema-go/jsonschema"
)

// types are those of JSON Schema.
var types = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

// schema decodes a JSON schema. A keyword that is not one is refused, unless it
// begins with "x-": it would check nothing, and that is found too late.
func (d *decoder) schema(path string, node ast.Node, to *jsonschema.Schema) {
	if allowed, ok := node.(*ast.BoolNode); ok {
		if !allowed.Value {
			to.Not = &jsonschema.Schema{}
		}
		return
	}
	entries, ok := d.entries(path, node)
	if !ok {
		d.fault(path, "%s is no JSON schema; want a mapping such as {type: string}", kind(node))
		return
	}
	for _, e := range entries {
		d.keyword(path, e, to)
	}
	d.checkNumbers(path, to)
	for name := range to.PatternProperties {
		d.checkPattern(join(join(path, "patternProperties"), name), name)
	}
	d.checkPattern(join(path, "pattern"), to.Pattern)
}

// keyword decodes one keyword. Those whose Go field has another form than the
// file come first.
func (d *decoder) keyword(path string, e entry, to *jsonschema.Schema) {
	below := join(path, e.key)
	switch {
	case e.key == "type":
		d.types(below, e.value, to)
	case e.key == "items":
		d.item(below, e.value, reflectOf(&to.Items))
	case e.key == "const":
		to.Const = new(any)
		d.item(below, e.value, reflectOf(to.Const))
	case e.key == "default":
		var value any
		d.item(below, e.value, reflectOf(&value))
		to.Default, _ = json.Marshal(value) // what plain returns always encodes
	case strings.HasPrefix(e.key, "x-"):
		var value any
		d.item(below, e.value, reflectOf(&value))
		if to.Extra == nil {
			to.Extra = map[string]any{}
		}
		to.Extra[e.key] = value
	default:
		if _, ok := fieldNamed(reflect.TypeFor[jsonschema.Schema](), e.key); !ok {
			d.faultAt(below, e.at, "%s", unknown("unknown keyword of JSON Schema", e.key, keywords()))
			return
		}
		d.field(path, e, reflectOf(to))
	}
	if e.key == "properties" {
		d.order(below, e.value, to)
	}
}

// keywords are those that there are, for the nearest to one that there is not.
func keywords() []string {
	return append(fieldNames(reflect.TypeFor[jsonschema.Schema]()), "type", "items")
}

// types decodes a type, or several.
func (d *decoder) types(path string, node ast.Node, to *jsonschema.Schema) {
	if _, several := d.peek(node).(*ast.SequenceNode); several {
		d.item(path, node, reflectOf(&to.Types))
	} else {
		d.item(path, node, reflectOf(&to.Type))
	}
	for _, name := range append(to.Types, to.Type) {
		if name != "" && !slices.Contains(types, name) && !d.bad[path] {
			d.fault(path, "%s", unknown("unknown type "+clip(name), name, types))
		}
	}
	if d.has(path) && to.Type == "" && len(to.Types) == 0 && !d.bad[path] {
		d.fault(path, "it names no type; want one of %s", strings.Join(types, ", "))
	}
}

// order keeps the order of properties, which is the one that a model reads.
func (d *decoder) order(path string, node ast.Node, to *jsonschema.Schema) {
	entries, _ := d.entries(path, d.peek(node))
	for _, e := range entries {
		if to.Properties[e.key] != nil {
			to.PropertyOrder = append(to.PropertyOrder, e.key)
		}
	}
}

// checkNumbers sees to the counts of a schema, none of which is below zero.
func (d *decoder) checkNumbers(path string, s *jsonschema.Schema) {
	value := reflect.ValueOf(s).Elem()
	for i := range value.NumField() {
		if count, ok := value.Field(i).Interface().(*int); ok && count != nil && *count < 0 {
			d.fault(join(path, fieldName(value.Type().Field(i))), "%d is below zero", *count)
		}
	}
}

func (d *decoder) checkPattern(path, pattern string) {
	if _, err := regexp.Compile(pattern); err != nil && !d.bad[path] {
		d.fault(path, "%v", err)
	}
}

// checkSchema says what only the whole of a schema shows.
func (d *decoder) checkSchema(path string, s *jsonschema.Schema) {
	if s == nil || d.badWithin(path) {
		return
	}
	if _, err := s.Resolve(nil); err != nil {
		d.fault(path, "it is no JSON schema: %v", err)
	}
}
