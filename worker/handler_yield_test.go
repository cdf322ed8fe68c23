package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agenttest"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
	"github.com/turnpool/turnpool/worker"
)

type guestQuestion struct {
	Q string `json:"q"`
}

type guestAnswer struct {
	Answer string `json:"answer"`
}

// desk is a house whose agent asks the guest when it hears "ask": as many
// questions as the message has words after it.
type desk struct {
	*house
	ran atomic.Int64 // how often the tool that asks ran
}

func newDesk(t *testing.T, store session.Store) *desk {
	d := &desk{}
	tool := agent.NewYieldingTool("ask_guest", "asks", func(_ context.Context, q guestQuestion, a guestAnswer) (string, error) {
		d.ran.Add(1)
		return q.Q + " " + a.Answer, nil
	})
	d.house = newHouse(t, store, func(cfg *worker.HandlerConfig) { cfg.Agents[0].Tools = []*agent.Tool{tool} })
	d.model.Answer = func(ctx context.Context, req *agent.ModelRequest) (*agent.ModelResponse, error) {
		words := strings.Fields(agenttest.Message(req))
		last := req.Conversation[len(req.Conversation)-1]
		if result, ok := last.(*session.ToolResult); ok {
			return agenttest.Text("heard " + string(result.Result) + result.Error), nil
		}
		if words[0] != "ask" {
			return answerBack(ctx, req)
		}
		var calls []string
		for _, word := range words[1:] {
			calls = append(calls, "ask_guest", `{"q":"`+word+`"}`)
		}
		return agenttest.Calls(calls...), nil
	}
	return d
}

// asks has the agent ask, and returns the ids of its calls.
func (d *desk) asks(t *testing.T, message string) (callIDs []string) {
	t.Helper()
	got := d.rest(t, say("s", message))
	endedAs(t, got, session.StatusYieldedTool, session.Committed, "")
	for _, y := range got.YieldedTools {
		callIDs = append(callIDs, y.CallID)
	}
	return callIDs
}

// reply is a request that answers calls with words.
func reply(callIDs []string, words ...string) turn.Request {
	req := turn.Request{SessionID: "s"}
	for i, word := range words {
		req.Input.Tools = append(req.Input.Tools, turn.ToolAnswer{
			CallID: callIDs[i], Input: json.RawMessage(`{"answer":"` + word + `"}`),
		})
	}
	return req
}

func TestHandlerYield(t *testing.T) {
	onStores(t, func(t *testing.T, store session.Store) {
		d := newDesk(t, store)
		calls := d.asks(t, "ask night? beds?")
		partial := d.rest(t, reply(calls[1:], "two"))
		endedAs(t, partial, session.StatusYieldedTool, session.Committed, "")
		same(t, "still open", partial.YieldedTools, []turn.YieldedTool{{CallID: calls[0], Name: "ask_guest", Args: json.RawMessage(`{"q":"night?"}`)}})
		same(t, "tool ran", d.ran.Load(), int64(0))
		again := d.rest(t, reply(calls[1:], "three"))
		endedAs(t, again, session.StatusError, session.CommitNone, turn.CodeAlreadyAnswered)
		wrong := reply(calls, "x")
		wrong.Input.Tools[0].Input = json.RawMessage(`"Friday"`)
		endedAs(t, d.rest(t, wrong), session.StatusError, session.CommitNone, turn.CodeInvalidAnswer)
		last := d.rest(t, reply(calls, "Friday"))
		endedAs(t, last, session.StatusCompleted, session.Committed, "")
		same(t, "answer", last.Output.Text, `heard "beds? two"`)
		same(t, "tool ran", d.ran.Load(), int64(2))
		if head := d.head(t, "s"); len(head.Pending) > 0 || head.Version != 3 {
			t.Errorf("head: %+v", head)
		}
	})
}

// Of many that answer one call, one wins, and the tool runs once.
func TestHandlerAnswersRace(t *testing.T) {
	onStores(t, func(t *testing.T, store session.Store) {
		d := newDesk(t, store)
		calls := d.asks(t, "ask night?")
		const n = 12
		var results []<-chan *turn.Result
		for i := range n {
			results = append(results, resultOf(d.Turn(t.Context(), reply(calls, fmt.Sprint("guest", i)))))
		}
		won := 0
		for _, r := range results {
			switch got := inTime(t, r); {
			case got.Status == session.StatusCompleted && got.CommitStatus == session.Committed:
				won++
			default:
				endedAs(t, got, session.StatusError, session.CommitNone, turn.CodeAlreadyAnswered)
			}
		}
		same(t, "won", won, 1)
		same(t, "tool ran", d.ran.Load(), int64(1))
	})
}

