package openai

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/session"
)

// provider is the name of this adapter's part in an event's provider context.
const provider = "openai"

// answer gathers an answer's items, in the order in which the provider began
// them, and streams their texts.
type answer struct {
	emit  func(agent.ModelDelta)
	items []*item
	size  int // of all that is kept, roughly, in bytes
}

// itemSize is what an item takes in memory at least, roughly.
const itemSize = 256

// item is one that is being written.
type item struct {
	kind    agent.ItemKind
	place   int
	text    strings.Builder // of a call: the arguments
	callID  string
	name    string
	context json.RawMessage // what the provider wants back with it
}

// grow counts what is kept.
func (a *answer) grow(n int) error {
	if a.size += n; a.size > maxAnswer {
		return errTooLarge
	}
	return nil
}

// begin adds an item.
func (a *answer) begin(kind agent.ItemKind) (*item, error) {
	it := &item{kind: kind, place: len(a.items)}
	a.items = append(a.items, it)
	return it, a.grow(itemSize)
}

// write adds a piece to an item.
func (a *answer) write(it *item, piece string) error {
	if err := a.grow(len(piece)); err != nil {
		return err
	}
	it.text.WriteString(piece)
	if piece != "" && it.kind != agent.ItemCall {
		a.emit(agent.ModelDelta{Item: it.place, Kind: it.kind, Text: piece})
	}
	return nil
}

// replace puts what the provider says in the end in the place of the pieces.
func (a *answer) replace(it *item, text string) error {
	if err := a.grow(len(text) - it.text.Len()); err != nil {
		return err
	}
	it.text.Reset()
	it.text.WriteString(text)
	return nil
}

// keep keeps what the provider wants back with an item.
func (a *answer) keep(it *item, data json.RawMessage) error {
	if err := a.grow(len(data) - len(it.context)); err != nil {
		return err
	}
	it.context = data
	return nil
}

// asks reports whether the model asks for tools.
func (a *answer) asks() bool {
	for _, it := range a.items {
		if it.kind == agent.ItemCall {
			return true
		}
	}
	return false
}

// response returns the whole answer. A model that asks for tools has stopped for
// them, whatever the server says: some say stop.
func (a *answer) response(finish string, usage *session.ModelUsage) (*agent.ModelResponse, error) {
	if finish == "stop" && a.asks() {
		finish = "tool_calls"
	}
	response := &agent.ModelResponse{FinishReason: finish, Usage: usage}
	for _, it := range a.items {
		if it.kind == agent.ItemCall && it.name == "" {
			return nil, errNameless
		}
		response.Items = append(response.Items, it.item())
	}
	return response, nil
}

// errNameless is a call of no tool, which no provider would take back.
var errNameless = &agent.ModelError{Status: http.StatusBadGateway, Message: "the server sends a tool call without a name"}

func (it *item) item() agent.Item {
	out := agent.Item{Kind: it.kind}
	if it.context != nil {
		out.ProviderContext = &session.ProviderContext{Provider: provider, Data: it.context}
	}
	if it.kind == agent.ItemCall {
		out.CallID, out.Name, out.Args = it.callID, it.name, json.RawMessage(it.text.String())
		return out
	}
	out.Text = it.text.String()
	return out
}

// object is a JSON object whose values stay as they are.
type object map[string]json.RawMessage

// kept is what this adapter kept with an event, nil if nothing.
func kept(e session.Event) object {
	c := e.Base().ProviderContext
	if c == nil || c.Provider != provider {
		return nil
	}
	var fields object
	if json.Unmarshal(c.Data, &fields) != nil {
		return nil
	}
	return fields
}

// json is the object as one value.
func (o object) json() json.RawMessage {
	data, _ := json.Marshal(o) // its values are JSON
	return data
}

// quoted is a text as JSON. Unlike [json.Marshal] it leaves <, > and & alone,
// which the model would read otherwise.
func quoted(text string) json.RawMessage {
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // a string always encodes
	return json.RawMessage(strings.TrimSuffix(out.String(), "\n"))
}

// textOf is the text of a JSON string, "" of other JSON.
func textOf(raw json.RawMessage) (text string) {
	_ = json.Unmarshal(raw, &text)
	return text
}

// unquote is the text of a JSON string; other JSON is its own text.
func unquote(raw json.RawMessage) string {
	if len(raw) > 0 && raw[0] == '"' {
		return textOf(raw)
	}
	return string(raw)
}

// resultText is what the model is told of a call.
func resultText(e *session.ToolResult) string {
	switch {
	case e.Error != "":
		return `{"error":` + string(quoted(e.Error)) + `}`
	case len(e.Result) == 0:
		return "null"
	}
	return unquote(e.Result)
}
