package agent_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agenttest"
	"github.com/turnpool/turnpool/turn"
)

func TestNewToolSchema(t *testing.T) {
	t.Parallel()
	type in struct {
		Ref   string   `json:"ref" jsonschema:"the booking's reference"`
		Extra []string `json:"extra,omitempty"`
	}
	tool := agent.NewTool("lookup", "Look up", func(context.Context, in) (int, error) { return 0, nil })
	schema, err := json.Marshal(tool.Parameters)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(schema, &got); err != nil {
		t.Fatal(err)
	}
	ref := got["properties"].(map[string]any)["ref"]
	equal(t, "schema", []any{got["type"], got["required"], ref},
		[]any{"object", []any{"ref"}, map[string]any{"type": "string", "description": "the booking's reference"}})
	equal(t, "tool", []string{tool.Name, tool.Description}, []string{"lookup", "Look up"})

	open := agent.NewTool("any", "", func(context.Context, map[string]any) (int, error) { return 0, nil })
	equal(t, "schema of a map", open.Parameters.Type, "object")
}

func TestNewToolPanics(t *testing.T) {
	t.Parallel()
	panics(t, "not string", func() {
		agent.NewTool("t", "", func(context.Context, string) (int, error) { return 0, nil })
	})
	panics(t, "not *struct", func() {
		agent.NewTool("t", "", func(context.Context, *struct{}) (int, error) { return 0, nil })
	})
	panics(t, `tool "t"`, func() {
		agent.NewTool("t", "", func(context.Context, struct{ C chan int }) (int, error) { return 0, nil })
	})
}

func panics(t *testing.T, want string, do func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if text, _ := recover().(string); !strings.Contains(text, want) {
			t.Errorf("panic %q, want one with %q", text, want)
		}
	}()
	do()
}

func TestCallOfOutsideACall(t *testing.T) {
	t.Parallel()
	if call := agent.CallOf(t.Context()); call != nil {
		t.Errorf("call %+v", call)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	fine := func() *agent.Agent {
		return &agent.Agent{Name: "a", Model: agenttest.NewModel(), Tools: []*agent.Tool{raw("t", `1`), raw("u", `1`)}}
	}
	for name, c := range map[string]struct {
		spoil func(*agent.Agent)
		want  []string // parts of the error; none: no error
	}{
		"fine":          {spoil: func(*agent.Agent) {}},
		"no name":       {spoil: func(a *agent.Agent) { a.Name = "" }, want: []string{`agent "": a name`}},
		"bad name":      {spoil: func(a *agent.Agent) { a.Name = "a b" }, want: []string{"a name has 1 to 64"}},
		"no model":      {spoil: func(a *agent.Agent) { a.Model = nil }, want: []string{"no model"}},
		"steps":         {spoil: func(a *agent.Agent) { a.MaxSteps = -1 }, want: []string{"negative"}},
		"duration":      {spoil: func(a *agent.Agent) { a.MaxDuration = -1 }, want: []string{"negative"}},
		"tool timeouts": {spoil: func(a *agent.Agent) { a.ToolTimeout = -1 }, want: []string{"negative"}},
		"nil tool":      {spoil: func(a *agent.Agent) { a.Tools[1] = nil }, want: []string{"tool 2 of the list is nil"}},
		"no code":       {spoil: func(a *agent.Agent) { a.Tools[0].Execute = nil }, want: []string{`tool "t": it has no code`}},
		"tool name":     {spoil: func(a *agent.Agent) { a.Tools[0].Name = "t/u" }, want: []string{`tool "t/u": a name`}},
		"twice":         {spoil: func(a *agent.Agent) { a.Tools[0].Name = "u" }, want: []string{`tool "u" is there twice`}},
		"tool timeout":  {spoil: func(a *agent.Agent) { a.Tools[0].Timeout = -time.Second }, want: []string{`tool "t": its timeout`}},
		"no schema": {spoil: func(a *agent.Agent) {
			a.Tools[0].Parameters = &jsonschema.Schema{Ref: "#/$defs/none"}
		}, want: []string{`tool "t": its parameters are no schema`}},
		"all of it": {spoil: func(a *agent.Agent) { *a = agent.Agent{Name: "!", Tools: a.Tools[:0]} }, want: []string{"a name", "no model"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := fine()
			c.spoil(a)
			err := a.Check()
			if (err == nil) != (len(c.want) == 0) {
				t.Fatalf("error %v", err)
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q, want one with %q", err, part)
				}
			}
		})
	}
	if err := (*agent.Agent)(nil).Check(); err == nil {
		t.Error("a nil agent is fine")
	}
}

func TestInfo(t *testing.T) {
	t.Parallel()
	a := &agent.Agent{Name: "a", Description: "d", Tools: []*agent.Tool{raw("t", `1`)}}
	equal(t, "info", a.Info("pool"), turn.AgentInfo{Name: "a", Description: "d", Pool: "pool", Tools: []turn.ToolInfo{{Name: "t"}}})
	if (&agent.Agent{}).Info("").Tools == nil {
		t.Error("no tools are null on the wire")
	}
}
