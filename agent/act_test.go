package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agenttest"
	"github.com/turnpool/turnpool/session"
)

// All calls of a step start before any has to finish. The stream has their
// results as they come, the ledger and the model in the model's order.
func TestCallsRunInParallel(t *testing.T) {
	t.Parallel()
	gate := agenttest.NewGate()
	model := agenttest.NewModel(agenttest.Calls("a", `{}`, "b", `{}`, "c", `{}`), agenttest.Text("done"))
	o := newOne(&agent.Agent{Model: model, Tools: []*agent.Tool{gated("a", gate), gated("b", gate), gated("c", gate)}}, "go")
	done := o.start(t.Context())
	for _, name := range []string{"a", "b", "c"} {
		await(t, gate.Arrived(name))
	}
	for i, name := range []string{"c", "a", "b"} {
		gate.Open(name)
		o.sink.awaitResult(t, []string{"call_3", "call_1", "call_2"}[i])
	}
	out := await(t, done)

	equal(t, "stream", callIDs(o.sink.all()), "call_3 call_1 call_2")
	equal(t, "ledger", callIDs(out.Events), "call_1 call_2 call_3")
	equal(t, "model", callIDs(model.Requests()[1].Conversation), "call_1 call_2 call_3")
}

// callIDs are the calls of the results among events, in order.
func callIDs[E interface{ Type() string }](events []E) string {
	var ids []string
	for _, e := range events {
		if result, ok := any(e).(*session.ToolResult); ok {
			ids = append(ids, result.CallID)
		}
	}
	return strings.Join(ids, " ")
}

func TestSequentialCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := agenttest.NewGate()
		model := agenttest.NewModel(agenttest.Calls("b", `{}`, "a", `{}`), agenttest.Text("done"))
		o := newOne(&agent.Agent{Model: model, Sequential: true, Tools: []*agent.Tool{gated("a", gate), gated("b", gate)}}, "go")
		done := o.start(t.Context())
		synctest.Wait()
		await(t, gate.Arrived("b"))
		select {
		case <-gate.Arrived("a"):
			t.Error("the second call started before the first one had ended")
		default:
		}
		gate.Open("b")
		await(t, gate.Arrived("a"))
		equal(t, "results so far", callIDs(o.sink.all()), "call_1")
		gate.Open("a")
		equal(t, "ledger", callIDs(await(t, done).Events), "call_1 call_2")
	})
}

// A sequential step that was stopped starts no more calls, and closes them.
func TestSequentialCallsStop(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	ran := false
	model := agenttest.NewModel(agenttest.Calls("first", `{}`, "second", `{}`))
	o := newOne(&agent.Agent{Model: model, Sequential: true, Tools: []*agent.Tool{
		tool("first", func(context.Context) error { cancel(errBye); return nil }),
		tool("second", func(context.Context) error { ran = true; return nil }),
	}}, "go")
	out := await(t, o.start(ctx))
	stoppedAs(t, out, session.StatusAborted, "", errBye)
	if ran {
		t.Error("the second call ran")
	}
}

