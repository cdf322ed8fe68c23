package openai

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/session"
)

// complete answers with the Chat Completions API. An answer is whole once it has
// its finish reason: a stream that is cut after that has lost its usage at most.
func (m *Model) complete(ctx context.Context, req *agent.ModelRequest, emit func(agent.ModelDelta)) (*agent.ModelResponse, error) {
	params, err := m.chatParams(req)
	if err != nil {
		return nil, err
	}
	answer := newChatAnswer(emit)
	err = stream(ctx, func(ctx context.Context, opts ...option.RequestOption) error {
		return m.completions.NewStreaming(ctx, params, opts...).Err()
	}, answer.take)
	if err != nil && !(answer.finish != "" && errors.Is(err, errCut)) {
		return nil, err
	}
	return answer.finished()
}

func (m *Model) chatParams(req *agent.ModelRequest) (openai.ChatCompletionNewParams, error) {
	params := openai.ChatCompletionNewParams{
		Model:           m.cfg.Model,
		StreamOptions:   openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
		ReasoningEffort: shared.ReasoningEffort(m.cfg.ReasoningEffort),
	}
	if m.cfg.MaxOutputTokens > 0 {
		params.MaxCompletionTokens = openai.Int(m.cfg.MaxOutputTokens)
	}
	if m.cfg.Temperature != nil {
		params.Temperature = openai.Float(*m.cfg.Temperature)
	}
	for _, t := range req.Tools {
		parameters, err := parametersOf(t)
		if err != nil {
			return params, err
		}
		function := shared.FunctionDefinitionParam{Name: t.Name, Parameters: parameters} // not strict
		if t.Description != "" {
			function.Description = openai.String(t.Description)
		}
		params.Tools = append(params.Tools, openai.ChatCompletionFunctionTool(function))
	}
	messages, err := messagesOf(req)
	params.Messages = messages
	return params, err
}

// messages is a conversation as the messages of a request.
type messages struct {
	list []openai.ChatCompletionMessageParamUnion
	// The answer under way: its thoughts, texts and calls become one message.
	thought map[string]any // by the field that they came in
	text    string
	calls   []openai.ChatCompletionMessageToolCallUnionParam
}

func messagesOf(req *agent.ModelRequest) ([]openai.ChatCompletionMessageParamUnion, error) {
	msgs := &messages{list: []openai.ChatCompletionMessageParamUnion{}}
	if req.Instructions != "" {
		msgs.list = append(msgs.list, openai.SystemMessage(req.Instructions))
	}
	for _, e := range req.Conversation {
		switch e := e.(type) {
		case *session.User:
			msgs.endAnswer()
			if err := msgs.user(e); err != nil {
				return nil, err
			}
		case *session.Thought:
			msgs.addThought(e)
		case *session.Assistant:
			msgs.addText(e)
		case *session.ToolCall:
			msgs.addCall(e)
		case *session.ToolResult:
			msgs.endAnswer()
			msgs.list = append(msgs.list, openai.ToolMessage(resultText(e), e.CallID))
		}
	}
	msgs.endAnswer()
	return msgs.list, nil
}

// endAnswer adds the answer under way. One of thoughts alone is no message.
func (msgs *messages) endAnswer() {
	if msgs.text != "" || len(msgs.calls) > 0 {
		answer := &openai.ChatCompletionAssistantMessageParam{ToolCalls: msgs.calls}
		if msgs.text != "" {
			answer.Content.OfString = openai.String(msgs.text)
		}
		if len(msgs.thought) > 0 {
			answer.SetExtraFields(msgs.thought)
		}
		msgs.list = append(msgs.list, openai.ChatCompletionMessageParamUnion{OfAssistant: answer})
	}
	msgs.thought, msgs.text, msgs.calls = nil, "", nil
}

// addThought puts a thought back into the field that it came in.
func (msgs *messages) addThought(e *session.Thought) {
	field := textOf(kept(e)["field"])
	if !isThoughtField(field) || e.Text == "" {
		return
	}
	if msgs.thought == nil {
		msgs.thought = map[string]any{}
	}
	before, _ := msgs.thought[field].(string)
	msgs.thought[field] = before + e.Text
}

func (msgs *messages) addText(e *session.Assistant) {
	if msgs.text != "" && e.Text != "" {
		msgs.text += "\n\n"
	}
	msgs.text += e.Text
}

func (msgs *messages) addCall(e *session.ToolCall) {
	call := &openai.ChatCompletionMessageFunctionToolCallParam{
		ID: e.CallID,
		Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{
			Name: e.Name, Arguments: unquote(e.Args),
		},
	}
	if extra := kept(e)[extraContent]; extra != nil {
		call.SetExtraFields(map[string]any{extraContent: extra})
	}
	msgs.calls = append(msgs.calls, openai.ChatCompletionMessageToolCallUnionParam{OfFunction: call})
}

// user adds a person's message: a plain string if it can be, which every server
// understands.
func (msgs *messages) user(e *session.User) error {
	if len(e.Media) == 0 {
		msgs.list = append(msgs.list, openai.UserMessage(e.Text))
		return nil
	}
	var parts []openai.ChatCompletionContentPartUnionParam
	if e.Text != "" {
		parts = append(parts, openai.TextContentPart(e.Text))
	}
	for _, m := range e.Media {
		part, err := contentPart(m)
		if err != nil {
			return err
		}
		parts = append(parts, part)
	}
	msgs.list = append(msgs.list, openai.UserMessage(parts))
	return nil
}

func contentPart(m session.Media) (part openai.ChatCompletionContentPartUnionParam, err error) {
	where, err := address(m)
	switch {
	case err != nil:
		return part, err
	case m.Type == "image":
		return openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: where}), nil
	case m.Source.Type == "url":
		return part, badRequest("the Chat Completions API takes %s only as bytes, not by its url", m.Type)
	case m.Type == "document":
		return openai.FileContentPart(openai.ChatCompletionContentPartFileFileParam{
			FileData: openai.String(where), Filename: openai.String(fileName(m)),
		}), nil
	}
	format, known := audioFormats[mimeTypeOf(m)]
	if m.Type != "audio" || !known {
		return part, badRequest("the Chat Completions API takes no %s of type %q", m.Type, m.Source.MimeType)
	}
	return openai.InputAudioContentPart(openai.ChatCompletionContentPartInputAudioInputAudioParam{
		Data: m.Source.Data, Format: format,
	}), nil
}

// thoughtFields are those in which servers stream thoughts. OpenAI has none.
var thoughtFields = []string{"reasoning_content", "reasoning"}

func isThoughtField(name string) bool { return name == thoughtFields[0] || name == thoughtFields[1] }

// extraContent is what Google's models want back with a call.
const extraContent = "extra_content"

// keepField is what is kept of a thought: where it came from.
func keepField(name string) json.RawMessage { return object{"field": quoted(name)}.json() }
