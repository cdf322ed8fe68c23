package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agenttest"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

type question struct {
	Q string `json:"q"`
}

type night struct {
	Night string `json:"night"`
}

// guestAgent asks for two nights, and looks something up beside, in its first
// step; then it answers.
func guestAgent(model *agenttest.Model) *agent.Agent {
	return &agent.Agent{Model: model, Tools: []*agent.Tool{
		agent.NewQuestion[question, night]("ask", "asks the guest"),
		agent.NewYieldingTool("book", "books a night", func(_ context.Context, q question, n night) (string, error) {
			return q.Q + ": " + n.Night, nil
		}),
		tool("lookup", func(context.Context) error { return nil }),
	}}
}

func threeCalls() *agent.ModelResponse {
	return agenttest.Calls("ask", `{"q":"when?"}`, "lookup", `{}`, "book", `{"q":"which?"}`)
}

// asked returns a run that stopped, and what it left in the ledger.
func asked(t *testing.T, a *agent.Agent) []session.Event {
	t.Helper()
	out := newOne(a, "book").do(t)
	equal(t, "status", out.Status, session.StatusYieldedTool)
	return out.Events
}

// later returns a run of a later turn on a ledger, which answers calls, given as
// call id, input, call id, input …
func later(n int, a *agent.Agent, ledger []session.Event, message string, answers ...string) *one {
	o := newOne(a, message)
	o.InvocationID = fmt.Sprintf("inv_%032d", n)
	o.Events = ledger
	for i := 0; i+1 < len(answers); i += 2 {
		o.Input.Tools = append(o.Input.Tools, turn.ToolAnswer{CallID: answers[i], Input: json.RawMessage(answers[i+1])})
	}
	return o
}

// told is what a model was told in a request, an event a line.
func told(req *agent.ModelRequest) string {
	var lines []string
	for _, e := range req.Conversation {
		switch e := e.(type) {
		case *session.User:
			lines = append(lines, "user "+e.Text)
		case *session.Assistant:
			lines = append(lines, "assistant "+e.Text)
		case *session.ToolCall:
			lines = append(lines, "call "+e.CallID)
		case *session.ToolResult:
			lines = append(lines, strings.TrimSpace("result "+e.CallID+" "+string(e.Result)+e.Error))
		}
	}
	return strings.Join(lines, "\n")
}

// A step stops when its other calls have finished.
func TestYield(t *testing.T) {
	t.Parallel()
	model := agenttest.NewModel(threeCalls())
	o := newOne(guestAgent(model), "book")
	out := o.do(t)
	equal(t, "stream", types(o.sink.all()),
		"invocation_start model_start model_end tool_call tool_call tool_call tool_result tool_yield tool_yield invocation_yield")
	equal(t, "ledger", types(out.Events), "user "+types(o.sink.all()))
	equal(t, "status", out.Status, session.StatusYieldedTool)
	equal(t, "yielded", out.Yielded, []turn.YieldedTool{
		{CallID: "call_1", Name: "ask", Args: json.RawMessage(`{"q":"when?"}`)},
		{CallID: "call_3", Name: "book", Args: json.RawMessage(`{"q":"which?"}`)},
	})
	for i, call := range of[*session.ToolCall](out.Events) {
		equal(t, call.Name+" yields", call.Yields, i != 1)
	}
	end := of[*session.InvocationYield](out.Events)[0]
	equal(t, "yielded ids", end.YieldedToolIDs, []string{"call_1", "call_3"})
	equal(t, "index", end.YieldIndex, 0)
	equal(t, "model calls", model.Calls(), 1)
	if out.Error != nil {
		t.Errorf("error: %v", out.Error)
	}
}