// Whatever goes wrong with a call is a result that the model sees, and the turn
// goes on.
func TestToolFaults(t *testing.T) {
	t.Parallel()
	type args struct {
		N int `json:"n"`
	}
	for name, c := range map[string]struct {
		tool   *agent.Tool
		call   string // the name that the model calls
		args   string
		result string
		err    string // a part of the error
	}{
		"error":              {tool: tool("t", func(context.Context) error { return errors.New("no such booking") }), err: "no such booking"},
		"panic":              {tool: tool("t", func(context.Context) error { panic("out of range") }), err: "panic: out of range"},
		"unknown tool":       {tool: raw("t", `1`), call: "u", err: `no such tool: "u"; there are: t`},
		"args are cut off":   {tool: tool("t", nil), args: `{"q": "tru`, err: "not a JSON object"},
		"args are no object": {tool: tool("t", nil), args: `[1]`, err: "not fit the schema"},
		"args miss a field": {tool: agent.NewTool("t", "", func(context.Context, args) (int, error) { return 1, nil }),
			args: `{}`, err: `"n"`},
		"args of a wrong type": {tool: agent.NewTool("t", "", func(context.Context, args) (int, error) { return 1, nil }),
			args: `{"n":"x"}`, err: "not fit the schema"},
		"an arg too many": {tool: agent.NewTool("t", "", func(context.Context, args) (int, error) { return 1, nil }),
			args: `{"n":1,"m":2}`, err: `"m"`},
		"args that Go cannot hold": {tool: agent.NewTool("t", "", func(context.Context, args) (int, error) { return 1, nil }),
			args: `{"n":99999999999999999999}`, err: "arguments: "},
		"result is no JSON":      {tool: raw("t", `{oops`), err: "not JSON"},
		"result does not encode": {tool: agent.NewTool("t", "", func(context.Context, noArgs) (any, error) { return func() {}, nil }), err: "unsupported type"},
		"result is empty":        {tool: raw("t", ``), result: `null`},
		"no args":                {tool: tool("t", func(context.Context) error { return nil }), args: "  ", result: `"done"`},
		"args for no schema":     {tool: raw("t", `1`), args: `oops`, result: `1`},
		"goexit":                 {tool: tool("t", func(context.Context) error { runtime.Goexit(); return nil }), err: "ended without an answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.call == "" {
				c.call = "t"
			}
			if c.args == "" {
				c.args = "{}"
			}
			model := agenttest.NewModel(agenttest.Calls(c.call, c.args, "fine", `{}`), agenttest.Text("done"))
			o := newOne(&agent.Agent{Model: model, Tools: []*agent.Tool{c.tool, raw("fine", `"ok"`)}}, "go")
			if name == "unknown tool" {
				o.Agent.Tools = o.Agent.Tools[:1]
			}
			out := o.do(t)
			equal(t, "status", out.Status, session.StatusCompleted)
			paired(t, out.Events)
			result := of[*session.ToolResult](model.Requests()[1].Conversation)[0]
			equal(t, "result", string(result.Result), c.result)
			if (result.Error == "") != (c.err == "") || !strings.Contains(result.Error, c.err) {
				t.Errorf("error %q, want one with %q", result.Error, c.err)
			}
			if result.TimedOut {
				t.Error("timed out")
			}
			if !json.Valid(of[*session.ToolCall](out.Events)[0].Args) {
				t.Error("the ledger's args are no JSON")
			}
		})
	}
}

func TestUnknownToolWhenThereIsNone(t *testing.T) {
	t.Parallel()
	model := agenttest.NewModel(agenttest.Calls("u", `{}`), agenttest.Text("done"))
	out := newOne(&agent.Agent{Model: model}, "go").do(t)
	equal(t, "error", of[*session.ToolResult](out.Events)[0].Error, `no such tool: "u"; there are: none`)
}

// The schema of any tool is checked, not only of those that NewTool makes.
func TestSchemaOfAToolByHand(t *testing.T) {
	t.Parallel()
	ran := 0
	byHand := agent.NewTool("t", "", func(context.Context, struct {
		N int `json:"n"`
	}) (int, error) {
		return 0, nil
	})
	byHand.Execute = func(context.Context, *agent.Call) (json.RawMessage, error) { ran++; return json.RawMessage(`1`), nil }
	model := agenttest.NewModel(agenttest.Calls("t", `{"n":"x"}`, "t", `{"n":1}`), agenttest.Text("done"))
	o := newOne(&agent.Agent{Model: model, Tools: []*agent.Tool{byHand}}, "go")
	results := of[*session.ToolResult](o.do(t).Events)
	if !strings.Contains(results[0].Error, "not fit") || results[1].Error != "" || ran != 1 {
		t.Errorf("results %+v, %+v; ran %d times", results[0], results[1], ran)
	}
}

func explode() { panic("kaboom") }

