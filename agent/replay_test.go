package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agenttest"
	"github.com/turnpool/turnpool/session"
)

// counted is an agent whose model calls and tool calls are counted, over all runs.
type counted struct {
	agent  *agent.Agent
	mu     sync.Mutex
	models map[int]int    // by step
	tools  map[string]int // by token
}

// newCounted is an agent of five model calls and four tools: one, one, two at
// once, and an answer in two parts.
func newCounted() *counted {
	c := &counted{models: map[int]int{}, tools: map[string]int{}}
	work := &agent.Tool{Name: "work", Execute: func(_ context.Context, call *agent.Call) (json.RawMessage, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tools[call.Token]++
		return json.Marshal("did " + string(call.Args))
	}}
	steps := []*agent.ModelResponse{
		agenttest.Calls("work", `1`),
		{Items: []agent.Item{{Kind: agent.ItemThought, Text: "hm"}, {Kind: agent.ItemText, Text: "wait"},
			{Kind: agent.ItemCall, CallID: "call_1", Name: "work", Args: json.RawMessage(`2`)}}, Usage: agenttest.Text("").Usage},
		agenttest.Calls("work", `3`, "work", `3`),
		agenttest.Calls("unknown", `4`),
		agenttest.Text("done"),
	}
	c.agent = &agent.Agent{Sequential: true, Tools: []*agent.Tool{work}, Model: &agenttest.Model{
		ChunkSize: 2,
		Answer: func(_ context.Context, req *agent.ModelRequest) (*agent.ModelResponse, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.models[req.Step]++
			return steps[req.Step-1], nil
		},
	}}
	return c
}

// ledgerOf is what a ledger says, without ids and times.
func ledgerOf(events []session.Event) (lines []string) {
	for _, e := range events {
		line := e.Type()
		switch e := e.(type) {
		case *session.User:
			line += " " + e.Text + " " + e.ID
		case *session.Assistant:
			line += " " + e.Text
		case *session.ToolCall:
			line += " " + string(e.Args)
		case *session.ToolResult:
			line += " " + string(e.Result) + e.Error
		case *session.ModelStart:
			line += fmt.Sprint(" ", e.StepIndex, " ", e.MessageCount)
		case *session.InvocationStart:
			line += fmt.Sprint(" ", e.Attempt)
		}
		lines = append(lines, line)
	}
	return lines
}

// streamed are the events of a stream that a log keeps, without deltas.
func (s *sink) streamed() (events []session.Event) {
	for _, e := range s.all() {
		if e, ok := e.(session.Event); ok {
			events = append(events, e)
		}
	}
	return events
}

// A turn of five model calls and four tools is cut after each event of its stream,
// and run again on what was left: nothing that was finished is done twice, every
// call has the token that it had, and the ledger is the same.
func TestReplayAfterEachEvent(t *testing.T) {
	t.Parallel()
	whole := newCounted()
	first := newOne(whole.agent, "go")
	want := first.do(t)
	stream := first.sink.streamed()
	equal(t, "tools run", len(whole.tools), 4)
	for cut := range len(stream) + 1 {
		kept := stream[:agent.Finished(stream[:cut])]
		finished := of[*session.ToolResult](kept)
		answers := of[*session.ModelEnd](kept)

		again := newCounted()
		o := newOne(again.agent, "go")
		o.Attempt = 2
		o.Replay = kept
		out := o.do(t)

		where := fmt.Sprintf("cut after %d, kept %d: ", cut, len(kept))
		equal(t, where+"status", out.Status, session.StatusCompleted)
		wantLedger := ledgerOf(want.Events)
		if len(kept) == 0 {
			wantLedger[1] = "invocation_start 2"
		}
		equal(t, where+"ledger", ledgerOf(out.Events), wantLedger)
		equal(t, where+"usage", out.Usage, want.Usage)
		equal(t, where+"output", out.Output.Text, "done")
		for step := 1; step <= 5; step++ {
			calls := 1
			if step <= len(answers) {
				calls = 0
			}
			equal(t, where+fmt.Sprint("calls of the model at step ", step), again.models[step], calls)
		}
		ran := 0
		for token, n := range again.tools {
			ran += n
			if whole.tools[token] != 1 {
				t.Errorf("%sa call has another token", where)
			}
		}
		unknown := 0
		for _, r := range finished {
			if r.Name == "unknown" {
				unknown++
			}
		}
		equal(t, where+"tools run", ran, 4-(len(finished)-unknown))
		paired(t, out.Events)
		// What was kept is not streamed again; ids stay.
		equal(t, where+"streamed", len(o.sink.streamed()), len(stream)-len(kept))
		for i, e := range kept {
			if e.Type() != session.TypeToolResult && out.Events[i+1].Base().ID != e.Base().ID {
				t.Errorf("%sevent %d has another id", where, i)
				break
			}
		}
	}
}