// Both answers at once: the tools go on with what the model and the guest said,
// and then the model does.
func TestResume(t *testing.T) {
	t.Parallel()
	model := agenttest.NewModel(threeCalls())
	a := guestAgent(model)
	ledger := asked(t, a)
	then := agenttest.NewModel(agenttest.Text("done"))
	a.Model = then
	o := later(2, a, ledger, "", "call_3", `{"night":"Friday"}`, "call_1", `{"night":"Monday"}`)
	out := o.do(t)
	equal(t, "status", out.Status, session.StatusCompleted)
	equal(t, "stream", types(o.sink.all()),
		"invocation_start invocation_resume tool_result tool_result model_start assistant_delta model_end assistant invocation_end")
	equal(t, "ledger", types(out.Events), "tool_input tool_input invocation_start invocation_resume tool_result tool_result model_start model_end assistant invocation_end")
	resume := of[*session.InvocationResume](out.Events)[0]
	equal(t, "resumes", []any{resume.Resumes, resume.YieldIndex}, []any{invocation, 0})
	equal(t, "told", told(then.Requests()[0]), `user book
call call_1
call call_2
call call_3
result call_1 {"night":"Monday"}
result call_2 "done"
result call_3 "which?: Friday"`)
	equal(t, "steps", then.Requests()[0].Step, 1)
	paired(t, append(ledger, out.Events...))
}

// A partial answer is kept, and no model is called; the last one goes on.
func TestPartialAnswers(t *testing.T) {
	t.Parallel()
	model := agenttest.NewModel(threeCalls())
	a := guestAgent(model)
	ledger := asked(t, a)
	o := later(2, a, ledger, "", "call_3", `{"night":"Friday"}`)
	partial := o.do(t)
	equal(t, "status", partial.Status, session.StatusYieldedTool)
	equal(t, "stream", types(o.sink.all()), "invocation_start invocation_yield")
	equal(t, "ledger", types(partial.Events), "tool_input invocation_start invocation_yield")
	equal(t, "still open", partial.Yielded, []turn.YieldedTool{{CallID: "call_1", Name: "ask", Args: json.RawMessage(`{"q":"when?"}`)}})
	equal(t, "index", of[*session.InvocationYield](partial.Events)[0].YieldIndex, 0)
	equal(t, "model calls", model.Calls(), 1)
	ledger = append(ledger, partial.Events...)

	again := later(3, a, ledger, "", "call_3", `{"night":"Sunday"}`).do(t)
	equal(t, "answered twice", again.Error.Code, turn.CodeAlreadyAnswered)

	a.Model = agenttest.NewModel(threeCalls(), agenttest.Text("done"))
	last := later(4, a, ledger, "", "call_1", `{"night":"Monday"}`).do(t)
	equal(t, "status", last.Status, session.StatusYieldedTool) // the model asks again
	equal(t, "index", of[*session.InvocationYield](last.Events)[0].YieldIndex, 1)
	var results []string
	for _, r := range of[*session.ToolResult](last.Events) {
		results = append(results, string(r.Result))
	}
	equal(t, "results", results, []string{`{"night":"Monday"}`, `"which?: Friday"`, `"done"`})
}

