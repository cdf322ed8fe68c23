package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agenttest"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// A delta names the event that is to come, and accumulates.
func TestDeltas(t *testing.T) {
	t.Parallel()
	model := agenttest.NewModel(&agent.ModelResponse{Items: []agent.Item{
		{Kind: agent.ItemThought, Text: "let me see"},
		{Kind: agent.ItemText, Text: "one, two"},
		{Kind: agent.ItemCall, Name: "t"},
		{Kind: agent.ItemText, Text: "three"},
	}}, agenttest.Text("done"))
	model.ChunkSize = 4
	o := newOne(&agent.Agent{Model: model, Tools: []*agent.Tool{raw("t", `1`)}}, "go")
	out := o.do(t)

	type piece struct{ Kind, Delta, Text string }
	pieces := map[string][]piece{}
	for _, d := range of[*turn.Delta](o.sink.all()) {
		pieces[d.MessageID] = append(pieces[d.MessageID], piece{d.Kind, d.Delta, d.Text})
		if d.CreatedAt == 0 {
			t.Error("a delta without a time")
		}
	}
	const assistant, thought = turn.TypeAssistantDelta, turn.TypeThoughtDelta
	answers := of[*session.Assistant](out.Events)
	want := map[string][]piece{
		of[*session.Thought](out.Events)[0].ID: {{thought, "let ", "let "}, {thought, "me s", "let me s"}, {thought, "ee", "let me see"}},
		answers[0].ID:                          {{assistant, "one,", "one,"}, {assistant, " two", "one, two"}},
		answers[1].ID:                          {{assistant, "thre", "thre"}, {assistant, "e", "three"}},
		answers[2].ID:                          {{assistant, "done", "done"}},
	}
	equal(t, "deltas by message", pieces, want)
}

// Pieces may come interleaved, empty, or of a call; none of these confuses the
// messages.
func TestDeltasInterleaved(t *testing.T) {
	t.Parallel()
	model := modelFunc(func(_ context.Context, emit func(agent.ModelDelta)) (*agent.ModelResponse, error) {
		emit(agent.ModelDelta{Item: 1, Text: "b"})
		emit(agent.ModelDelta{Item: 0, Kind: agent.ItemThought, Text: "a"})
		emit(agent.ModelDelta{Item: 1})
		emit(agent.ModelDelta{Item: 2, Kind: agent.ItemCall, Text: `{"x`})
		emit(agent.ModelDelta{Item: 1, Text: "B"})
		return &agent.ModelResponse{Items: []agent.Item{{Kind: agent.ItemThought, Text: "a"}, {Text: "bB"}}}, nil
	})
	o := newOne(&agent.Agent{Model: model}, "go")
	out := o.do(t)
	equal(t, "stream", types(o.sink.all()),
		"invocation_start model_start assistant_delta thought_delta assistant_delta model_end thought assistant invocation_end")
	deltas := of[*turn.Delta](o.sink.all())
	equal(t, "ids", []string{deltas[0].MessageID, deltas[1].MessageID, deltas[2].MessageID},
		[]string{out.Output.Items[0].Base().ID, of[*session.Thought](out.Events)[0].ID, deltas[0].MessageID})
	equal(t, "text", deltas[2].Text, "bB")
}

// An answer without deltas is an answer.
func TestAnswerWithoutDeltas(t *testing.T) {
	t.Parallel()
	o := newOne(&agent.Agent{Model: modelFunc(func(context.Context, func(agent.ModelDelta)) (*agent.ModelResponse, error) {
		return agenttest.Text("whole"), nil
	})}, "go")
	equal(t, "text", o.do(t).Output.Text, "whole")
	equal(t, "stream", types(o.sink.all()), "invocation_start model_start model_end assistant invocation_end")
}

// modelFunc is a model that is a function.
type modelFunc func(ctx context.Context, emit func(agent.ModelDelta)) (*agent.ModelResponse, error)

func (modelFunc) Name() string { return "func" }

func (f modelFunc) Generate(ctx context.Context, _ *agent.ModelRequest, emit func(agent.ModelDelta)) (*agent.ModelResponse, error) {
	return f(ctx, emit)
}

