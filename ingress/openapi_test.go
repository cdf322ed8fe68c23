package ingress

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpool/turnpool/internal/health"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// document is as much of the OpenAPI document as the tests look at.
type document struct {
	OpenAPI    string
	Paths      map[string]map[string]json.RawMessage
	Components struct {
		Schemas    map[string]json.RawMessage
		Responses  map[string]json.RawMessage
		Parameters map[string]json.RawMessage
		Headers    map[string]json.RawMessage
	}
}

func readDocument(t *testing.T) document {
	t.Helper()
	var doc document
	if err := json.Unmarshal(openAPIDocument, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestDocumentHasTheRoutes(t *testing.T) {
	t.Parallel()
	doc := readDocument(t)
	var documented, served []string
	for path, operations := range doc.Paths {
		for method := range operations {
			if method != "parameters" {
				documented = append(documented, strings.ToUpper(method)+" "+path)
			}
		}
	}
	for _, rt := range routes {
		served = append(served, rt.method+" "+rt.path)
	}
	slices.Sort(documented)
	slices.Sort(served)
	if diff := cmp.Diff(served, documented); diff != "" {
		t.Errorf("(-served +documented):\n%s", diff)
	}
}

func TestDocumentIsServed(t *testing.T) {
	t.Parallel()
	a := setup(t).do("GET", "/openapi.json", "")
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "application/json" || !bytes.Equal(a.body, openAPIDocument) {
		t.Errorf("%d %v", a.status, a.header)
	}
}

func TestDocumentReferences(t *testing.T) {
	t.Parallel()
	doc := readDocument(t)
	used := map[string]bool{}
	for _, match := range regexp.MustCompile(`"\$ref": "([^"]*)"`).FindAllStringSubmatch(string(openAPIDocument), -1) {
		used[match[1]] = true
	}
	defined := map[string]bool{}
	for kind, components := range map[string]map[string]json.RawMessage{
		"schemas": doc.Components.Schemas, "responses": doc.Components.Responses,
		"parameters": doc.Components.Parameters, "headers": doc.Components.Headers,
	} {
		for name := range components {
			defined["#/components/"+kind+"/"+name] = true
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(defined)), slices.Sorted(maps.Keys(used))); diff != "" {
		t.Errorf("(-defined +used):\n%s", diff)
	}
}

// schema returns a schema of the document, ready to validate with.
func (doc document) schema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	encoded, err := json.Marshal(map[string]any{"$defs": doc.Components.Schemas, "$ref": "#/components/schemas/" + name})
	if err != nil {
		t.Fatal(err)
	}
	encoded = bytes.ReplaceAll(encoded, []byte("#/components/schemas/"), []byte("#/$defs/"))
	var s jsonschema.Schema
	if err := json.Unmarshal(encoded, &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

// The fields in the document are those of the types.
func TestDocumentHasTheFields(t *testing.T) {
	t.Parallel()
	doc := readDocument(t)
	for name, typ := range map[string]reflect.Type{
		"TurnRequest": reflect.TypeFor[turn.Request](), "Input": reflect.TypeFor[turn.Input](), "Message": reflect.TypeFor[turn.Message](),
		"Media": reflect.TypeFor[session.Media](), "MediaSource": reflect.TypeFor[session.MediaSource](),
		"ToolAnswer": reflect.TypeFor[turn.ToolAnswer](), "ResponseOptions": reflect.TypeFor[turn.Response](),
		"TurnStatus": reflect.TypeFor[turnSummary](), "TurnResult": reflect.TypeFor[turn.Result](), "Output": reflect.TypeFor[turn.Output](),
		"YieldedTool": reflect.TypeFor[turn.YieldedTool](), "TurnError": reflect.TypeFor[turn.Error](),
		"CancelAnswer": reflect.TypeFor[cancelAnswer](), "Session": reflect.TypeFor[sessionView](), "PendingCall": reflect.TypeFor[pendingView](),
		"Agent": reflect.TypeFor[agentView](), "Tool": reflect.TypeFor[turn.ToolInfo](), "Health": reflect.TypeFor[health.View](),
		"Problem": reflect.TypeFor[problem](),
	} {
		var documented, fields []string
		documented = slices.Sorted(maps.Keys(doc.schema(t, name).Defs[name].Properties))
		for i := range typ.NumField() {
			field, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			fields = append(fields, field)
		}
		slices.Sort(fields)
		if diff := cmp.Diff(fields, documented); diff != "" {
			t.Errorf("%s (-type +document):\n%s", name, diff)
		}
	}
	var sessionFields []string
	for _, f := range sessionShape.fields {
		sessionFields = append(sessionFields, f.name)
	}
	slices.Sort(sessionFields)
	if diff := cmp.Diff(sessionFields, slices.Sorted(maps.Keys(doc.schema(t, "SessionRequest").Defs["SessionRequest"].Properties))); diff != "" {
		t.Errorf("SessionRequest (-shape +document):\n%s", diff)
	}
}

func TestDocumentHasTheCodes(t *testing.T) {
	t.Parallel()
	var documented []string
	for _, code := range readDocument(t).schema(t, "Problem").Defs["Problem"].Properties["code"].Enum {
		documented = append(documented, code.(string))
	}
	slices.Sort(documented)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(meanings)), documented); diff != "" {
		t.Errorf("(-served +documented):\n%s", diff)
	}
}

// Every body that the tests have pinned is as the document says.
func TestDocumentDescribesTheBodies(t *testing.T) {
	t.Parallel()
	doc := readDocument(t)
	schemas := map[string]string{
		"problem_": "Problem", "accepted_": "TurnStatus", "turn_queued": "TurnStatus", "turn_running": "TurnStatus", "turn_": "TurnResult",
		"session_": "Session", "cancel_": "CancelAnswer", "healthz": "Health", "readyz": "Health",
	}
	prefixes := slices.SortedFunc(maps.Keys(schemas), func(a, b string) int { return len(b) - len(a) })
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) < 20 {
		t.Fatal(len(files), err)
	}
	for _, file := range files {
		i := slices.IndexFunc(prefixes, func(p string) bool { return strings.HasPrefix(filepath.Base(file), p) })
		if i < 0 {
			continue // a list, whose items are checked as themselves
		}
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		body = bytes.ReplaceAll(body, []byte("inv_ID"), []byte("inv_00000000000000000000000000000000"))
		var instance any
		if err := json.Unmarshal(body, &instance); err != nil {
			t.Fatal(err)
		}
		resolved, err := doc.schema(t, schemas[prefixes[i]]).Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := resolved.Validate(instance); err != nil {
			t.Errorf("%s is no %s: %v", file, schemas[prefixes[i]], err)
		}
	}
}

// A request that the document takes is one that the server takes.
func TestDocumentDescribesTheRequest(t *testing.T) {
	t.Parallel()
	resolved, err := readDocument(t).schema(t, "TurnRequest").Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	for body, valid := range map[string]bool{
		message: true,
		`{"agent":"a","sessionId":"s","input":{"tools":[{"callId":"c","input":null}]},"timeout":1,"lane":"batch"}`:          true,
		`{"input":{"message":{"text":"a","media":[{"type":"image","source":{"type":"url","url":"https://a.example/b"}}]}}}`: true,
		`{"message":"hi"}`:                         false,
		`{"input":{"message":7}}`:                  false,
		`{"input":{"message":"a"},"timeout":-1}`:   false,
		`{"input":{"tools":[{"input":1}]}}`:        false,
		`{"input":{"message":"a"},"lane":"other"}`: false,
	} {
		var instance any
		if err := json.Unmarshal([]byte(body), &instance); err != nil {
			t.Fatal(err)
		}
		_, refused := decodeRequest([]byte(body))
		if err := resolved.Validate(instance); (err == nil) != valid || (refused == nil) != valid {
			t.Errorf("%s: document %v, server %v", body, err, refused)
		}
	}
}
