package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// think is the model's half of a step. It returns the calls that the model asks
// for.
func (r *run) think(ctx context.Context, step int) ([]*session.ToolCall, error) {
	tools := make([]session.ToolSummary, len(r.tools))
	for i, t := range r.tools {
		tools[i] = session.ToolSummary{Name: t.Name, Description: t.Description}
	}
	start := &session.ModelStart{
		EventBase: r.base(), StepIndex: step, MessageCount: len(r.conversation), Tools: tools,
	}
	r.add(start)

	texts := &deltas{run: r, items: map[int]*item{}}
	response, err := r.generate(ctx, step, texts)
	texts.close()

	end := &session.ModelEnd{EventBase: r.base(), StepIndex: step}
	end.DurationMs = end.CreatedAt - start.CreatedAt
	if err != nil {
		end.FinishReason, end.Error = "error", stepError(ctx, err)
		r.add(end)
		return nil, err
	}
	end.Usage, end.FinishReason, end.Items = response.Usage, response.FinishReason, len(response.Items)
	r.usage.AddCall(r.Agent.Model.Name(), response.Usage)
	r.add(end)
	r.progress = true
	return r.say(response, texts), nil
}

// generate calls the model.
func (r *run) generate(ctx context.Context, step int, texts *deltas) (*ModelResponse, error) {
	request := &ModelRequest{
		Agent: r.Agent.Name, Step: step, Instructions: r.Agent.Instructions,
		Conversation: r.conversation[:len(r.conversation):len(r.conversation)], Tools: r.tools,
	}
	response, err := await(ctx, r.panics("model", r.Agent.Model.Name()), func() (*ModelResponse, error) {
		return r.Agent.Model.Generate(ctx, request, texts.emit)
	})
	switch {
	case ctx.Err() != nil: // the answer may be cut short, so it does not count
		return nil, context.Cause(ctx)
	case err == nil && response == nil:
		return nil, errors.New("the model returned neither an answer nor an error")
	}
	return response, err
}

// stepError is what model_end says of a failed call.
func stepError(ctx context.Context, err error) *turn.Error {
	if cause := context.Cause(ctx); cause != nil {
		return &turn.Error{Code: turn.CodeModelError, Message: "the call was stopped: " + cause.Error()}
	}
	return failure(err)
}

// say adds what the model answered, and returns its calls.
func (r *run) say(response *ModelResponse, texts *deltas) []*session.ToolCall {
	var calls []*session.ToolCall
	for i, it := range response.Items {
		base := r.base()
		base.ProviderContext = it.ProviderContext
		if streamed := texts.items[i]; streamed != nil {
			base.ID = streamed.id
		}
		switch it.Kind {
		case ItemThought:
			r.add(&session.Thought{EventBase: base, Text: it.Text})
		case ItemText:
			r.add(&session.Assistant{EventBase: base, Text: it.Text})
		case ItemCall:
			call := &session.ToolCall{EventBase: base, CallID: r.callID(it.CallID), Name: it.Name, Args: argsOf(it.Args)}
			call.Yields = r.asks(call.Name, call.Args)
			calls = append(calls, call)
			r.add(call)
		}
	}
	return calls
}

// callID returns the provider's id of a call, or a new one if there is none or
// it is taken: some providers count from 1 in each answer, and an id must name
// one call in the whole session.
func (r *run) callID(id string) string {
	if id == "" || r.callIDs[id] {
		return turn.NewCallID()
	}
	return id
}

// argsOf returns what the model wrote as JSON: itself, {} for nothing, or, if it
// is no JSON, a string that holds it. It is what the ledger will have of it, so
// that a tool gets the same bytes on every attempt.
func argsOf(raw json.RawMessage) json.RawMessage {
	raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	if len(bytes.TrimSpace(raw)) == 0 {
		return json.RawMessage(`{}`)
	}
	var compact bytes.Buffer
	if json.Compact(&compact, raw) == nil {
		return compact.Bytes()
	}
	quoted, _ := json.Marshal(string(raw)) // a string always encodes
	return quoted
}

// deltas turns a model's pieces of text into events. The mutex is for a model
// that was left behind and still writes: after close nothing comes out.
type deltas struct {
	run *run

	mu     sync.Mutex
	items  map[int]*item // by place in the response
	closed bool
}

type item struct {
	id   string
	text strings.Builder
}

func (d *deltas) emit(piece ModelDelta) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || piece.Text == "" || piece.Kind == ItemCall {
		return
	}
	it := d.items[piece.Item]
	if it == nil {
		it = &item{id: turn.NewEventID()}
		d.items[piece.Item] = it
	}
	it.text.WriteString(piece.Text)
	kind := turn.TypeAssistantDelta
	if piece.Kind == ItemThought {
		kind = turn.TypeThoughtDelta
	}
	d.run.Sink.Emit(&turn.Delta{
		Kind: kind, MessageID: it.id, Delta: piece.Text, CreatedAt: d.run.Now(), Text: it.text.String(),
	})
}

func (d *deltas) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
}
