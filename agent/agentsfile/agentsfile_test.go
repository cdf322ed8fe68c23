package agentsfile_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agentsfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// namedModel is a model that only has a name.
type namedModel string

func (m namedModel) Name() string { return string(m) }

func (m namedModel) Generate(context.Context, *agent.ModelRequest, func(agent.ModelDelta)) (*agent.ModelResponse, error) {
	return nil, errors.New("it only has a name")
}

// openaiOnly accepts the models of one provider by their form.
func openaiOnly(ref agentsfile.ModelRef) (agent.Model, error) {
	if ref.Provider != "openai" {
		return nil, errors.New("unknown provider " + ref.Provider)
	}
	return namedModel(ref.Provider + "/" + ref.Name), nil
}

// environment looks variables up in pairs of names and values.
func environment(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

var hotel = environment("HOTEL", "the Ritz", "MODEL", "gpt-5.6-luna", "STAYS_URL", "http://127.0.0.1:9000/v1", "STAYS_TOKEN", "sk-secret")

func options() agentsfile.Options {
	return agentsfile.Options{Getenv: hotel, Model: openaiOnly, AllowPrivate: true}
}

func load(t *testing.T, name string) *agentsfile.File {
	t.Helper()
	file, err := agentsfile.Load(filepath.Join("testdata", name), options())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range file.Agents {
		if err := a.Check(); err != nil {
			t.Errorf("agent %s is not fit to run: %v", a.Name, err)
		}
	}
	return file
}

// The example of the design is a file.
func TestDesign(t *testing.T) {
	t.Parallel()
	file := load(t, "good/design.yaml")
	equal(t, "agents", len(file.Agents), 1)
	a := file.Agents[0]
	equal(t, "name", a.Name, "concierge")
	equal(t, "model", a.Model.Name(), "openai/gpt-5.6-luna")
	equal(t, "max steps", a.MaxSteps, 8)
	lookup, ask := a.Tools[0], a.Tools[1]
	equal(t, "lookup_stay's timeout", lookup.Timeout, 10*time.Second)
	if lookup.Execute == nil || lookup.Yields != nil {
		t.Error("lookup_stay is no plain tool")
	}
	if ask.Execute != nil || ask.Yields == nil {
		t.Error("ask_guest is no question")
	}
	equal(t, "ask_guest's schema", asJSON(t, ask.Yields), `{"type":"object","properties":{"answer":{"type":"string"}},"required":["answer"]}`)
}

func TestEverything(t *testing.T) {
	t.Parallel()
	file := load(t, "good/everything.yaml")
	equal(t, "file", file.Name, filepath.Join("testdata", "good/everything.yaml"))
	equal(t, "agents", len(file.Agents), 2)
	a := file.Agents[0]
	equal(t, "texts", []string{a.Name, a.Description, a.Model.Name(), a.Instructions}, []string{
		"concierge", "Knows the bookings of the Ritz.", "openai/gpt-5.6-luna",
		"You work for the Ritz.\nA price is written ${amount}, and the Ritz is full on Fridays.\n",
	})
	equal(t, "limits", []any{a.MaxSteps, a.MaxDuration, a.ToolTimeout, a.Sequential}, []any{8, 2 * time.Minute, 20 * time.Second, true})
	equal(t, "tools", len(a.Tools), 3)
	equal(t, "timeouts", []time.Duration{a.Tools[0].Timeout, a.Tools[1].Timeout, a.Tools[2].Timeout},
		[]time.Duration{5 * time.Second, 90 * time.Second, 0})
	byRef := `{"type":"object","properties":{"ref":{"type":"string","description":"The reference","pattern":"^B-[0-9]+$"},` +
		`"deep":{"type":"boolean","default":false}},"required":["ref"],"additionalProperties":false}`
	equal(t, "parameters", asJSON(t, a.Tools[0].Parameters), byRef)
	equal(t, "parameters of an alias", asJSON(t, a.Tools[1].Parameters), byRef)
	equal(t, "more parameters", asJSON(t, a.Tools[2].Parameters),
		`{"type":"object","properties":{"q":{"type":"string","minLength":1,"maxLength":200},`+
			`"kind":{"enum":["date","text",null,7,1.5,true],"const":"text","x-widget":{"rows":3}}}}`)
	equal(t, "an answer that is anything", asJSON(t, a.Tools[2].Yields), `true`)
	if a.Tools[1].Yields == nil || a.Tools[1].Execute == nil {
		t.Error("cancel_stay does not both ask and run")
	}
	equal(t, "scripted model", file.Agents[1].Model.Name(), "script/demo")
}

// A tool without a timeout has the agent's, or else that of HTTP tools.
func TestDefaults(t *testing.T) {
	t.Parallel()
	const text = `
agents:
  - name: a
    model: openai/m
    toolTimeout: 7s
    tools: [{name: t, http: {url: "https://h"}}]
  - name: b
    model: openai/m
    tools: [{name: t, http: {url: "https://h"}}]
`
	file, err := agentsfile.Parse("agents.yaml", []byte(text), options())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "with the agent's", file.Agents[0].Tools[0].Timeout, 7*time.Second)
	equal(t, "without", file.Agents[1].Tools[0].Timeout, 30*time.Second)
	equal(t, "parameters", file.Agents[0].Tools[0].Parameters == nil, true)
	equal(t, "sequential", file.Agents[0].Sequential, false)
	equal(t, "max steps", file.Agents[0].MaxSteps, 0)
}