func TestModelErrors(t *testing.T) {
	t.Parallel()
	status := func(n int) error {
		return fmt.Errorf("ask: %w", &agent.ModelError{Status: n, Message: "the provider's words"})
	}
	for name, c := range map[string]struct {
		err       error
		code      string
		retryable bool
		message   string // a part of it
	}{
		"rate limited":  {err: status(429), code: turn.CodeRateLimited, retryable: true, message: "the provider's words"},
		"overloaded":    {err: status(503), code: turn.CodeModelError, retryable: true, message: "model: status 503: the provider's words"},
		"timed out":     {err: status(408), code: turn.CodeModelError, retryable: true, message: "408"},
		"conflict":      {err: status(409), code: turn.CodeModelError, retryable: true, message: "409"},
		"cut off":       {err: status(0), code: turn.CodeModelError, retryable: true, message: "model: the provider's words"},
		"bad request":   {err: status(400), code: turn.CodeModelError, message: "400"},
		"unauthorized":  {err: status(401), code: turn.CodeModelError, message: "401"},
		"told":          {err: &turn.Error{Code: turn.CodeBudgetExceeded, Message: "spent"}, code: turn.CodeBudgetExceeded, message: "spent"},
		"unknown":       {err: errors.New("secret at 10.0.0.7"), code: turn.CodeInternal, retryable: true, message: "log says why"},
		"nothing":       {err: nil, code: turn.CodeInternal, retryable: true, message: "log says why"},
		"model's own":   {err: context.DeadlineExceeded, code: turn.CodeInternal, retryable: true, message: "log says why"},
		"model's abort": {err: context.Canceled, code: turn.CodeInternal, retryable: true, message: "log says why"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOne(&agent.Agent{Model: modelFunc(func(_ context.Context, emit func(agent.ModelDelta)) (*agent.ModelResponse, error) {
				emit(agent.ModelDelta{Text: "Half a sen"})
				return nil, c.err
			})}, "hi")
			out := o.do(t)
			equal(t, "status", out.Status, session.StatusError)
			equal(t, "error", []any{out.Error.Code, out.Error.Retryable}, []any{c.code, c.retryable})
			if !strings.Contains(out.Error.Message, c.message) {
				t.Errorf("message %q, want one with %q", out.Error.Message, c.message)
			}
			if out.Err == nil || !errors.Is(out.Err, c.err) && c.err != nil {
				t.Errorf("err for the log: %v", out.Err)
			}
			equal(t, "stream", types(o.sink.all()), "invocation_start model_start assistant_delta model_end invocation_end")
			end := of[*session.ModelEnd](out.Events)[0]
			equal(t, "model_end", []any{end.FinishReason, end.Error}, []any{"error", out.Error})
			equal(t, "invocation_end", out.Events[len(out.Events)-1].(*session.InvocationEnd).Error, out.Error)
			for _, e := range o.sink.all() {
				data, err := turn.EncodeEvent(e)
				if err != nil || strings.Contains(string(data), "secret") {
					t.Errorf("%s, %v", data, err)
				}
			}
		})
	}
}

// An error of a later step leaves what went before in the outcome.
func TestModelErrorAfterATool(t *testing.T) {
	t.Parallel()
	model := &agenttest.Model{Answer: func(_ context.Context, req *agent.ModelRequest) (*agent.ModelResponse, error) {
		if req.Step == 1 {
			return agenttest.Calls("t", `{}`), nil
		}
		return nil, &agent.ModelError{Status: 500, Message: "no"}
	}}
	out := newOne(&agent.Agent{Model: model, Tools: []*agent.Tool{raw("t", `1`)}}, "go").do(t)
	equal(t, "status", out.Status, session.StatusError)
	equal(t, "usage of the call that worked", out.Usage.ModelCalls, int64(1))
	paired(t, out.Events)
}

func TestModelPanic(t *testing.T) {
	t.Parallel()
	o := newOne(&agent.Agent{Model: modelFunc(func(context.Context, func(agent.ModelDelta)) (*agent.ModelResponse, error) {
		explode()
		return nil, nil
	})}, "hi")
	out := o.do(t)
	equal(t, "error", []any{out.Status, out.Error.Code}, []any{session.StatusError, turn.CodeInternal})
	if strings.Contains(out.Error.Message, "kaboom") {
		t.Errorf("told %q", out.Error.Message)
	}
	isThePanic(t, o, "model", "func")
}

// Nothing that a model streams can fail to be stored because of a character.
func TestCharacters(t *testing.T) {
	t.Parallel()
	const text = "a\x00b \xff \\u0000 \u2028 </script>"
	model := agenttest.NewModel(agenttest.Calls("t", `{"k":"x\u0000\ud800"}`), agenttest.Text(text))
	o := newOne(&agent.Agent{Model: model, Tools: []*agent.Tool{raw("t", "{\"a\\u0000b\":\"\\ud800\xff\"}")}}, text)
	out := o.do(t)
	equal(t, "status", out.Status, session.StatusCompleted)
	data, err := session.EncodeAll(out.Events)
	if err != nil || !json.Valid(data) {
		t.Fatalf("%v: %s", err, data)
	}
	if _, err := session.DecodeAll(data); err != nil {
		t.Fatal(err)
	}
}
