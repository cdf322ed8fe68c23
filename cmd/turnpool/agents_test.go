package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

const goodAgents = `
agents:
  - name: concierge
    model: openai/${CHECK_MODEL}
    tools:
      - {name: lookup_stay, http: {url: "http://127.0.0.1:9000/stays"}}
      - {name: ask_guest, yields: {type: string}}
  - name: demo
    model: script/demo
    tools: [{name: cancel, yields: true, http: {url: "https://stays.example.com/cancel"}}]
  - {name: echo, model: script/demo}
scripts: {demo: [{text: "{{message}}"}]}
`

// check runs `turnpool agents check` on a file with this text.
func check(t *testing.T, text string) (code int, stdout, stderr string) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("agents.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, log bytes.Buffer
	code = run(context.Background(), []string{"agents", "check", "agents.yaml"}, &out, &log)
	return code, out.String(), log.String()
}

func TestAgentsCheck(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "")
	t.Setenv("CHECK_MODEL", "gpt-5.6-luna")
	code, stdout, stderr := check(t, goodAgents)
	const want = `agents.yaml: 3 agents, 3 tools: ok
  concierge: openai/gpt-5.6-luna; tools: lookup_stay, ask_guest (yields)
  demo: script/demo; tools: cancel (yields)
  echo: script/demo; no tools
`
	if code != 0 || stdout != want || stderr != "" {
		t.Errorf("exit code %d, stdout %s, stderr %s", code, stdout, stderr)
	}
}

func TestAgentsCheckOne(t *testing.T) {
	code, stdout, stderr := check(t, "agents: [{name: a, model: openai/m, tools: [{name: t, yields: true}]}]")
	const want = "agents.yaml: 1 agent, 1 tool: ok\n  a: openai/m; tools: t (yields)\n"
	if code != 0 || stdout != want || stderr != "" {
		t.Errorf("exit code %d, stdout %s, stderr %s", code, stdout, stderr)
	}
}

// Every mistake is a line with its place, that an editor can jump to; how many
// there are comes last.
func TestAgentsCheckMistakes(t *testing.T) {
	code, stdout, stderr := check(t, "agents:\n  - name: a\n    model: acme/m\n    maxStep: 3\n")
	const want = `agents.yaml:3:12: agents[0].model: there is no provider "acme"; want openai/<model>, or script/<name> of this file's scripts
agents.yaml:4:5: agents[0].maxStep: unknown field; did you mean maxSteps?
turnpool: agents.yaml: 2 mistakes
`
	if code != 1 || stdout != "" || stderr != want {
		t.Errorf("exit code %d, stdout %s, stderr %s", code, stdout, stderr)
	}
}

func TestAgentsCheckNoFile(t *testing.T) {
	var stdout, stderr bytes.Buffer
	name := filepath.Join(t.TempDir(), "none.yaml")
	code := run(context.Background(), []string{"agents", "check", name}, &stdout, &stderr)
	if want := "turnpool: agents file: open " + name + ": no such file or directory\n"; code != 1 || stderr.String() != want {
		t.Errorf("exit code %d, stderr %s", code, stderr.String())
	}
}

func TestAgentsSchema(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := run(context.Background(), []string{"agents", "schema"}, &stdout, &stderr)
	var schema struct {
		Title string `json:"title"`
	}
	err := json.Unmarshal(stdout.Bytes(), &schema)
	if code != 0 || err != nil || schema.Title != "turnpool agents file" {
		t.Errorf("exit code %d, %v, title %q, stderr %s", code, err, schema.Title, stderr.String())
	}
}