// The resolver is told all that the file says of a model.
func TestModelRef(t *testing.T) {
	t.Parallel()
	var refs []agentsfile.ModelRef
	opts := agentsfile.Options{Getenv: hotel, Model: func(ref agentsfile.ModelRef) (agent.Model, error) {
		refs = append(refs, ref)
		return namedModel("m"), nil
	}}
	const text = `
agents:
  - {name: a, model: openai/org/model:1}
  - name: b
    api: responses
    model: other/${MODEL}
  - {name: c, model: script/s, api: chat}
scripts: {s: []}
`
	if _, err := agentsfile.Parse("agents.yaml", []byte(text), opts); err != nil {
		t.Fatal(err)
	}
	equal(t, "references", refs, []agentsfile.ModelRef{
		{Provider: "openai", Name: "org/model:1", Agent: "a", File: "agents.yaml", Line: 3},
		{Provider: "other", Name: "gpt-5.6-luna", API: "responses", Agent: "b", File: "agents.yaml", Line: 6},
	})
}

// What YAML has to save writing works: anchors, aliases, merged mappings.
func TestAliases(t *testing.T) {
	t.Parallel()
	const text = `
agents:
  - &base
    name: a
    model: &m script/s
    maxSteps: 3
    tools:
      - name: t
        http:
          url: https://h
          headers: &h {X-A: "1", X-B: "2"}
  - {<<: *base, name: b, maxSteps: 4}
  - name: c
    <<: [{description: first}, {description: second, toolTimeout: 9s}]
    model: *m
    tools: [{name: t, http: {url: "https://h", headers: {<<: *h, X-B: "3"}}}]
scripts: {s: []}
`
	file, err := agentsfile.Parse("agents.yaml", []byte(text), options())
	if err != nil {
		t.Fatal(err)
	}
	b, c := file.Agents[1], file.Agents[2]
	equal(t, "merged", []any{b.Name, b.Model.Name(), b.MaxSteps, len(b.Tools)}, []any{"b", "script/s", 4, 1})
	equal(t, "merged list", []any{c.Model.Name(), c.Description, c.ToolTimeout, len(c.Tools)}, []any{"script/s", "first", 9 * time.Second, 1})
}

func TestLoadErrors(t *testing.T) {
	t.Parallel()
	_, err := agentsfile.Load(filepath.Join(t.TempDir(), "none.yaml"), options())
	if !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "agents file: open ") {
		t.Errorf("a file that is not there: %v", err)
	}
	file, err := agentsfile.Load("testdata/bad/many.yaml", options())
	var all agentsfile.Errors
	if file != nil || !errors.As(err, &all) || all[0].File != "testdata/bad/many.yaml" || all[0].Line != 3 {
		t.Errorf("a bad file: %v, %v", file, err)
	}
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
