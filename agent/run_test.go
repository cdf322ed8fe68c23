package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agenttest"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

func TestPlainTurn(t *testing.T) {
	t.Parallel()
	model := agenttest.NewModel(agenttest.Text("Hello there"))
	model.ChunkSize = 6
	o := newOne(&agent.Agent{Model: model}, "hi")
	o.Base = session.Base{Epoch: "e", Version: 3, EventCount: 7}
	out := o.do(t)

	equal(t, "status", out.Status, session.StatusCompleted)
	equal(t, "stream", types(o.sink.all()),
		"invocation_start model_start assistant_delta assistant_delta model_end assistant invocation_end")
	equal(t, "ledger", types(out.Events), "user invocation_start model_start model_end assistant invocation_end")
	if out.Error != nil || out.Err != nil {
		t.Errorf("errors: %v, %v", out.Error, out.Err)
	}

	user := out.Events[0].(*session.User)
	equal(t, "user event", []any{user.ID, user.CreatedAt, user.Text}, []any{turn.UserEventID(invocation), int64(500), "hi"})
	start := out.Events[1].(*session.InvocationStart)
	equal(t, "start", []any{start.SessionID, start.Epoch, start.Version, start.EventCount, start.Attempt},
		[]any{"session_s", "e", int64(3), int64(7), 1})
	end := out.Events[5].(*session.InvocationEnd)
	equal(t, "end", end.Reason, session.StatusCompleted)

	ids := map[string]bool{}
	for _, e := range out.Events {
		base := e.Base()
		if ids[base.ID] || base.ID == "" || base.InvocationID != invocation || base.AgentName != "concierge" || base.CreatedAt == 0 {
			t.Errorf("%s: base %+v", e.Type(), base)
		}
		ids[base.ID] = true
	}
	answer := out.Events[4].(*session.Assistant)
	equal(t, "output text", out.Output.Text, "Hello there")
	equal(t, "output items", []session.Event(out.Output.Items), []session.Event{answer})
}

func TestToolTurn(t *testing.T) {
	t.Parallel()
	type args struct {
		Ref string `json:"ref"`
	}
	type stay struct {
		Nights int `json:"nights"`
	}
	lookup := agent.NewTool("lookup_stay", "Look up a booking", func(ctx context.Context, in args) (stay, error) {
		call := agent.CallOf(ctx)
		if in.Ref != "B-42" || call.ID != "call_1" || call.Tool != "lookup_stay" || call.AgentName != "concierge" ||
			call.InvocationID != invocation || call.SessionID != "session_s" || string(call.Args) != `{"ref":"B-42"}` {
			return stay{}, fmt.Errorf("called with %+v, %+v", in, call)
		}
		return stay{Nights: 3}, nil
	})
	model := agenttest.NewModel(
		agenttest.Calls("lookup_stay", `{ "ref": "B-42" }`),
		&agent.ModelResponse{Items: []agent.Item{
			{Kind: agent.ItemThought, Text: "three", ProviderContext: &session.ProviderContext{Provider: "p", Data: json.RawMessage(`1`)}},
			{Kind: agent.ItemText, Text: "Three nights."},
		}, FinishReason: "stop"},
	)
	o := newOne(&agent.Agent{Model: model, Instructions: "Be kind.", Tools: []*agent.Tool{lookup}}, "how long?")
	out := o.do(t)

	equal(t, "stream", types(o.sink.all()), "invocation_start "+
		"model_start model_end tool_call tool_result "+
		"model_start thought_delta assistant_delta model_end thought assistant invocation_end")
	equal(t, "ledger", types(out.Events), "user invocation_start "+
		"model_start model_end tool_call tool_result "+
		"model_start model_end thought assistant invocation_end")
	result := of[*session.ToolResult](out.Events)[0]
	equal(t, "result", []string{result.CallID, result.Name, string(result.Result), result.Error},
		[]string{"call_1", "lookup_stay", `{"nights":3}`, ""})
	equal(t, "provider context", of[*session.Thought](out.Events)[0].ProviderContext.Provider, "p")
	equal(t, "args", string(of[*session.ToolCall](out.Events)[0].Args), `{"ref":"B-42"}`)

	starts, ends := of[*session.ModelStart](out.Events), of[*session.ModelEnd](out.Events)
	equal(t, "steps", []int{starts[0].StepIndex, ends[0].StepIndex, starts[1].StepIndex, ends[1].StepIndex}, []int{1, 1, 2, 2})
	equal(t, "message counts", []int{starts[0].MessageCount, starts[1].MessageCount}, []int{1, 3})
	equal(t, "tools told of", starts[0].Tools, []session.ToolSummary{{Name: "lookup_stay", Description: "Look up a booking"}})
	equal(t, "finish reasons", []string{ends[0].FinishReason, ends[1].FinishReason}, []string{"tool_calls", "stop"})
	if ends[0].DurationMs <= 0 {
		t.Errorf("duration %d", ends[0].DurationMs)
	}

	requests := model.Requests()
	equal(t, "what the model saw", []string{types(requests[0].Conversation), types(requests[1].Conversation)},
		[]string{"user", "user tool_call tool_result"})
	equal(t, "request", []any{requests[1].Agent, requests[1].Step, requests[1].Instructions, requests[1].Tools[0].Name},
		[]any{"concierge", 2, "Be kind.", "lookup_stay"})
}

