package agentsfile_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpool/turnpool/agent/agentsfile"
)

func resolvedSchema(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	var schema jsonschema.Schema
	if err := json.Unmarshal(agentsfile.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	equal(t, "draft", schema.Schema, "https://json-schema.org/draft/2020-12/schema")
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}

// validate checks a file as an editor does.
func validate(t *testing.T, schema *jsonschema.Resolved, data []byte) error {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(asJSON, &value); err != nil {
		t.Fatal(err)
	}
	return schema.Validate(value)
}

func TestSchemaAcceptsGoodFiles(t *testing.T) {
	t.Parallel()
	schema := resolvedSchema(t)
	files, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("files %v, %v", files, err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(t, schema, data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := agentsfile.Parse(name, data, options()); err != nil {
			t.Errorf("%s is not good: %v", name, err)
		}
	}
}

// Values that both accept, or both refuse, in a field of their kind.
func TestSchemaAgreesWithParse(t *testing.T) {
	t.Parallel()
	schema := resolvedSchema(t)
	http := func(fields string) string { return toolWith("{name: t, http: {url: 'https://h', " + fields + "}}") }
	reply := func(fields string) string {
		return agentWith("") + "scripts: {s: [{" + fields + "}]}\n"
	}
	for text, good := range map[string]bool{
		agentWith(""):                                                 true,
		agentWith("maxDuration: 1h30m"):                               true,
		agentWith("maxDuration: 1.5s"):                                true,
		agentWith("maxDuration: 30"):                                  false,
		agentWith("maxDuration: soon"):                                false,
		agentWith("maxDuration: -1s"):                                 false,
		agentWith("maxSteps: 0"):                                      false,
		agentWith("maxSteps: many"):                                   false,
		agentWith("sequential: true"):                                 true,
		agentWith("sequential: sometimes"):                            false,
		agentWith("api: chat"):                                        true,
		agentWith("api: completions"):                                 false,
		agentWith("color: red"):                                       false,
		agentWith("instructions: 42"):                                 false,
		agentWith("tools: []"):                                        true,
		agentWith("tools: {}"):                                        false,
		"agents: []":                                                  false,
		"scripts: {}":                                                 false,
		"agents: [{name: a}]":                                         false,
		"agents: [{model: openai/m}]":                                 false,
		"agents: [{name: a b, model: openai/m}]":                      false,
		"agents: [{name: a, model: gpt}]":                             false,
		toolWith("{name: t}"):                                         false,
		toolWith("{yields: {}}"):                                      false,
		toolWith("{name: t, yields: true}"):                           true,
		toolWith("{name: t, yields: []}"):                             false,
		toolWith("{name: t, yields: {}, parameters: {type: string}}"): false,
		toolWith("{name: t, yields: {}, parameters: {}}"):             false,
		toolWith("{name: t, yields: {}, parameters: {type: object}}"): true,
		toolWith("{name: t, http: {}}"):                               false,
		toolWith("{name: t, http: {url: 'ftp://h'}}"):                 false,
		http("method: PATCH"):                                         true,
		http("method: patch"):                                         false,
		http("headers: {X-A: b}"):                                     true,
		http("headers: {X-A: 1}"):                                     false,
		http("maxResponse: 4096"):                                     true,
		http("maxResponse: 8MiB"):                                     true,
		http("maxResponse: 8MB"):                                      false,
		http("maxResponse: 0"):                                        false,
		http("allowPrivate: false"):                                   true,
		http("allowPrivate: 'no'"):                                    false,
		reply("delay: 1s"):                                            true,
		reply("delay: 1"):                                             false,
		reply("step: -1"):                                             false,
		reply("finishReason: done"):                                   false,
		reply("calls: [{name: t, args: [1]}]"):                        true,
		reply("calls: [{args: {}}]"):                                  false,
		reply("error: {status: -1}"):                                  false,
		reply("usage: {inputTokens: x}"):                              false,
	} {
		if _, err := agentsfile.Parse("f.yaml", []byte(text), options()); (err == nil) != good {
			t.Errorf("Parse of %s: %v", text, err)
		}
		if err := validate(t, schema, []byte(text)); (err == nil) != good {
			t.Errorf("the schema's judgement of %s: %v", text, err)
		}
	}
}

// The caller's bytes are its own.
func TestSchemaIsACopy(t *testing.T) {
	t.Parallel()
	agentsfile.Schema()[0] = 'x'
	equal(t, "first byte", agentsfile.Schema()[0], byte('{'))
}
