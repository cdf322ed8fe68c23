package worker_test

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/script"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
	"github.com/turnpool/turnpool/worker"
)

// stayQuery and stay are a tool's arguments and result.
type stayQuery struct {
	Ref string `json:"ref" jsonschema:"the booking's reference"`
}

type stay struct {
	Nights   int    `json:"nights"`
	Checkout string `json:"checkout"`
}

func lookupStay(_ context.Context, q stayQuery) (stay, error) {
	return stay{Nights: 3, Checkout: "Friday"}, nil
}

// concierge is an agent whose model is a script, so that it runs without a key.
func concierge() *agent.Agent {
	scripts, err := script.Parse([]byte(`
scripts:
  concierge:
    - {match: "how long", step: 1, calls: [{name: lookup_stay, args: {ref: B-42}}]}
    - {match: "how long", text: "{{(result).nights}} nights, checking out {{(result).checkout}}."}
    - {text: 'You asked "{{previous}}" before.', chunkSize: 10}
`))
	if err != nil {
		log.Fatal(err)
	}
	return &agent.Agent{
		Name:         "concierge",
		Model:        scripts["concierge"],
		Instructions: "Answer booking questions.",
		Tools:        []*agent.Tool{agent.NewTool("lookup_stay", "Look up a booking by its reference", lookupStay)},
	}
}

// Two turns of one session: the second one goes on with a conversation that
// nobody kept in memory, because the first one was committed before it answered.
func ExampleHandler() {
	handler, err := worker.NewHandler(worker.HandlerConfig{
		Agents: []*agent.Agent{concierge()},
		Store:  session.NewMemory(),
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, message := range []string{"How long is my stay?", "What did I ask?"} {
		reply := handler.Rest(context.Background(), turn.Request{
			SessionID: "thread-42",
			Input:     turn.Input{Message: turn.Text(message)},
		})
		fmt.Println(reply.Status, reply.CommitStatus, reply.Version, reply.Output.Text)
	}
	// Output:
	// completed committed 1 3 nights, checking out Friday.
	// completed committed 2 You asked "How long is my stay?" before.
}

// The events of a turn as they come. The turn starts when they are first asked
// for; its result says what became of it.
func ExampleHandler_Turn() {
	handler, err := worker.NewHandler(worker.HandlerConfig{
		Agents: []*agent.Agent{concierge()},
		Store:  session.NewMemory(),
	})
	if err != nil {
		log.Fatal(err)
	}
	live := handler.Turn(context.Background(), turn.Request{Input: turn.Input{Message: turn.Text("hello")}})
	for e := range live.Events() {
		switch e := e.(type) {
		case *turn.Delta:
			fmt.Printf("%s %q\n", e.Type(), e.Delta)
		default:
			fmt.Println(e.Type())
		}
	}
	fmt.Println(live.Result().Status, live.Result().CommitStatus)
	// Output:
	// invocation_start
	// model_start
	// assistant_delta "You asked "
	// assistant_delta "\"\" before."
	// model_end
	// assistant
	// invocation_end
	// completed committed
}

// A slow turn is overtaken by a newer message of the same session. It ran to its
// end and has its answer, but nothing of it is in the ledger: the guest has
// moved on, and an answer to the old question would come out of order.
func ExampleHandler_overtaken() {
	begun, goOn := make(chan struct{}), make(chan struct{})
	think := agent.NewTool("think", "Think it over", func(context.Context, struct{}) (string, error) {
		close(begun)
		<-goOn
		return "thought", nil
	})
	scripts, err := script.Parse([]byte(`
scripts:
  thinker:
    - {match: first, step: 1, calls: [{name: think}]}
    - {match: first, text: the slow answer}
    - {text: the fast answer}
`))
	if err != nil {
		log.Fatal(err)
	}
	store := session.NewMemory()
	var clock atomic.Int64 // of its own, so that the second message is the newer one
	handler, err := worker.NewHandler(worker.HandlerConfig{
		Agents: []*agent.Agent{{Name: "thinker", Model: scripts["thinker"], Tools: []*agent.Tool{think}}},
		Store:  store,
		Now:    func() int64 { return clock.Add(1) },
	})
	if err != nil {
		log.Fatal(err)
	}
	ask := func(message string) *turn.Result {
		return handler.Rest(context.Background(), turn.Request{
			SessionID: "race", Input: turn.Input{Message: turn.Text(message)},
		})
	}

	slow := make(chan *turn.Result)
	go func() { slow <- ask("first question") }()
	<-begun
	fast := ask("second question")
	close(goOn)
	for _, r := range []*turn.Result{<-slow, fast} {
		fmt.Printf("%s: %s, %s\n", r.Output.Text, r.Status, r.CommitStatus)
	}

	ledger, err := store.Events(context.Background(), session.EventsQuery{
		Tenant: turn.DefaultTenant, SessionID: "session_race", After: -1, Limit: 100,
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range ledger {
		switch e := e.Event.(type) {
		case *session.User:
			fmt.Println("ledger:", e.Text)
		case *session.Assistant:
			fmt.Println("ledger:", e.Text)
		}
	}
	// Output:
	// the slow answer: completed, skipped
	// the fast answer: completed, committed
	// ledger: second question
	// ledger: the fast answer
}