// A model sees the conversation so far, without the events that are no part of
// it.
func TestConversation(t *testing.T) {
	t.Parallel()
	model := agenttest.NewModel(agenttest.Text("fine"))
	first := newOne(&agent.Agent{Model: model}, "how are you?").do(t)
	second := newOne(&agent.Agent{Model: model}, "and now?")
	second.Events = first.Events
	second.do(t)
	equal(t, "conversation", types(model.Requests()[1].Conversation), "user assistant user")
	equal(t, "last message", agenttest.Message(model.Requests()[1]), "and now?")
}

func TestMedia(t *testing.T) {
	t.Parallel()
	model := agenttest.NewModel(agenttest.Text("a cat"))
	o := newOne(&agent.Agent{Model: model}, "what is this?")
	o.Input.Message.Media = []session.Media{{Type: "image", Source: session.MediaSource{Type: "url", URL: "https://x/cat"}}}
	out := o.do(t)
	equal(t, "media", out.Events[0].(*session.User).Media, o.Input.Message.Media)
}

func TestMaxSteps(t *testing.T) {
	t.Parallel()
	calls := func(int) *agent.ModelResponse { return agenttest.Calls("t", `{}`, "t", `{}`) }
	for _, c := range []struct {
		max, answersAt, wantSteps int
		want                      session.Status
	}{
		{max: 1, answersAt: 1, wantSteps: 1, want: session.StatusCompleted},
		{max: 1, answersAt: 2, wantSteps: 1, want: session.StatusMaxSteps},
		{max: 3, answersAt: 3, wantSteps: 3, want: session.StatusCompleted},
		{max: 3, answersAt: 4, wantSteps: 3, want: session.StatusMaxSteps},
		{max: 0, answersAt: 100, wantSteps: agent.DefaultMaxSteps, want: session.StatusMaxSteps},
	} {
		t.Run(fmt.Sprintf("%d of %d", c.answersAt, c.max), func(t *testing.T) {
			t.Parallel()
			model := &agenttest.Model{Answer: func(_ context.Context, req *agent.ModelRequest) (*agent.ModelResponse, error) {
				if req.Step == c.answersAt {
					return agenttest.Text("done"), nil
				}
				return calls(req.Step), nil
			}}
			o := newOne(&agent.Agent{Model: model, MaxSteps: c.max, Tools: []*agent.Tool{raw("t", `1`)}}, "go")
			out := o.do(t)
			equal(t, "status", out.Status, c.want)
			equal(t, "model calls", model.Calls(), c.wantSteps)
			equal(t, "reason", out.Events[len(out.Events)-1].(*session.InvocationEnd).Reason, c.want)
			paired(t, out.Events)
			equal(t, "results", len(of[*session.ToolResult](out.Events)), len(of[*session.ToolCall](out.Events)))
			if !out.Status.Commits() {
				t.Errorf("%s does not commit", out.Status)
			}
		})
	}
}

