// Package builtin has the agents that are there without an agents file. They
// need no key and no network.
package builtin

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/script"
)

//go:embed scripts.yaml
var scripts []byte

// Agents returns the built-in agents. The first one is the default.
func Agents() ([]*agent.Agent, error) {
	models, err := script.Parse(scripts)
	if err != nil {
		return nil, fmt.Errorf("built-in agents: %w", err)
	}
	return []*agent.Agent{
		{
			Name: "echo", Description: "Streams your message back.", Model: models["echo"],
		},
		{
			Name: "slow", Description: "Streams your message back after two seconds.", Model: models["slow"],
		},
		{
			Name: "concierge", Description: "Looks a booking up and answers, or asks back to change it, by a script.", Model: models["concierge"],
			Instructions: "Answer booking questions.",
			Tools: []*agent.Tool{
				agent.NewTool("lookup_stay", "Look up a booking by its reference", lookupStay),
				agent.NewQuestion[question, night]("ask_guest", "Ask the guest a question"),
			},
		},
	}, nil
}

// Chat is the agent that is there when there is a provider of models.
func Chat(model agent.Model) *agent.Agent {
	return &agent.Agent{
		Name: "chat", Description: "Talks to you, on " + model.Name() + ".", Model: model,
		Instructions: "You are a helpful assistant. Answer briefly.",
	}
}

type stayQuery struct {
	Ref string `json:"ref" jsonschema:"the booking's reference"`
}

type stay struct {
	Ref      string `json:"ref"`
	Nights   int    `json:"nights"`
	Checkout string `json:"checkout"`
}

func lookupStay(_ context.Context, q stayQuery) (stay, error) {
	return stay{Ref: q.Ref, Nights: 3, Checkout: "Friday"}, nil
}

type question struct {
	Question string `json:"question"`
}

type night struct {
	Night string `json:"night" jsonschema:"the night to change to"`
}
