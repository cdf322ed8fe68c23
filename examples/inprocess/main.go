// Command inprocess runs a turn without a broker: the Go example of the README.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/script"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
	"github.com/turnpool/turnpool/worker"
)

type stayQuery struct {
	Ref string `json:"ref" jsonschema:"the booking's reference"`
}

func lookupStay(_ context.Context, q stayQuery) (map[string]any, error) {
	return map[string]any{"ref": q.Ref, "nights": 3}, nil
}

func main() {
	model, err := script.New("demo",
		&script.Reply{Step: 1, Calls: []script.Call{{Name: "lookup_stay", Args: map[string]any{"ref": "B-42"}}}},
		&script.Reply{Text: "You stay {{(result).nights}} nights.", ChunkSize: 8},
	)
	if err != nil {
		log.Fatal(err)
	}
	concierge := &agent.Agent{
		Name: "concierge", Model: model, Instructions: "Answer booking questions.",
		Tools: []*agent.Tool{agent.NewTool("lookup_stay", "Look up a booking", lookupStay)},
	}
	handler, err := worker.NewHandler(worker.HandlerConfig{
		Agents: []*agent.Agent{concierge}, Store: session.NewMemory(),
	})
	if err != nil {
		log.Fatal(err)
	}

	stream := handler.Turn(context.Background(), turn.Request{
		SessionID: "thread-42", Input: turn.Input{Message: turn.Text("How long is my stay?")},
	})
	for event := range stream.Events() {
		if delta, ok := event.(*turn.Delta); ok {
			fmt.Print(delta.Delta)
		}
	}
	fmt.Println()
	fmt.Println(stream.Result().CommitStatus)
}
