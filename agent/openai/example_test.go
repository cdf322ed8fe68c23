package openai_test

import (
	"context"
	"fmt"
	"log"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/openai"
	"github.com/turnpool/turnpool/agent/openai/openaitest"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
	"github.com/turnpool/turnpool/worker"
)

// An agent on any server that is compatible with OpenAI: the base URL is the only
// thing that changes. Here the server is the one for tests, so that the example
// runs without a network.
func Example() {
	srv := openaitest.Start()
	defer srv.Close()
	srv.Reply(
		openaitest.Reply{Items: []openaitest.Item{openaitest.Call("call_1", "lookup_stay", `{"ref":"B-42"}`)}},
		openaitest.Reply{Items: []openaitest.Item{openaitest.Text("3 nights.")}},
	)

	model, err := openai.New(openai.Config{
		Model:   "qwen3",
		BaseURL: srv.URL(), // for example http://127.0.0.1:11434/v1
	})
	if err != nil {
		log.Fatal(err)
	}
	handler, err := worker.NewHandler(worker.HandlerConfig{
		Agents: []*agent.Agent{desk(model)},
		Store:  session.NewMemory(),
	})
	if err != nil {
		log.Fatal(err)
	}
	reply := handler.Rest(context.Background(), turn.Request{
		Input: turn.Input{Message: turn.Text("How long is the stay B-42?")},
	})
	fmt.Println(reply.Status, reply.Output.Text)
	for _, r := range srv.Requests() {
		fmt.Println(r.Path, len(r.Body["messages"].([]any)), "messages")
	}
	// Output:
	// completed 3 nights.
	// /v1/chat/completions 2 messages
	// /v1/chat/completions 4 messages
}

// OpenAI itself: the key is given, not read from the environment.
func ExampleNew() {
	model, err := openai.New(openai.Config{
		Model:            "gpt-5.6-luna",
		APIKey:           "sk-…",
		ReasoningEffort:  "low",
		ReasoningSummary: "auto",
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(model.Name())
	// Output: openai/gpt-5.6-luna
}
