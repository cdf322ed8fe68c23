// Command concierge is an agent in Go that looks bookings up and stops to ask the
// guest. It runs one conversation in this process:
//
//	echo Friday | go run ./examples/concierge
//
// Without a key its model is a script. With OPENAI_API_KEY (or OPENAI_BASE_URL, for
// any server that speaks the API) it is OPENAI_MODEL. The agent is the same: give it
// to worker.NewPool instead, and it serves turns from the queue. The file
// agents.yaml beside this one has the same agent for the stock worker.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/openai"
	"github.com/turnpool/turnpool/agent/script"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
	"github.com/turnpool/turnpool/worker"
)

func main() {
	if err := run(context.Background(), os.Getenv, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "concierge:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, getenv func(string) string, in io.Reader, out io.Writer) error {
	model, err := newModel(getenv)
	if err != nil {
		return err
	}
	handler, err := worker.NewHandler(worker.HandlerConfig{
		Agents: []*agent.Agent{newConcierge(model)}, Store: session.NewMemory(),
	})
	if err != nil {
		return err
	}
	return converse(ctx, handler, bufio.NewScanner(in), out)
}

func newModel(getenv func(string) string) (agent.Model, error) {
	if getenv("OPENAI_API_KEY") == "" && getenv("OPENAI_BASE_URL") == "" {
		return script.New("concierge",
			&script.Reply{Match: "move", Step: 1, Calls: []script.Call{{Name: "lookup_stay", Args: map[string]any{"ref": "B-42"}}}},
			&script.Reply{Match: "move", Step: 2, Calls: []script.Call{{Name: "ask_guest", Args: map[string]any{"question": "To which night?"}}}},
			&script.Reply{Match: "move", Text: "Your stay begins on {{(result).answer}} now.", ChunkSize: 8},
		)
	}
	return openai.New(openai.Config{
		APIKey: getenv("OPENAI_API_KEY"), BaseURL: getenv("OPENAI_BASE_URL"),
		Model: cmp.Or(getenv("OPENAI_MODEL"), "gpt-5.6-luna"),
	})
}

type stayQuery struct {
	Ref string `json:"ref" jsonschema:"the booking's reference, such as B-42"`
}

type stay struct {
	Ref    string `json:"ref"`
	Nights int    `json:"nights"`
	From   string `json:"from"`
}

type guestQuestion struct {
	Question string `json:"question"`
}

type guestAnswer struct {
	Answer string `json:"answer"`
}

func newConcierge(model agent.Model) *agent.Agent {
	return &agent.Agent{
		Name: "concierge", Model: model, MaxSteps: 8,
		Instructions: "You move bookings. Look a booking up before you speak of it. Ask the guest what you do not know.",
		Tools: []*agent.Tool{
			agent.NewTool("lookup_stay", "Look up a booking by its reference", lookupStay),
			agent.NewQuestion[guestQuestion, guestAnswer]("ask_guest", "Ask the guest a question"),
		},
	}
}

func lookupStay(_ context.Context, q stayQuery) (stay, error) {
	if q.Ref != "B-42" {
		return stay{}, errors.New("there is no such booking") // the model sees this
	}
	return stay{Ref: q.Ref, Nights: 3, From: "Tuesday"}, nil
}

// converse says one thing, answers every question from the input, and ends with the
// agent's answer. Each request is a turn of its own: between question and answer
// nothing is kept but the session.
func converse(ctx context.Context, handler *worker.Handler, answers *bufio.Scanner, out io.Writer) error {
	request := turn.Request{SessionID: "guest-7", Input: turn.Input{Message: turn.Text("Please move my booking B-42.")}}
	for {
		stream := handler.Turn(ctx, request)
		for event := range stream.Events() {
			switch event := event.(type) {
			case *turn.Delta:
				fmt.Fprint(out, event.Delta)
			case *session.ToolCall:
				fmt.Fprintf(out, "[%s %s]\n", event.Name, event.Args)
			}
		}
		result := stream.Result()
		switch {
		case result.Error != nil:
			return result.Error
		case len(result.YieldedTools) == 0:
			_, err := fmt.Fprintln(out)
			return err
		}
		request = turn.Request{SessionID: result.SessionID}
		for _, asked := range result.YieldedTools {
			if !answers.Scan() {
				return errors.Join(answers.Err(), errors.New("nobody answers"))
			}
			input, err := json.Marshal(guestAnswer{Answer: answers.Text()})
			if err != nil {
				return err
			}
			request.Input.Tools = append(request.Input.Tools, turn.ToolAnswer{CallID: asked.CallID, Input: input})
		}
	}
}