func TestPanicIsLoggedOnceWithItsStack(t *testing.T) {
	t.Parallel()
	model := agenttest.NewModel(agenttest.Calls("t", `{}`), agenttest.Text("done"))
	o := newOne(&agent.Agent{Model: model, Tools: []*agent.Tool{tool("t", func(context.Context) error { explode(); return nil })}}, "go")
	out := o.do(t)
	isThePanic(t, o, "tool", "t")
	if result := of[*session.ToolResult](out.Events)[0]; strings.Contains(result.Error, ".go:") {
		t.Errorf("the model sees a stack: %s", result.Error)
	}
}

// isThePanic checks that the log has explode's panic once.
func isThePanic(t *testing.T, o *one, kind, name string) {
	t.Helper()
	lines := o.log.lines(t)
	if len(lines) != 1 {
		t.Fatalf("%d log lines: %v", len(lines), lines)
	}
	line := lines[0]
	equal(t, "line", []any{line["level"], line["msg"], line[kind], line["panic"], line["invocation"], line["session"]},
		[]any{"ERROR", kind + " panicked", name, "kaboom", invocation, "session_s"})
	if stack, _ := line["stack"].(string); !strings.Contains(stack, "agent_test.explode") {
		t.Errorf("stack: %s", stack)
	}
}

// A tool that panics after its turn has ended does not take the process down,
// and does not do so silently.
func TestPanicOfAToolLeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		late := tool("late", func(context.Context) error { <-release; explode(); return nil })
		o := newOne(&agent.Agent{Model: agenttest.NewModel(agenttest.Calls("late", `{}`)), Tools: []*agent.Tool{late}}, "go")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := o.start(ctx)
		synctest.Wait()
		cancel(errBye)
		await(t, done)
		close(release)
		synctest.Wait()
		isThePanic(t, o, "tool", "late")
	})
}

func TestToolTimeout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		own, agents time.Duration
		deaf        bool
		want        string
	}{
		"its own":         {own: time.Second, want: "timed out after 1s"},
		"its own, deaf":   {own: time.Second, deaf: true, want: "timed out after 1s"},
		"the agent's":     {agents: 2 * time.Second, want: "timed out after 2s"},
		"its own counts":  {own: 3 * time.Second, agents: time.Second, want: "timed out after 3s"},
		"longer than any": {own: time.Hour, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				deaf := make(chan struct{})
				slow := tool("slow", func(ctx context.Context) error {
					if c.deaf {
						<-deaf
						return nil
					}
					select {
					case <-ctx.Done():
						return fmt.Errorf("gave up: %w", ctx.Err())
					case <-time.After(time.Minute / 2): // of the bubble's clock
						return nil
					}
				})
				slow.Timeout = c.own
				model := agenttest.NewModel(agenttest.Calls("slow", `{}`), agenttest.Text("done"))
				o := newOne(&agent.Agent{Model: model, ToolTimeout: c.agents, Tools: []*agent.Tool{slow}}, "go")
				out := o.do(t)
				close(deaf)
				equal(t, "status", out.Status, session.StatusCompleted)
				result := of[*session.ToolResult](model.Requests()[1].Conversation)[0]
				equal(t, "result", []any{result.Error, result.TimedOut, result.Result == nil}, []any{c.want, c.want != "", c.want != ""})
				synctest.Wait()
			})
		})
	}
}

// Call ids are the provider's, unless one is missing or taken: then it is
// minted, so that an id names one call in the whole session.
func TestCallIDs(t *testing.T) {
	t.Parallel()
	call := func(id string) agent.Item { return agent.Item{Kind: agent.ItemCall, CallID: id, Name: "t"} }
	model := agenttest.NewModel(
		&agent.ModelResponse{Items: []agent.Item{call("x"), call(""), call("x"), call("")}},
		&agent.ModelResponse{Items: []agent.Item{call("x"), call("y"), call("old")}},
		agenttest.Text("done"),
	)
	o := newOne(&agent.Agent{Model: model, Tools: []*agent.Tool{raw("t", `1`)}}, "go")
	o.Events = []session.Event{&session.ToolCall{CallID: "old"}, &session.ToolResult{CallID: "old"}}
	out := o.do(t)
	paired(t, out.Events)
	seen := map[string]bool{"old": true}
	minted := 0
	for _, c := range of[*session.ToolCall](out.Events) {
		if seen[c.CallID] {
			t.Errorf("id %s is there twice", c.CallID)
		}
		seen[c.CallID] = true
		if strings.HasPrefix(c.CallID, "call_") && len(c.CallID) == 5+24 {
			minted++
		}
	}
	equal(t, "minted ids", minted, 5)
	equal(t, "kept ids", []bool{seen["x"], seen["y"]}, []bool{true, true})
}

