package openai

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/session"
)

// respond answers with the Responses API. Reasoning items are asked for until the
// provider refuses them once.
func (m *Model) respond(ctx context.Context, req *agent.ModelRequest, emit func(agent.ModelDelta)) (*agent.ModelResponse, error) {
	params, err := m.responsesParams(req)
	if err != nil {
		return nil, err
	}
	reasoned := !m.unreasoned.Load()
	if reasoned {
		params.Include = []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent}
	}
	response, err := m.respondTo(ctx, params, emit)
	if reasoned && refusesInclude(err) {
		m.unreasoned.Store(true)
		params.Include = nil
		return m.respondTo(ctx, params, emit)
	}
	return response, err
}

// refusesInclude reports whether the provider objects to include: OpenAI does for
// models that do not reason. The request has cost nothing then.
func refusesInclude(err error) bool {
	var refused *refusal
	return errors.As(err, &refused) && refused.Status == http.StatusBadRequest && refused.param == "include"
}

func (m *Model) respondTo(ctx context.Context, params responses.ResponseNewParams, emit func(agent.ModelDelta)) (*agent.ModelResponse, error) {
	answer := newResponsesAnswer(emit)
	err := stream(ctx, func(ctx context.Context, opts ...option.RequestOption) error {
		return m.responses.NewStreaming(ctx, params, opts...).Err()
	}, answer.take)
	if err != nil {
		return nil, err
	}
	return answer.finished()
}

func (m *Model) responsesParams(req *agent.ModelRequest) (responses.ResponseNewParams, error) {
	params := responses.ResponseNewParams{
		Model: m.cfg.Model,
		Store: openai.Bool(false),
		Reasoning: shared.ReasoningParam{
			Effort:  shared.ReasoningEffort(m.cfg.ReasoningEffort),
			Summary: shared.ReasoningSummary(m.cfg.ReasoningSummary),
		},
	}
	if req.Instructions != "" {
		params.Instructions = openai.String(req.Instructions)
	}
	if m.cfg.MaxOutputTokens > 0 {
		params.MaxOutputTokens = openai.Int(m.cfg.MaxOutputTokens)
	}
	if m.cfg.Temperature != nil {
		params.Temperature = openai.Float(*m.cfg.Temperature)
	}
	for _, t := range req.Tools {
		parameters, err := parametersOf(t)
		if err != nil {
			return params, err
		}
		tool := &responses.FunctionToolParam{Name: t.Name, Parameters: parameters, Strict: openai.Bool(false)}
		if t.Description != "" {
			tool.Description = openai.String(t.Description)
		}
		params.Tools = append(params.Tools, responses.ToolUnionParam{OfFunction: tool})
	}
	input, err := inputOf(req.Conversation)
	params.Input.OfInputItemList = input
	return params, err
}

// input is a conversation as the items of a request.
type input struct {
	items responses.ResponseInputParam
	// thoughts wait for the item that they led to. The API refuses a reasoning
	// item that nothing follows, as at the end of an answer that was cut there.
	thoughts responses.ResponseInputParam
	// orphaned says that a thought of the answer under way is left out. The API
	// refuses the id of an item whose reasoning is missing, so what follows goes
	// without.
	orphaned bool
}

func inputOf(conversation []session.Event) (responses.ResponseInputParam, error) {
	in := &input{items: responses.ResponseInputParam{}}
	for _, e := range conversation {
		switch e := e.(type) {
		case *session.User:
			in.endAnswer()
			if err := in.user(e); err != nil {
				return nil, err
			}
		case *session.Thought:
			in.thought(e)
		case *session.Assistant:
			in.message(e)
		case *session.ToolCall:
			in.call(e)
		case *session.ToolResult:
			in.endAnswer()
			in.result(e)
		}
	}
	return in.items, nil
}

func (in *input) endAnswer() { in.thoughts, in.orphaned = nil, false }

