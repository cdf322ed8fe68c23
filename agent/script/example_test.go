package script_test

import (
	"context"
	"fmt"
	"log"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/script"
	"github.com/turnpool/turnpool/session"
)

// A script stands in for a provider's model. The first reply that fits the
// question answers, in deltas of chunkSize characters.
func ExampleParse() {
	models, err := script.Parse([]byte(`
scripts:
  demo:
    - match: book
      calls: [{name: lookup_stay, args: {ref: B-42}}]
    - text: "You said {{message}}"
      chunkSize: 9
`))
	if err != nil {
		log.Fatal(err)
	}
	request := &agent.ModelRequest{Agent: "concierge", Step: 1, Conversation: []session.Event{&session.User{Text: "hello"}}}
	response, err := models["demo"].Generate(context.Background(), request, func(d agent.ModelDelta) {
		fmt.Printf("delta: %q\n", d.Text)
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(response.Items[0].Text, "/", response.FinishReason)
	// Output:
	// delta: "You said "
	// delta: "hello"
	// You said hello / stop
}