func TestUsageRollsUp(t *testing.T) {
	t.Parallel()
	third := agenttest.Text("done")
	third.Usage = nil // a provider that does not say
	second := agenttest.Calls("t", `{}`)
	second.Usage = &session.ModelUsage{InputTokens: 100, OutputTokens: 20, CachedTokens: 40, CacheWriteTokens: 3, ReasoningTokens: 7}
	model := agenttest.NewModel(agenttest.Calls("t", `{}`), second, third)
	out := newOne(&agent.Agent{Model: model, Tools: []*agent.Tool{raw("t", `1`)}}, "go").do(t)
	equal(t, "usage", out.Usage, &session.Usage{
		ModelCalls: 3, TotalInputTokens: 110, TotalOutputTokens: 25, TotalCachedTokens: 40, TotalCacheWriteTokens: 3, TotalReasoningTokens: 7,
		Models: []session.UsageOfModel{{ModelName: "agenttest", Calls: 3, ModelUsage: session.ModelUsage{
			InputTokens: 110, OutputTokens: 25, CachedTokens: 40, CacheWriteTokens: 3, ReasoningTokens: 7,
		}}},
	})
	equal(t, "of the second call", of[*session.ModelEnd](out.Events)[1].Usage, second.Usage)
}

// An answer to a call that never was changes nothing.
func TestAnswersWithNothingPending(t *testing.T) {
	t.Parallel()
	model := agenttest.NewModel(agenttest.Text("never"))
	o := newOne(&agent.Agent{Model: model}, "")
	o.Input.Tools = []turn.ToolAnswer{{CallID: "call_x", Input: json.RawMessage(`1`)}}
	out := o.do(t)
	equal(t, "status", out.Status, session.StatusError)
	equal(t, "code", out.Error.Code, turn.CodeUnknownCall)
	equal(t, "model calls", model.Calls(), 0)
	equal(t, "stream", types(o.sink.all()), "invocation_start invocation_end")
	if !strings.Contains(out.Error.Message, "call_x") || out.Error.Retryable {
		t.Errorf("error: %+v", out.Error)
	}
	if out.Usage != nil {
		t.Errorf("usage of no call: %+v", out.Usage)
	}
}

func TestStateWrites(t *testing.T) {
	t.Parallel()
	model := agenttest.NewModel(agenttest.Text("ok"))
	o := newOne(&agent.Agent{Model: model}, "hi")
	o.State = session.State{"same": json.RawMessage(`{"a":1}`), "old": json.RawMessage(`"x"`), "gone": json.RawMessage(`1`)}
	o.Input.State = session.State{
		"same": json.RawMessage(`{ "a": 1.0 }`), "old": json.RawMessage(`"y"`), "gone": nil, "new": json.RawMessage(`null`), "never": nil,
	}
	out := o.do(t)
	equal(t, "stream", types(o.sink.all()), "invocation_start state_change model_start assistant_delta model_end assistant invocation_end")
	change := of[*session.StateChange](out.Events)[0]
	equal(t, "scope and source", []string{change.Scope, change.Source}, []string{"session", "direct"})
	equal(t, "changes", change.Changes, []session.Change{
		{Key: "gone", OldValue: json.RawMessage(`1`)},
		{Key: "new", NewValue: json.RawMessage(`null`)},
		{Key: "old", OldValue: json.RawMessage(`"x"`), NewValue: json.RawMessage(`"y"`)},
	})

	same := newOne(&agent.Agent{Model: model}, "hi")
	same.State = session.State{"k": json.RawMessage(`[1, 2]`)}
	same.Input.State = session.State{"k": json.RawMessage(`[1,2]`)}
	equal(t, "changes of an equal write", len(of[*session.StateChange](same.do(t).Events)), 0)
}

