package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/turnpool/turnpool/agent"
)

// A tool is a Go function with typed arguments. The model is told their schema,
// and calls that do not fit it never reach the function.
func ExampleNewTool() {
	type stayQuery struct {
		Ref string `json:"ref" jsonschema:"the booking's reference"`
	}
	type stay struct {
		Ref    string `json:"ref"`
		Nights int    `json:"nights"`
	}
	lookup := agent.NewTool("lookup_stay", "Look up a booking by its reference",
		func(_ context.Context, q stayQuery) (stay, error) {
			return stay{Ref: q.Ref, Nights: 3}, nil
		})

	schema, err := json.Marshal(lookup.Parameters.Properties["ref"])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lookup.Parameters.Required, string(schema))
	// Output: [ref] {"type":"string","description":"the booking's reference"}
}

// An effect that must happen once is guarded by the call's token, which is the
// same when the turn is run again.
func ExampleCallOf() {
	type charge struct {
		Cents int `json:"cents"`
	}
	done := map[string]bool{} // a database, where it matters
	tool := agent.NewTool("charge", "Charge the guest's card",
		func(ctx context.Context, c charge) (string, error) {
			token := agent.CallOf(ctx).Token
			if done[token] {
				return "charged before", nil
			}
			done[token] = true
			return fmt.Sprintf("charged %d cents", c.Cents), nil
		})

	call := &agent.Call{Args: json.RawMessage(`{"cents":4200}`), Token: "tok_1"} // a turn makes it
	for range 2 {
		result, err := tool.Execute(context.Background(), call)
		fmt.Println(string(result), err)
	}
	// Output:
	// "charged 4200 cents" <nil>
	// "charged before" <nil>
}