// Of many turns that each answer one of the calls, exactly one goes on.
func TestHandlerCompletionRace(t *testing.T) {
	onStores(t, func(t *testing.T, store session.Store) {
		d := newDesk(t, store)
		calls := d.asks(t, "ask a b c d e f")
		var results []<-chan *turn.Result
		for i := range calls {
			results = append(results, resultOf(d.Turn(t.Context(), reply(calls[i:], fmt.Sprint("guest", i)))))
		}
		statuses := map[session.Status]int{}
		for _, r := range results {
			got := inTime(t, r)
			statuses[got.Status]++
			if got.CommitStatus != session.Committed && got.CommitStatus != session.Merged {
				t.Errorf("%s %s: %+v", got.Status, got.CommitStatus, got.Error)
			}
		}
		same(t, "statuses", statuses, map[session.Status]int{session.StatusCompleted: 1, session.StatusYieldedTool: len(calls) - 1})
		same(t, "tool ran", d.ran.Load(), int64(len(calls)))
		if head := d.head(t, "s"); len(head.Pending) > 0 {
			t.Errorf("pending: %+v", head.Pending)
		}
		same(t, "ledger", d.ledger(t, "s"), "ask a b c d e f\nheard \"f guest5\"")
	})
}

// A turn that was aborted after it had claimed its calls leaves them as they were.
func TestHandlerAbortedAnswer(t *testing.T) {
	onStores(t, func(t *testing.T, store session.Store) {
		d := newDesk(t, store)
		calls := d.asks(t, "ask night?")
		gate := d.gated()
		aborted := d.Turn(t.Context(), reply(calls, "Friday"))
		result := resultOf(aborted)
		inTime(t, gate.Arrived("ask night?"))
		endedAs(t, d.rest(t, reply(calls, "Monday")), session.StatusError, session.CommitNone, turn.CodeAlreadyAnswered)
		aborted.Abort()
		endedAs(t, inTime(t, result), session.StatusAborted, session.CommitNone, "")
		gate.Open("ask night?")
		got := d.rest(t, reply(calls, "Sunday"))
		endedAs(t, got, session.StatusCompleted, session.Committed, "")
		same(t, "answer", got.Output.Text, `heard "night? Sunday"`)
	})
}

// A new message closes what waits.
func TestHandlerMessageSupersedes(t *testing.T) {
	onStores(t, func(t *testing.T, store session.Store) {
		d := newDesk(t, store)
		calls := d.asks(t, "ask night?")
		d.clock.Add(1)
		got := d.rest(t, say("s", "never mind"))
		endedAs(t, got, session.StatusCompleted, session.Committed, "")
		same(t, "answer", got.Output.Text, "re: never mind")
		endedAs(t, d.rest(t, reply(calls, "Friday")), session.StatusError, session.CommitNone, turn.CodeAlreadyAnswered)
		same(t, "ledger", d.ledger(t, "s"), "ask night?\nnever mind\nre: never mind")
	})
}

func TestHandlerFrontendTool(t *testing.T) {
	t.Parallel()
	d := newDesk(t, session.NewMemory())
	d.model.Answer = func(_ context.Context, req *agent.ModelRequest) (*agent.ModelResponse, error) {
		if last, ok := req.Conversation[len(req.Conversation)-1].(*session.ToolResult); ok {
			return agenttest.Text("it is " + string(last.Result)), nil
		}
		return agenttest.Calls("pick_color", `{}`), nil
	}
	req := say("s", "paint it")
	req.FrontendTools = []turn.FrontendTool{{Name: "pick_color", Parameters: json.RawMessage(`{"type":"object"}`)}}
	got := d.rest(t, req)
	endedAs(t, got, session.StatusYieldedTool, session.Committed, "")
	answer := turn.Request{SessionID: "s", FrontendTools: req.FrontendTools}
	answer.Input.Tools = []turn.ToolAnswer{{CallID: got.YieldedTools[0].CallID, Input: json.RawMessage(`"red"`)}}
	same(t, "answer", d.rest(t, answer).Output.Text, `it is "red"`)

	req.FrontendTools[0].Parameters = json.RawMessage(`{"type":17}`)
	endedAs(t, d.rest(t, req), session.StatusError, session.CommitNone, "invalid_field")
}