// tokens runs a turn whose model makes the given calls, one list a step, and
// returns the token of each, in the ledger's order.
func tokens(t *testing.T, invocationID string, steps ...*agent.ModelResponse) []string {
	t.Helper()
	var mu sync.Mutex
	byCall := map[string]string{}
	record := func(name string) *agent.Tool {
		return &agent.Tool{Name: name, Execute: func(_ context.Context, c *agent.Call) (json.RawMessage, error) {
			mu.Lock()
			defer mu.Unlock()
			byCall[c.ID] = c.Token
			return nil, nil
		}}
	}
	o := newOne(&agent.Agent{
		Model: agenttest.NewModel(append(steps, agenttest.Text("done"))...),
		Tools: []*agent.Tool{record("charge"), record("mail")},
	}, "go")
	o.InvocationID = invocationID
	var all []string
	for _, c := range of[*session.ToolCall](o.do(t).Events) {
		all = append(all, byCall[c.CallID])
	}
	return all
}

func TestTokens(t *testing.T) {
	t.Parallel()
	one := agenttest.Calls(
		"charge", `{"a":1,"b":2}`, "charge", `{"a": 1, "b": 2}`, "charge", `{"b":2,"a":1}`, "charge", `{"a":2}`, "mail", `{"a":1,"b":2}`)
	two := agenttest.Calls("charge", `{"a":1,"b":2}`)
	first := tokens(t, invocation, one, two)
	if len(first) != 6 {
		t.Fatalf("%d calls", len(first))
	}
	seen := map[string]bool{"": true}
	for i, token := range first {
		if seen[token] {
			t.Errorf("call %d has the token of another, or none: %q", i, token)
		}
		seen[token] = true
	}

	// Another attempt: new call ids, spacing and order of keys, the same calls.
	again := agenttest.Calls(
		"charge", `{"b": 2, "a": 1}`, "charge", `{"a":1,"b":2}`, "charge", `{"a":1,"b":2}`, "charge", `{ "a":2 }`, "mail", `{"b":2,"a":1}`)
	for i := range again.Items {
		again.Items[i].CallID = ""
	}
	equal(t, "tokens of another attempt", tokens(t, invocation, again, two), first)

	for _, token := range tokens(t, "inv_"+strings.Repeat("f", 32), one, two) {
		if seen[token] {
			t.Error("another turn has the same token")
		}
	}
}

// The tool, the ledger and the token have the same bytes of what a model wrote,
// also if it is not UTF-8.
func TestArgsAreWhatTheLedgerHas(t *testing.T) {
	t.Parallel()
	var seen json.RawMessage
	spy := &agent.Tool{Name: "t", Execute: func(_ context.Context, c *agent.Call) (json.RawMessage, error) {
		seen = c.Args
		return nil, nil
	}}
	model := agenttest.NewModel(agenttest.Calls("t", "{ \"a\" : \"x\xffy\\u0000<>\" }"), agenttest.Text("done"))
	out := newOne(&agent.Agent{Model: model, Tools: []*agent.Tool{spy}}, "go").do(t)
	data, err := session.Encode(of[*session.ToolCall](out.Events)[0])
	if err != nil {
		t.Fatal(err)
	}
	e, err := session.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "args", string(seen), "{\"a\":\"x\uFFFDy\\u0000<>\"}")
	equal(t, "args of the ledger", string(e.(*session.ToolCall).Args), string(seen))
}
