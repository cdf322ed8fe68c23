package openai

import (
	"encoding/json"
	"strings"

	"github.com/openai/openai-go/v3/responses"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/session"
)

// responsesAnswer reads a stream of the Responses API.
type responsesAnswer struct {
	answer
	byIndex    map[int64]*responsesItem // by the provider's index, which counts items that we pass over too
	refused    bool
	final      *responses.Response // set by the last event
	incomplete bool                // as the last event says
}

// responsesItem is an item of the provider's.
type responsesItem struct {
	*item        // nil: of a kind that has no meaning here
	part  string // the part that its last piece was of
	done  bool   // its final form has come
}

func newResponsesAnswer(emit func(agent.ModelDelta)) *responsesAnswer {
	return &responsesAnswer{answer: answer{emit: emit}, byIndex: map[int64]*responsesItem{}}
}

// itemKinds are the types of items that are part of an answer here. There are
// more, of tools that the provider runs itself, but a model is not offered them.
var itemKinds = map[string]agent.ItemKind{
	"message":       agent.ItemText,
	"reasoning":     agent.ItemThought,
	"function_call": agent.ItemCall,
}

// take reads one event. Those of types that are not here say nothing more.
func (a *responsesAnswer) take(data []byte) (whole bool, err error) {
	var e responses.ResponseStreamEventUnion
	if err := json.Unmarshal(data, &e); err != nil {
		return false, malformed(data, err)
	}
	switch e.Type {
	case "response.output_item.added":
		_, err = a.at(e.OutputIndex, e.Item.Type)
	case "response.output_item.done":
		err = a.finish(e.OutputIndex, e.Item)
	case "response.output_text.delta", "response.refusal.delta":
		err = a.piece(e, "message", "", "")
	case "response.reasoning_summary_text.delta":
		err = a.piece(e, "reasoning", e.JSON.SummaryIndex.Raw(), "\n\n")
	case "response.reasoning_text.delta":
		err = a.piece(e, "reasoning", "text "+e.JSON.ContentIndex.Raw(), "\n\n")
	case "response.function_call_arguments.delta":
		err = a.piece(e, "function_call", "", "")
	case "response.completed", "response.incomplete":
		a.final, a.incomplete = &e.Response, e.Type == "response.incomplete"
		return true, a.finishAll(e.Response.Output)
	case "response.failed":
		return false, problemOf([]byte(e.Response.JSON.Error.Raw())).inStream()
	case "error", "": // without a type it is an error as of an HTTP answer, or nothing known
		if told := problemOf(data); e.Type == "error" || told.isError() {
			return false, told.inStream()
		}
	}
	return false, err
}

// at is the item of an index. It begins with the first event that names it.
func (a *responsesAnswer) at(index int64, kind string) (it *responsesItem, err error) {
	if it := a.byIndex[index]; it != nil {
		return it, nil
	}
	it = &responsesItem{}
	a.byIndex[index] = it
	if known, ok := itemKinds[kind]; ok {
		it.item, err = a.begin(known)
		return it, err
	}
	return it, a.grow(itemSize) // what is passed over is bounded too
}

// piece adds a piece to an item. Between the parts of a thought comes a gap.
func (a *responsesAnswer) piece(e responses.ResponseStreamEventUnion, kind, part, gap string) error {
	it, err := a.at(e.OutputIndex, kind)
	if err != nil || it.item == nil {
		return err
	}
	piece := e.Delta
	if it.part != part && it.text.Len() > 0 {
		piece = gap + piece
	}
	it.part = part
	return a.write(it.item, piece)
}

// finish takes an item's final form, which is what counts.
func (a *responsesAnswer) finish(index int64, final responses.ResponseOutputItemUnion) error {
	it, err := a.at(index, final.Type)
	if err != nil || it.item == nil || it.done {
		return err
	}
	it.done = true
	var text string
	rest := json.RawMessage(final.RawJSON())
	switch it.kind {
	case agent.ItemThought:
		text = thoughtOf(final)
	case agent.ItemText:
		rest = without(rest, "content")
		var refused bool
		text, refused = messageOf(final)
		a.refused = a.refused || refused
	case agent.ItemCall:
		rest = without(rest, "call_id", "name", "arguments")
		text, it.callID, it.name = final.Arguments.OfString, final.CallID, final.Name
	}
	if err := a.replace(it.item, text); err != nil {
		return err
	}
	return a.keep(it.item, rest)
}

// finishAll takes the final forms that did not come one by one.
func (a *responsesAnswer) finishAll(output []responses.ResponseOutputItemUnion) error {
	for i, final := range output {
		if err := a.finish(int64(i), final); err != nil {
			return err
		}
	}
	return nil
}

// thoughtOf is what a reasoning item shows of itself: summaries with OpenAI, the
// thoughts themselves with some others.
func thoughtOf(final responses.ResponseOutputItemUnion) string {
	var parts []string
	for _, summary := range final.Summary {
		parts = append(parts, summary.Text)
	}
	for _, content := range final.Content {
		parts = append(parts, content.Text)
	}
	return strings.Join(parts, "\n\n")
}

// messageOf is a message's text, refusals included.
func messageOf(final responses.ResponseOutputItemUnion) (text string, refused bool) {
	for _, content := range final.Content {
		text += content.Text + content.Refusal
		refused = refused || content.Type == "refusal"
	}
	return text, refused
}

// without is an item without the fields that its event has itself.
func without(item json.RawMessage, names ...string) json.RawMessage {
	var fields object
	_ = json.Unmarshal(item, &fields) // it is an object, or there would be no item
	for _, name := range names {
		delete(fields, name)
	}
	return fields.json()
}

// finished returns the answer, after the whole stream was read.
func (a *responsesAnswer) finished() (*agent.ModelResponse, error) {
	if a.final == nil { // [DONE], which this API does not have
		return nil, errCut
	}
	return a.response(a.reason(), a.usage())
}

// reason is the finish reason. What is incomplete has met a limit: that of its
// tokens, or one that is newer than this.
func (a *responsesAnswer) reason() string {
	switch {
	case a.refused, a.final.IncompleteDetails.Reason == "content_filter":
		return "content_filter"
	case a.incomplete:
		return "length"
	default:
		return "stop"
	}
}

func (a *responsesAnswer) usage() *session.ModelUsage {
	if !a.final.JSON.Usage.Valid() {
		return nil
	}
	u := a.final.Usage
	return &session.ModelUsage{
		InputTokens: u.InputTokens, OutputTokens: u.OutputTokens,
		CachedTokens:     u.InputTokensDetails.CachedTokens,
		CacheWriteTokens: u.InputTokensDetails.CacheWriteTokens,
		ReasoningTokens:  u.OutputTokensDetails.ReasoningTokens,
	}
}