// An answer that cannot be taken ends the turn, and nothing has happened.
func TestAnswersRefused(t *testing.T) {
	t.Parallel()
	a := guestAgent(agenttest.NewModel(threeCalls()))
	ledger := asked(t, a)
	closed := append(ledger[:len(ledger):len(ledger)], later(2, a, ledger, "never mind").do(t).Events...)
	without := guestAgent(agenttest.NewModel(threeCalls()))
	without.Tools = without.Tools[1:]
	for name, c := range map[string]struct {
		agent  *agent.Agent
		ledger []session.Event
		callID string
		input  string
		code   string
		told   string
	}{
		"a call that never was":      {a, ledger, "call_9", `{}`, turn.CodeUnknownCall, "call_9"},
		"a call that did not ask":    {a, ledger, "call_2", `{}`, turn.CodeUnknownCall, "call_2"},
		"a call that was superseded": {a, closed, "call_1", `{"night":"x"}`, turn.CodeAlreadyAnswered, "call_1"},
		"an answer of a wrong form":  {a, ledger, "call_1", `{"nights":"x"}`, turn.CodeInvalidAnswer, "night"},
		"an answer that is no JSON":  {a, ledger, "call_1", `x`, turn.CodeInvalidAnswer, "not JSON"},
		"a tool that is gone":        {without, ledger, "call_1", `{"night":"x"}`, turn.CodeUnknownTool, "ask"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := later(3, c.agent, c.ledger, "", "call_3", `{"night":"Friday"}`, c.callID, c.input)
			if c.callID == "call_1" && name == "a call that was superseded" {
				o.Input.Tools = o.Input.Tools[1:]
			}
			claims := 0
			o.ClaimCalls = func(context.Context, []session.CallAnswer, []string) (session.ClaimedCalls, error) {
				claims++
				return session.ClaimedCalls{}, nil
			}
			out := o.do(t)
			equal(t, "status", out.Status, session.StatusError)
			equal(t, "code", out.Error.Code, c.code)
			equal(t, "stream", types(o.sink.all()), "invocation_start invocation_end")
			equal(t, "claims", claims, 0)
			if !strings.Contains(out.Error.Message, c.told) {
				t.Errorf("message: %s", out.Error.Message)
			}
		})
	}
}

// Others may have been faster than the answer.
func TestAnswersClaimed(t *testing.T) {
	t.Parallel()
	a := guestAgent(agenttest.NewModel(threeCalls()))
	ledger := asked(t, a)
	for name, c := range map[string]struct {
		claimed session.ClaimedCalls
		err     error
		code    string
	}{
		"too late":        {claimed: session.ClaimedCalls{TooLate: "call_1"}, code: turn.CodeAlreadyAnswered},
		"session is gone": {claimed: session.ClaimedCalls{Gone: true}, code: turn.CodeUnknownCall},
		"no store":        {err: errors.New("gone fishing"), code: turn.CodeInternal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := later(2, a, ledger, "", "call_1", `{"night":"x"}`, "call_3", `{"night":"y"}`)
			o.ClaimCalls = func(_ context.Context, answers []session.CallAnswer, supersede []string) (session.ClaimedCalls, error) {
				equal(t, "answers", len(answers), 2)
				equal(t, "supersede", len(supersede), 0)
				return c.claimed, c.err
			}
			out := o.do(t)
			equal(t, "code", out.Error.Code, c.code)
			equal(t, "stream", types(o.sink.all()), "invocation_start invocation_end")
		})
	}
}

// The turn that completes the answers takes over one that another turn has given,
// and leaves it in the ledger as that one's.
func TestTakesAnswersOver(t *testing.T) {
	t.Parallel()
	a := guestAgent(agenttest.NewModel(threeCalls()))
	ledger := asked(t, a)
	a.Model = agenttest.NewModel(agenttest.Text("done"))
	o := later(2, a, ledger, "", "call_3", `{"night":"Friday"}`)
	o.ClaimCalls = func(context.Context, []session.CallAnswer, []string) (session.ClaimedCalls, error) {
		held := func(callID, name, by, input string) session.PendingCall {
			return session.PendingCall{
				CallID: callID, Name: name, Args: json.RawMessage(`{"q":"?"}`), InvocationID: invocation,
				Hold: session.Hold{Holder: o.InvocationID, AnsweredBy: by, Input: json.RawMessage(input), Resumes: true},
			}
		}
		return session.ClaimedCalls{Resumes: true, Held: []session.PendingCall{
			held("call_1", "ask", "inv_other", `{"night":"Monday"}`), held("call_3", "book", o.InvocationID, `{"night":"Friday"}`),
		}}, nil
	}
	out := o.do(t)
	var inputs []string
	for _, in := range of[*session.ToolInput](out.Events) {
		inputs = append(inputs, in.InvocationID+" "+in.CallID+" "+string(in.Input))
	}
	equal(t, "answers", inputs, []string{o.InvocationID + ` call_3 {"night":"Friday"}`, `inv_other call_1 {"night":"Monday"}`})
	equal(t, "results", callIDs(out.Events), "call_1 call_3")
	equal(t, "status", out.Status, session.StatusCompleted)
}