func TestEmptyAnswer(t *testing.T) {
	t.Parallel()
	out := newOne(&agent.Agent{Model: agenttest.NewModel(&agent.ModelResponse{})}, "hi").do(t)
	equal(t, "status", out.Status, session.StatusCompleted)
	equal(t, "ledger", types(out.Events), "user invocation_start model_start model_end invocation_end")
	if out.Output.Items == nil {
		t.Error("output.items is nil, which is null on the wire")
	}
}

// What was finished must be safe before the next thing starts.
func TestFlushBeforeToolsAndModels(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var journal []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		journal = append(journal, what)
	}
	model := &agenttest.Model{Answer: func(_ context.Context, req *agent.ModelRequest) (*agent.ModelResponse, error) {
		note(fmt.Sprintf("model %d", req.Step))
		if req.Step == 3 {
			return agenttest.Text("done"), nil
		}
		return agenttest.Calls("t", `{}`, "t", `{}`), nil
	}}
	o := newOne(&agent.Agent{Model: model, Tools: []*agent.Tool{tool("t", func(context.Context) error {
		note("tool")
		return nil
	})}}, "go")
	o.sink.flush = func(context.Context, int) error {
		all := o.sink.all()
		note("flush after " + all[len(all)-1].Type())
		return nil
	}
	o.do(t)
	equal(t, "journal", journal, []string{
		"model 1", "flush after tool_call", "tool", "tool", "flush after tool_result",
		"model 2", "flush after tool_call", "tool", "tool", "flush after tool_result",
		"model 3",
	})
}

func TestFlushErrorEndsTheRun(t *testing.T) {
	t.Parallel()
	for nth, want := range map[int]string{
		1: "invocation_start model_start model_end tool_call invocation_end",
		2: "invocation_start model_start model_end tool_call tool_result invocation_end",
	} {
		t.Run(fmt.Sprint(nth), func(t *testing.T) {
			t.Parallel()
			o := newOne(&agent.Agent{
				Model: agenttest.NewModel(agenttest.Calls("t", `{}`)), Tools: []*agent.Tool{raw("t", `1`)},
			}, "go")
			broken := errors.New("the log has a secret fault")
			o.sink.flush = func(_ context.Context, n int) error {
				if n == nth {
					return broken
				}
				return nil
			}
			out := o.do(t)
			equal(t, "stream", types(o.sink.all()), want)
			equal(t, "status", out.Status, session.StatusError)
			equal(t, "code", out.Error.Code, turn.CodeInternal)
			if !errors.Is(out.Err, broken) || strings.Contains(out.Error.Message, "secret") {
				t.Errorf("err %v, told %q", out.Err, out.Error.Message)
			}
		})
	}
}

// Runs share an agent and its tools.
func TestOneAgentManyRuns(t *testing.T) {
	t.Parallel()
	model := agenttest.NewModel(agenttest.Calls("t", `{}`, "t", `{}`), agenttest.Text("done"))
	a := &agent.Agent{Name: "shared", Model: model, Tools: []*agent.Tool{tool("t", func(context.Context) error { return nil })}}
	var all []<-chan agent.Outcome
	for range 20 {
		all = append(all, newOne(a, "go").start(t.Context()))
	}
	for _, c := range all {
		out := await(t, c)
		equal(t, "status", out.Status, session.StatusCompleted)
		paired(t, out.Events)
	}
	equal(t, "model calls", model.Calls(), 40)
}

// The ledger's part of a run does not change under those who hold it.
func TestRequestsDoNotShareTheirEnd(t *testing.T) {
	t.Parallel()
	model := agenttest.NewModel(agenttest.Calls("t", `{}`), agenttest.Calls("t", `{}`), agenttest.Text("done"))
	newOne(&agent.Agent{Model: model, Tools: []*agent.Tool{raw("t", `1`)}}, "go").do(t)
	requests := model.Requests()
	for i, req := range requests {
		grown := append(slices.Clip(req.Conversation), &session.User{})
		equal(t, "length", len(grown), 2*i+2)
	}
	equal(t, "last conversation", types(requests[2].Conversation), "user tool_call tool_result tool_call tool_result")
}
