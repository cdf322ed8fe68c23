package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/openai"
	"github.com/turnpool/turnpool/agent/openai/openaitest"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
	"github.com/turnpool/turnpool/worker"
)

var update = flag.Bool("update", false, "write the golden files")

// minted is an id that a run gives to a call whose own is taken.
var minted = regexp.MustCompile(`"call_[0-9a-f]{24}"`)

type stayQuery struct {
	Ref string `json:"ref" jsonschema:"the booking's reference"`
}

// desk is an agent with tools that answer, fail and take nothing.
func desk(model agent.Model) *agent.Agent {
	return &agent.Agent{
		Name: "desk", Model: model, Instructions: "Answer booking questions.",
		Tools: []*agent.Tool{
			agent.NewTool("lookup_stay", "Look up a booking by its reference", func(_ context.Context, q stayQuery) (map[string]int, error) {
				if q.Ref != "B-42" {
					return nil, errors.New("no booking has the reference " + q.Ref)
				}
				return map[string]int{"nights": 3}, nil
			}),
			agent.NewTool("weekday", "Tell today's weekday", func(context.Context, struct{}) (string, error) { return "Friday", nil }),
			{
				Name: "note", Description: "Write a note", // takes whatever the model writes
				Execute: func(_ context.Context, call *agent.Call) (json.RawMessage, error) {
					return nil, fmt.Errorf("no note: %s", call.Args)
				},
			},
		},
	}
}

// Five turns, each in a process of its own: a new model, a new handler, only the
// store stays. The golden files are the requests as the provider got them.
func TestFiveTurns(t *testing.T) {
	t.Parallel()
	thought, text, call := openaitest.Thought, openaitest.Text, openaitest.Call
	turns := []struct {
		message turn.Message
		replies []openaitest.Reply
		want    string
	}{
		{
			turn.Message{Text: "How long is my stay <B-42>?"},
			[]openaitest.Reply{
				{Items: []openaitest.Item{thought(""), text("One moment."), call("call_1", "lookup_stay", `{"ref": "B-42"}`), call("call_2", "weekday", ``)}},
				{Items: []openaitest.Item{thought("3 nights from Friday."), text("Until Monday.")}},
			}, "Until Monday.",
		},
		{
			turn.Message{Text: "And B-43?"},
			[]openaitest.Reply{
				{Items: []openaitest.Item{thought("Another one."), call("call_3", "lookup_stay", `{"ref":"B-43"}`)}},
				{Items: []openaitest.Item{thought("There is none."), call("call_4", "note", `{"no":"B-4`)}},
				{Items: []openaitest.Item{text("There is no B-43.")}},
			}, "There is no B-43.",
		},
		{
			turn.Message{Text: "What is this?", Media: []session.Media{media("image", "image/png", "AAAA")}},
			[]openaitest.Reply{{Items: []openaitest.Item{thought("A "), text("A key"), thought("cut off")}, Finish: "length"}}, "A key",
		},
		{
			turn.Message{Text: "Open my neighbour's door."},
			[]openaitest.Reply{{Items: []openaitest.Item{thought("No."), openaitest.Refusal("I can't help with that.")}}}, "I can't help with that.",
		},
		{
			turn.Message{Text: "What day is it?"},
			[]openaitest.Reply{
				{Items: []openaitest.Item{call("call_2", "weekday", `{}`)}}, // the id of another call
				{Items: []openaitest.Item{text("Friday.")}},
			}, "Friday.",
		},
	}
	apis(t, func(t *testing.T, api openai.API) {
		srv := openaitest.New(t)
		store := session.NewMemory()
		for _, one := range turns {
			srv.Reply(one.replies...)
			model := mustNew(t, openai.Config{Model: "test-model", BaseURL: srv.URL(), API: api})
			handler, err := worker.NewHandler(worker.HandlerConfig{Agents: []*agent.Agent{desk(model)}, Store: store})
			if err != nil {
				t.Fatal(err)
			}
			result := handler.Rest(t.Context(), turn.Request{SessionID: "thread-42", Input: turn.Input{Message: &one.message}})
			equal(t, "error", result.Error, (*turn.Error)(nil))
			equal(t, "output", result.Output.Text, one.want)
		}
		golden(t, "five_turns."+string(api)+".golden.json", requests(t, srv))
	})
}

// requests are the bodies that a server got, one after another. The one id that a
// run has minted gets a name that does not change.
func requests(t *testing.T, srv *openaitest.Server) []byte {
	t.Helper()
	bodies := []any{}
	for _, r := range srv.Requests() {
		bodies = append(bodies, r.Body)
	}
	text, err := json.MarshalIndent(bodies, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(minted.ReplaceAll(text, []byte(`"call_minted"`)), '\n')
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}