// A new message closes the calls that wait, and the model learns of it.
func TestMessageSupersedes(t *testing.T) {
	t.Parallel()
	a := guestAgent(agenttest.NewModel(threeCalls()))
	ledger := asked(t, a)
	then := agenttest.NewModel(agenttest.Text("fine"))
	a.Model = then
	o := later(2, a, ledger, "never mind")
	out := o.do(t)
	equal(t, "status", out.Status, session.StatusCompleted)
	equal(t, "ledger", types(out.Events), "tool_result tool_result user invocation_start model_start model_end assistant invocation_end")
	equal(t, "stream", types(o.sink.all()), "invocation_start tool_result tool_result model_start assistant_delta model_end assistant invocation_end")
	const note = "superseded: a new message came instead of an answer"
	equal(t, "told", told(then.Requests()[0]), "user book\ncall call_1\ncall call_2\ncall call_3\nresult call_1 "+note+
		"\nresult call_2 \"done\"\nresult call_3 "+note+"\nuser never mind")
	paired(t, append(ledger, out.Events...))
}

// A message with an answer: the answer goes first, and what is left is closed.
func TestMessageWithAnswer(t *testing.T) {
	t.Parallel()
	a := guestAgent(agenttest.NewModel(threeCalls()))
	ledger := asked(t, a)
	then := agenttest.NewModel(agenttest.Text("fine"))
	a.Model = then
	out := later(2, a, ledger, "and hurry", "call_3", `{"night":"Friday"}`).do(t)
	equal(t, "status", out.Status, session.StatusCompleted)
	equal(t, "ledger", types(out.Events),
		"tool_input tool_result user invocation_start invocation_resume tool_result model_start model_end assistant invocation_end")
	equal(t, "told", told(then.Requests()[0]), "user book\ncall call_1\ncall call_2\ncall call_3\n"+
		"result call_1 superseded: a new message came instead of an answer\n"+
		"result call_2 \"done\"\nresult call_3 \"which?: Friday\"\nuser and hurry")
	paired(t, append(ledger, out.Events...))
}

// Writes to the state do not answer anything.
func TestStateWhileWaiting(t *testing.T) {
	t.Parallel()
	model := agenttest.NewModel(threeCalls())
	a := guestAgent(model)
	ledger := asked(t, a)
	o := later(2, a, ledger, "")
	o.Input.State = session.State{"k": json.RawMessage(`1`)}
	out := o.do(t)
	equal(t, "status", out.Status, session.StatusYieldedTool)
	equal(t, "stream", types(o.sink.all()), "invocation_start state_change invocation_yield")
	equal(t, "yielded", len(out.Yielded), 2)
	equal(t, "model calls", model.Calls(), 1)
}

// A person is not asked with arguments that do not fit.
func TestYieldWithBadArguments(t *testing.T) {
	t.Parallel()
	a := guestAgent(agenttest.NewModel(agenttest.Calls("ask", `{"oops":1}`), agenttest.Text("sorry")))
	out := newOne(a, "book").do(t)
	equal(t, "status", out.Status, session.StatusCompleted)
	equal(t, "yields", of[*session.ToolCall](out.Events)[0].Yields, false)
	if result := of[*session.ToolResult](out.Events)[0]; !strings.Contains(result.Error, "oops") {
		t.Errorf("result: %+v", result)
	}
}