// add adds an item of an answer, after the thoughts that led to it.
func (in *input) add(it responses.ResponseInputItemUnionParam) {
	in.items = append(append(in.items, in.thoughts...), it)
	in.thoughts = nil
}

func (in *input) user(e *session.User) error {
	content := responses.ResponseInputMessageContentListParam{}
	if e.Text != "" || len(e.Media) == 0 {
		content = append(content, responses.ResponseInputContentParamOfInputText(e.Text))
	}
	for _, m := range e.Media {
		part, err := inputPart(m)
		if err != nil {
			return err
		}
		content = append(content, part)
	}
	in.items = append(in.items, responses.ResponseInputItemParamOfMessage(content, responses.EasyInputMessageRoleUser))
	return nil
}

func inputPart(m session.Media) (part responses.ResponseInputContentUnionParam, err error) {
	where, err := address(m)
	switch {
	case err != nil:
		return part, err
	case m.Type == "image":
		part = responses.ResponseInputContentParamOfInputImage(responses.ResponseInputImageDetailAuto)
		part.OfInputImage.ImageURL = openai.String(where)
	case m.Type == "document" && m.Source.Type == "url":
		part.OfInputFile = &responses.ResponseInputFileParam{FileURL: openai.String(where)}
	case m.Type == "document":
		part.OfInputFile = &responses.ResponseInputFileParam{FileData: openai.String(where), Filename: openai.String(fileName(m))}
	default:
		return part, badRequest("the Responses API takes no input of type %q; api %q takes audio", m.Type, Chat)
	}
	return part, nil
}

// thought puts a reasoning item back as it came. One with neither its encrypted
// content nor, from servers that show it, its open one would be looked up by its
// id, which nobody has stored.
func (in *input) thought(e *session.Thought) {
	fields := kept(e)
	if textOf(fields["type"]) != "reasoning" || textOf(fields["encrypted_content"]) == "" && empty(fields["content"]) {
		in.orphaned = true
		return
	}
	in.thoughts = append(in.thoughts, rawItem(e.ProviderContext.Data))
}

// message puts a text back, with what the provider had beside it if it may have
// that again.
func (in *input) message(e *session.Assistant) {
	fields := kept(e)
	if in.orphaned || textOf(fields["type"]) != "message" || textOf(fields["id"]) == "" {
		message := responses.ResponseInputItemParamOfMessage(e.Text, responses.EasyInputMessageRoleAssistant)
		if textOf(fields["type"]) == "message" {
			message.OfMessage.Phase = responses.EasyInputMessagePhase(textOf(fields["phase"]))
		}
		in.add(message)
		return
	}
	fields["content"] = json.RawMessage(`[{"type":"output_text","text":` + string(quoted(e.Text)) + `,"annotations":[]}]`)
	in.add(rawItem(fields.json()))
}

func (in *input) call(e *session.ToolCall) {
	fields := kept(e)
	if textOf(fields["type"]) != "function_call" {
		fields = object{"type": quoted("function_call")}
	}
	if in.orphaned {
		delete(fields, "id")
	}
	// The ledger's id: the run mints another one if the provider's is taken.
	fields["call_id"], fields["name"], fields["arguments"] = quoted(e.CallID), quoted(e.Name), quoted(unquote(e.Args))
	in.add(rawItem(fields.json()))
}

func (in *input) result(e *session.ToolResult) {
	output := responses.ResponseInputItemParamOfFunctionCallOutput(resultText(e))
	output.OfFunctionCallOutput.CallID = openai.String(e.CallID)
	in.items = append(in.items, output)
}

func rawItem(data json.RawMessage) responses.ResponseInputItemUnionParam {
	return param.Override[responses.ResponseInputItemUnionParam](data)
}

// empty reports whether a list is absent, null or has nothing in it.
func empty(list json.RawMessage) bool {
	var elements []json.RawMessage
	return json.Unmarshal(list, &elements) != nil || len(elements) == 0
}