// The same for a turn that answers calls, goes on, and stops again; cut after each
// event.
func TestReplayAfterResumption(t *testing.T) {
	t.Parallel()
	a := guestAgent(agenttest.NewModel(threeCalls()))
	ledger := asked(t, a)
	var ran int
	build := func(ledger []session.Event) *one {
		b := guestAgent(agenttest.NewModel(agenttest.Calls("lookup", `{}`), agenttest.Calls("ask", `{"q":"sure?"}`)))
		b.Sequential = true
		b.Tools[1] = agent.NewYieldingTool("book", "", func(_ context.Context, q question, n night) (string, error) {
			ran++
			return q.Q + n.Night, nil
		})
		return later(2, b, ledger, "hurry", "call_3", `{"night":"Friday"}`)
	}
	first := build(ledger)
	want := first.do(t)
	equal(t, "status", want.Status, session.StatusYieldedTool)
	equal(t, "ran", ran, 1)
	stream := first.sink.streamed()
	for cut := range len(stream) + 1 {
		kept := stream[:agent.Finished(stream[:cut])]
		o := build(ledger)
		o.Replay, ran = kept, 0
		out := o.do(t)
		where := fmt.Sprintf("cut after %d, kept %d: ", cut, len(kept))
		equal(t, where+"status", out.Status, session.StatusYieldedTool)
		equal(t, where+"ledger", ledgerOf(out.Events), ledgerOf(want.Events))
		equal(t, where+"index", of[*session.InvocationYield](out.Events)[0].YieldIndex, 1)
		wantRan := 1
		for _, r := range of[*session.ToolResult](kept) {
			if r.Name == "book" && r.Error == "" {
				wantRan = 0
			}
		}
		equal(t, where+"ran", ran, wantRan)
		equal(t, where+"streamed", len(o.sink.streamed()), len(stream)-len(kept))
	}
}

// A call that was cut off with its run has no result that a later attempt could
// take for one.
func TestCutOffCallIsNotFinished(t *testing.T) {
	t.Parallel()
	gate := agenttest.NewGate()
	model := agenttest.NewModel(agenttest.Calls("quick", `{}`, "slow", `{}`))
	o := newOne(&agent.Agent{Model: model, Tools: []*agent.Tool{
		tool("quick", func(context.Context) error { return nil }), gated("slow", gate),
	}}, "go")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := o.start(ctx)
	o.sink.awaitResult(t, "call_1")
	await(t, gate.Arrived("slow"))
	cancel(errBye)
	out := await(t, done)
	equal(t, "status", out.Status, session.StatusAborted)
	paired(t, out.Events)
	stream := o.sink.streamed()
	equal(t, "results in the stream", callIDs(stream), "call_1")
	kept := stream[:agent.Finished(stream)]
	equal(t, "kept", types(kept), "invocation_start model_start model_end tool_call tool_call tool_result")
}

// An answer of which a part is missing was not finished.
func TestFinished(t *testing.T) {
	t.Parallel()
	start, end := &session.ModelStart{StepIndex: 1}, &session.ModelEnd{StepIndex: 1, Items: 2}
	failed := &session.ModelEnd{StepIndex: 1, Error: &session.Error{Code: "model_error"}}
	call, result := &session.ToolCall{CallID: "c"}, &session.ToolResult{CallID: "c"}
	opened := &session.InvocationStart{}
	for name, c := range map[string]struct {
		events []session.Event
		want   int
	}{
		"nothing":             {nil, 0},
		"opened":              {[]session.Event{opened}, 0},
		"a call closed":       {[]session.Event{opened, result}, 0},
		"model asked":         {[]session.Event{opened, start}, 0},
		"half an answer":      {[]session.Event{opened, start, end, call}, 0},
		"an answer":           {[]session.Event{opened, start, end, call, call}, 5},
		"a result":            {[]session.Event{opened, start, end, call, call, result}, 6},
		"asked again":         {[]session.Event{opened, start, end, call, call, result, start}, 6},
		"a failed call":       {[]session.Event{opened, start, end, call, call, result, start, failed}, 6},
		"nothing to say":      {[]session.Event{opened, start, &session.ModelEnd{}}, 3},
		"answers of people":   {[]session.Event{opened, &session.InvocationResume{}}, 0},
		"an answer acted on":  {[]session.Event{opened, &session.InvocationResume{}, result}, 3},
		"the end of the turn": {[]session.Event{opened, start, &session.ModelEnd{Items: 1}, &session.Assistant{}, &session.InvocationEnd{}}, 4},
	} {
		if got := agent.Finished(c.events); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
