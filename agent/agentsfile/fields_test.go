package agentsfile

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpool/turnpool/agent/script"
)

// The schema for editors has the fields that the file has, and no others.
func TestSchemaHasTheFields(t *testing.T) {
	t.Parallel()
	var schema jsonschema.Schema
	if err := json.Unmarshal(Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	objects := map[string]reflect.Type{
		"agent": reflect.TypeFor[agentDoc](), "tool": reflect.TypeFor[toolDoc](), "http": reflect.TypeFor[httpDoc](),
		"reply": reflect.TypeFor[script.Reply](), "call": reflect.TypeFor[script.Call](),
		"error": reflect.TypeFor[script.Error](), "usage": reflect.TypeFor[script.Usage](),
	}
	compareFields(t, "the file", &schema, reflect.TypeFor[document]())
	for name, goType := range objects {
		if schema.Defs[name] == nil {
			t.Errorf("the schema has no %s", name)
			continue
		}
		compareFields(t, name, schema.Defs[name], goType)
	}
	for name, def := range schema.Defs {
		if def.Type == "object" && objects[name] == nil {
			t.Errorf("the schema has %s, which the file has not", name)
		}
	}
}

func compareFields(t *testing.T, what string, schema *jsonschema.Schema, goType reflect.Type) {
	t.Helper()
	if diff := cmp.Diff(slices.Sorted(slices.Values(fieldNames(goType))), slices.Sorted(maps.Keys(schema.Properties))); diff != "" {
		t.Errorf("fields of %s (-Go +schema):\n%s", what, diff)
	}
	if schema.AdditionalProperties == nil || schema.AdditionalProperties.Not == nil {
		t.Errorf("%s: the schema allows other fields", what)
	}
	for name, property := range schema.Properties {
		field, _ := fieldNamed(goType, name)
		if want := kindOf(field.Type); want != "" && want != schemaKind(property) {
			t.Errorf("%s: %s is %s in the schema, %v in Go", what, name, schemaKind(property), field.Type)
		}
	}
}

// kindOf is how a schema says a Go type, or nothing if it may say it in many ways.
func kindOf(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[jsonschema.Schema](), t == reflect.TypeFor[size](), t.Kind() == reflect.Interface:
		return ""
	case t.String() == "time.Duration", t.Kind() == reflect.String:
		return "string"
	}
	return map[reflect.Kind]string{
		reflect.Int: "integer", reflect.Int64: "integer", reflect.Bool: "boolean", reflect.Slice: "array",
		reflect.Map: "object", reflect.Struct: "object",
	}[t.Kind()]
}

// schemaKind is the type of a schema; an enum of texts is a string, and what a
// reference stands for is not looked at, but for its name.
func schemaKind(s *jsonschema.Schema) string {
	if s.Enum != nil {
		return "string"
	}
	name, isRef := strings.CutPrefix(s.Ref, "#/$defs/")
	switch {
	case !isRef:
		return s.Type
	case name == "name" || name == "duration":
		return "string"
	default:
		return "object"
	}
}
