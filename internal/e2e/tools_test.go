package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agenttest"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/worker"
)

// Three tools of one step run at once: one answers, one has no time, one panics.
// The turn goes on, and the model and the ledger have all three results, in the
// model's order.
func TestThreeTools(t *testing.T) {
	t.Parallel()
	s := setup(t)
	started := agenttest.NewGate()
	together := func(ctx context.Context) error { // passes once all three run
		for _, name := range []string{"fine", "late", "broken"} {
			select {
			case <-started.Arrived(name):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	arrive := func(name string) {
		started.Open(name)
		_ = started.Pass(context.Background(), name)
	}
	type none struct{}
	fine := agent.NewTool("fine", "answers", func(ctx context.Context, _ none) (string, error) {
		arrive("fine")
		return "well", together(ctx)
	})
	late := agent.NewTool("late", "takes for ever", func(ctx context.Context, _ none) (string, error) {
		arrive("late")
		<-ctx.Done()
		return "", ctx.Err()
	})
	late.Timeout = 50 * time.Millisecond
	broken := agent.NewTool("broken", "panics", func(ctx context.Context, _ none) (string, error) {
		arrive("broken")
		if err := together(ctx); err != nil {
			return "", err
		}
		panic("out of luck")
	})
	model := agenttest.NewModel(agenttest.Calls("late", `{}`, "broken", `{}`, "fine", `{}`), agenttest.Text("I did what I could"))
	s.worker(worker.PoolConfig{Agents: []*agent.Agent{{Name: "agent", Model: model, Tools: []*agent.Tool{fine, late, broken}}}})
	in := s.ingress()
	id := in.submit("thread", "do three things")
	checkStream(t, in.follow(id), 0)
	if result := in.wait(id); result.Status != session.StatusCompleted || result.Output.Text != "I did what I could" {
		t.Errorf("result: %+v", result)
	}

	want := []string{
		"late: timed out after 50ms; true",
		"broken: panic: out of luck; false",
		`fine: "well"; false`,
	}
	var seen []string
	for _, event := range model.Requests()[1].Conversation {
		if r, ok := event.(*session.ToolResult); ok {
			seen = append(seen, fmt.Sprintf("%s: %s%s; %v", r.Name, r.Result, r.Error, r.TimedOut))
		}
	}
	if !slices.Equal(seen, want) {
		t.Errorf("the model saw %q, want %q", seen, want)
	}
	var kept []string
	for _, event := range in.ledger("thread") {
		if event["type"] == "tool_result" {
			kept = append(kept, fmt.Sprintf("%v: %v; %v", event["name"], cmp.Or(event["result"], event["error"]), event["timedOut"] == true))
		}
	}
	want[2] = "fine: well; false" // the ledger's JSON is decoded
	if !slices.Equal(kept, want) {
		t.Errorf("the ledger has %q, want %q", kept, want)
	}
}