// What a resumed tool does wrong is a result, as in any other call; and its token
// is the same when the turn is run again, or another turn gives the same answer.
func TestResumedToolFails(t *testing.T) {
	t.Parallel()
	var tokens []string
	a := &agent.Agent{Model: agenttest.NewModel(agenttest.Calls("pay", `{"q":"how much?"}`)), Tools: []*agent.Tool{
		agent.NewYieldingTool("pay", "", func(ctx context.Context, _ question, n night) (string, error) {
			tokens = append(tokens, agent.CallOf(ctx).Token)
			panic("no money")
		}),
	}}
	ledger := asked(t, a)
	a.Model = agenttest.NewModel(agenttest.Text("sorry"))
	for n, answer := range []string{`{"night":"a"}`, `{ "night": "a" }`, `{"night":"b"}`} {
		out := later(2+n, a, ledger, "", "call_1", answer).do(t)
		equal(t, "status", out.Status, session.StatusCompleted)
		equal(t, "error", of[*session.ToolResult](out.Events)[0].Error, "panic: no money")
	}
	if tokens[0] != tokens[1] || tokens[1] == tokens[2] {
		t.Errorf("tokens: %q", tokens)
	}
}

// A tool of the caller's own: the model may call it, the caller answers.
func TestFrontendTool(t *testing.T) {
	t.Parallel()
	model := agenttest.NewModel(agenttest.Calls("pick_color", `{}`, "lookup", `{}`))
	own := tool("lookup", func(context.Context) error { return nil })
	a := &agent.Agent{Model: model, Tools: []*agent.Tool{own}}
	frontend := []*agent.Tool{agent.FrontendTool("pick_color", "picks", nil), agent.FrontendTool("lookup", "not this one", nil)}
	o := newOne(a, "go")
	o.Frontend = frontend
	out := o.do(t)
	equal(t, "status", out.Status, session.StatusYieldedTool)
	equal(t, "yielded", out.Yielded, []turn.YieldedTool{{CallID: "call_1", Name: "pick_color", Args: json.RawMessage(`{}`)}})
	equal(t, "offered", []string{model.Requests()[0].Tools[0].Description, model.Requests()[0].Tools[1].Name}, []string{"does lookup", "pick_color"})

	then := agenttest.NewModel(agenttest.Text("nice"))
	a.Model = then
	without := later(2, a, out.Events, "", "call_1", `"red"`)
	equal(t, "answered without the tool", without.do(t).Error.Code, turn.CodeUnknownTool)
	with := later(3, a, out.Events, "", "call_1", `"red"`)
	with.Frontend = frontend
	equal(t, "status", with.do(t).Status, session.StatusCompleted)
	equal(t, "told", told(then.Requests()[0]), "user go\ncall call_1\ncall call_2\nresult call_1 \"red\"\nresult call_2 \"done\"")
}

// Another turn was merged between a question and its answer. The model is told the
// result where the call is, and of a call that somebody is about to answer.
func TestHistoryIsWellFormed(t *testing.T) {
	t.Parallel()
	a := guestAgent(agenttest.NewModel(threeCalls()))
	ledger := asked(t, a)
	merged := later(2, &agent.Agent{Model: agenttest.NewModel(agenttest.Text("hello"))}, nil, "hi").do(t)
	ledger = append(ledger, merged.Events...)
	then := agenttest.NewModel(agenttest.Text("done"))
	a.Model = then
	later(3, a, ledger, "", "call_1", `{"night":"Monday"}`, "call_3", `{"night":"Friday"}`).do(t)
	equal(t, "told", told(then.Requests()[0]), `user book
call call_1
call call_2
call call_3
result call_1 {"night":"Monday"}
result call_2 "done"
result call_3 "which?: Friday"
user hi
assistant hello`)

	last := agenttest.NewModel(agenttest.Text("hm"))
	a.Model = last
	o := later(4, a, ledger, "and?")
	o.ClaimCalls = func(context.Context, []session.CallAnswer, []string) (session.ClaimedCalls, error) {
		return session.ClaimedCalls{}, nil // all of them are being answered
	}
	equal(t, "status", o.do(t).Status, session.StatusCompleted)
	equal(t, "told", strings.Split(told(last.Requests()[0]), "\n")[4], "result call_1 no result yet")
}
