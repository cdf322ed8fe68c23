package openai

import (
	"encoding/json"
	"slices"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/respjson"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/session"
)

// chatAnswer reads a stream of the Chat Completions API. A message has one text
// and one thought, however they alternate.
type chatAnswer struct {
	answer
	thought *item
	text    *item
	calls   []*item         // in the order in which they began
	byIndex map[int64]*item // the calls that have an index
	begun   bool            // a choice has come
	refused bool
	finish  string // the provider's finish reason, "" until it has come
	usage   *session.ModelUsage
}

func newChatAnswer(emit func(agent.ModelDelta)) *chatAnswer {
	return &chatAnswer{answer: answer{emit: emit}, byIndex: map[int64]*item{}}
}

// take reads one chunk. There is no last one: usage may come after the finish
// reason, in a chunk with no choices.
func (a *chatAnswer) take(data []byte) (whole bool, err error) {
	var chunk openai.ChatCompletionChunk
	if err := json.Unmarshal(data, &chunk); err != nil {
		return false, malformed(data, err)
	}
	if chunk.Object == "error" || isSet(chunk.JSON.ExtraFields["error"]) {
		return false, problemOf(data).inStream()
	}
	if chunk.JSON.Usage.Valid() {
		a.usage = chatUsage(chunk.Usage)
	}
	for _, choice := range chunk.Choices {
		if choice.Index != 0 {
			continue // one was asked for
		}
		a.begun = true
		if err := a.delta(choice.Delta); err != nil {
			return false, err
		}
		if choice.FinishReason != "" {
			a.finish = choice.FinishReason
		}
	}
	return false, nil
}

// isSet reports whether a field is there and says something.
func isSet(field respjson.Field) bool { return field.Raw() != "" && field.Raw() != "null" }

func (a *chatAnswer) delta(delta openai.ChatCompletionChunkChoiceDelta) error {
	for _, name := range thoughtFields {
		piece := textOf(json.RawMessage(delta.JSON.ExtraFields[name].Raw()))
		if piece == "" {
			continue
		}
		if err := a.piece(&a.thought, agent.ItemThought, piece); err != nil {
			return err
		}
		if a.thought.context == nil {
			a.thought.context = keepField(name)
		}
		break // a server that has both says the same twice
	}
	if err := a.piece(&a.text, agent.ItemText, delta.Content+delta.Refusal); err != nil {
		return err
	}
	a.refused = a.refused || delta.Refusal != ""
	for _, call := range delta.ToolCalls {
		if err := a.call(call); err != nil {
			return err
		}
	}
	return nil
}

// piece adds a piece to the message's text or thought, which begins with it.
func (a *chatAnswer) piece(it **item, kind agent.ItemKind, piece string) (err error) {
	if piece == "" {
		return nil
	}
	if *it == nil {
		if *it, err = a.begin(kind); err != nil {
			return err
		}
	}
	return a.write(*it, piece)
}

// call takes a piece of a call.
func (a *chatAnswer) call(piece openai.ChatCompletionChunkChoiceDeltaToolCall) (err error) {
	it := a.callOf(piece)
	if it == nil {
		if it, err = a.begin(agent.ItemCall); err != nil {
			return err
		}
		a.calls = append(a.calls, it)
	}
	if piece.JSON.Index.Valid() {
		a.byIndex[piece.Index] = it
	}
	if it.callID == "" {
		it.callID = piece.ID
	}
	if it.name == "" {
		it.name = piece.Function.Name
	}
	if extra := piece.JSON.ExtraFields[extraContent]; isSet(extra) {
		if err := a.keep(it, object{extraContent: json.RawMessage(extra.Raw())}.json()); err != nil {
			return err
		}
	}
	return a.write(it, piece.Function.Arguments)
}

// callOf finds the call that a piece goes on with, nil if it begins one. OpenAI
// gives every piece an index, and only the first one an id and a name. Of others,
// some leave the index out and some the id, and some give all calls one index.
func (a *chatAnswer) callOf(piece openai.ChatCompletionChunkChoiceDeltaToolCall) *item {
	begins := piece.Function.Name != ""
	if piece.JSON.Index.Valid() {
		it := a.byIndex[piece.Index]
		if it != nil && begins && piece.ID != "" && it.callID != "" && piece.ID != it.callID {
			return nil
		}
		return it
	}
	if piece.ID != "" {
		at := slices.IndexFunc(a.calls, func(it *item) bool { return it.callID == piece.ID })
		if at >= 0 {
			return a.calls[at]
		}
	}
	if piece.ID != "" || begins || len(a.calls) == 0 {
		return nil
	}
	return a.calls[len(a.calls)-1]
}

// finished returns the answer, after the stream was read.
func (a *chatAnswer) finished() (*agent.ModelResponse, error) {
	if !a.begun {
		return nil, errCut
	}
	return a.response(a.reason(), a.usage)
}

// reason is the finish reason in our words; what other servers may say is a stop.
func (a *chatAnswer) reason() string {
	switch {
	case a.refused:
		return "content_filter"
	case slices.Contains([]string{"length", "content_filter"}, a.finish):
		return a.finish
	default:
		return "stop"
	}
}

func chatUsage(u openai.CompletionUsage) *session.ModelUsage {
	return &session.ModelUsage{
		InputTokens: u.PromptTokens, OutputTokens: u.CompletionTokens,
		CachedTokens:     u.PromptTokensDetails.CachedTokens,
		CacheWriteTokens: u.PromptTokensDetails.CacheWriteTokens,
		ReasoningTokens:  u.CompletionTokensDetails.ReasoningTokens,
	}
}
