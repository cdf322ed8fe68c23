package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agenttest"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
	"github.com/turnpool/turnpool/worker"
)

// answerBody is a request that answers a call.
func answerBody(sessionID, callID, input string) string {
	body, err := json.Marshal(turn.Request{SessionID: sessionID, Input: turn.Input{
		Tools: []turn.ToolAnswer{{CallID: callID, Input: json.RawMessage(input)}},
	}})
	if err != nil {
		panic(err)
	}
	return string(body)
}

type ask struct {
	Q string `json:"q"`
}

type reply struct {
	Answer string `json:"answer"`
}

// guestAgent asks twice, and says what it was answered; it counts how often the
// tool ran.
func guestAgent(ran *atomic.Int64) *agent.Agent {
	tool := agent.NewYieldingTool("ask_guest", "asks", func(_ context.Context, _ ask, r reply) (string, error) {
		ran.Add(1)
		return r.Answer, nil
	})
	return &agent.Agent{Name: "agent", Tools: []*agent.Tool{tool}, Model: &agenttest.Model{
		Answer: func(_ context.Context, req *agent.ModelRequest) (*agent.ModelResponse, error) {
			if last, ok := req.Conversation[len(req.Conversation)-1].(*session.ToolResult); ok {
				return agenttest.Text("heard " + string(last.Result)), nil
			}
			return agenttest.Calls("ask_guest", `{"q":"night?"}`, "ask_guest", `{"q":"beds?"}`), nil
		},
	}}
}

// Twenty people answer each of two calls at once, through two ingresses and two
// workers: each call gets one answer, one turn goes on, and everybody is told what
// became of theirs.
func TestAnswersRace(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var ran atomic.Int64
	agents := []*agent.Agent{guestAgent(&ran)}
	s.worker(worker.PoolConfig{Agents: agents})
	s.worker(worker.PoolConfig{Agents: agents})
	ingresses := []*testIngress{s.ingress(), s.ingress()}
	asked := ingresses[0].ask("thread", "book")
	if asked.Status != session.StatusYieldedTool || len(asked.YieldedTools) != 2 {
		t.Fatalf("asked: %+v", asked)
	}
	var people sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[string]int{}
	for i := range 40 {
		people.Go(func() {
			status, body := ingresses[i%2].do("POST", "/v1/turns", answerBody("thread", asked.YieldedTools[i/2%2].CallID, `{"answer":"yes"}`))
			result := ingresses[i%2].result(status, body)
			outcome := string(result.Status)
			if result.Error != nil {
				outcome = result.Error.Code
				if status != http.StatusConflict {
					t.Errorf("%s: status %d", outcome, status)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			outcomes[outcome]++
		})
	}
	people.Wait()
	if outcomes["completed"] != 1 || outcomes["yielded_tool"] != 1 || outcomes[turn.CodeAlreadyAnswered] != 38 {
		t.Errorf("outcomes: %v", outcomes)
	}
	if ran.Load() != 2 {
		t.Errorf("the tool ran %d times, want 2", ran.Load())
	}
	if got := said(ingresses[0].ledger("thread")); !slices.Equal(got, []string{"user: book", `assistant: heard "yes"`}) {
		t.Errorf("ledger: %q", got)
	}
}

// A turn stops at one ingress. It is answered at another, and goes on in another
// worker, after both of the first have been killed.
func TestAnsweredElsewhere(t *testing.T) {
	f := newFleet(t)
	firstWorker := f.worker("worker 1")
	firstIngress, in := f.ingress("ingress 1", "concierge")
	asked := in.ask("thread", "Change my booking")
	if asked.Status != session.StatusYieldedTool || len(asked.YieldedTools) != 1 {
		t.Fatalf("asked: %+v", asked)
	}
	firstWorker.kill()
	firstIngress.signal(syscall.SIGKILL)
	firstIngress.wait()
	f.worker("worker 2")
	_, there := f.ingress("ingress 2", "concierge")
	status, body := there.do("GET", "/v1/sessions/thread", "")
	var waiting struct {
		Pending []struct {
			CallID      string
			InputSchema json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &waiting); err != nil || len(waiting.Pending) != 1 || len(waiting.Pending[0].InputSchema) == 0 {
		t.Fatalf("session: %d %s", status, body)
	}
	callID := waiting.Pending[0].CallID
	if status, body := there.do("POST", "/v1/turns", answerBody("thread", callID, `{"nights":2}`)); status != http.StatusUnprocessableEntity {
		t.Errorf("a wrong answer: %d %s", status, body)
	}
	frames := there.stream("POST", "/v1/turns", answerBody("thread", callID, `{"night":"Friday"}`), nil)
	checkStream(t, frames, 0)
	const says = "Booking B-42 is now for Friday."
	if got := spoken(t, frames); got != says {
		t.Errorf("heard %q", got)
	}
	if got := said(there.ledger("thread")); !slices.Equal(got, []string{"user: Change my booking", "assistant: " + says}) {
		t.Errorf("ledger: %q", got)
	}
}
