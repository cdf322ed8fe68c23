// Package script is the scripted model: replies from a file instead of a
// provider, behind the same interface, so that the whole pipeline runs without a
// key or a network.
//
// A file has scripts by name; a script is a list of replies. The first reply
// that fits the question answers it:
//
//	scripts:
//	  demo:
//	    - match: book              # the last user message contains this, in any case
//	      step: 1                  # the first model call after that message
//	      calls: [{name: lookup_stay, args: {ref: "B-42"}}]
//	    - text: "You said {{message}}"
//	      chunkSize: 6             # characters a delta; absent: the whole text at once
//	      chunkDelay: 20ms         # before each delta
//	      usage: {inputTokens: 12, outputTokens: 5}
//	      finishReason: stop       # absent: stop, or tool_calls with calls
//
// A reply may also have agent (only this one asks), thought (before the text),
// delay (before anything), and error: {status, message, retryAfter}, which fails
// the call after the text was streamed.
//
// Texts are templates of [text/template] with the functions message (the last
// user message), previous (the user message before it, or ""), result (the last
// tool result, as a value, so that {{(result).nights}} works; its text if it is
// an error) and step. What a person writes is text in them, never a template.
//
// Steps go on when a person answers a call that stopped the turn: the first model
// call after the answer is step 2.
//
// A reply is chosen by the question alone, so a script needs no order of turns:
// several turns may ask it at once, and an attempt that runs again gets the same
// answer. A question that no reply fits fails the call, status 400.
package script

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/session"
)

// Reply is one entry of a script.
type Reply struct {
	Match string `yaml:"match"`
	Agent string `yaml:"agent"`
	Step  int    `yaml:"step"`

	Thought string `yaml:"thought"`
	Text    string `yaml:"text"`
	Calls   []Call `yaml:"calls"`
	Error   *Error `yaml:"error"`

	Delay        time.Duration `yaml:"delay"`
	ChunkSize    int           `yaml:"chunkSize"`
	ChunkDelay   time.Duration `yaml:"chunkDelay"`
	Usage        *Usage        `yaml:"usage"`
	FinishReason string        `yaml:"finishReason"`

	text, thought *template.Template
}

// Call is a tool call of a reply. An absent ID is minted by the run, absent Args
// are {}.
type Call struct {
	ID   string `yaml:"id"`
	Name string `yaml:"name"`
	Args any    `yaml:"args"`

	args json.RawMessage
}

// Error is a failure of the provider. Status 0 is a cut connection.
type Error struct {
	Status     int           `yaml:"status"`
	Message    string        `yaml:"message"`
	RetryAfter time.Duration `yaml:"retryAfter"`
}

// Usage is what the provider reports.
type Usage struct {
	InputTokens      int64 `yaml:"inputTokens"`
	OutputTokens     int64 `yaml:"outputTokens"`
	CachedTokens     int64 `yaml:"cachedTokens"`
	CacheWriteTokens int64 `yaml:"cacheWriteTokens"`
	ReasoningTokens  int64 `yaml:"reasoningTokens"`
}

// Parse reads the scripts section of an agents file, given as a YAML document
// with the one key "scripts". Errors of its form have the line; errors in what a
// reply says have its script and number.
func Parse(data []byte) (map[string]*Model, error) {
	var file struct {
		Scripts map[string][]*Reply `yaml:"scripts"`
	}
	if err := yaml.UnmarshalWithOptions(data, &file, yaml.DisallowUnknownField()); err != nil {
		return nil, fmt.Errorf("scripts: %w", err)
	}
	models := map[string]*Model{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(file.Scripts)) {
		model, err := New(name, file.Scripts[name]...)
		models[name] = model
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return models, nil
}

// Model is a script that answers. It keeps no state: the same question has the
// same answer, in any process.
type Model struct {
	name    string
	replies []*Reply
}

// New checks the replies and returns a model of them, named "script/<name>".
func New(name string, replies ...*Reply) (*Model, error) {
	m := &Model{name: "script/" + name}
	for i, r := range replies {
		if r == nil {
			return nil, fmt.Errorf("script %q, reply %d: it is empty", name, i+1)
		}
		compiled := *r
		if err := compiled.compile(); err != nil {
			return nil, fmt.Errorf("script %q, reply %d: %w", name, i+1, err)
		}
		m.replies = append(m.replies, &compiled)
	}
	return m, nil
}

// finishReasons are those of a model_end event.
var finishReasons = []string{"stop", "length", "tool_calls", "content_filter", "error"}

// compile checks the reply, and fills in what is absent. Its templates and
// arguments are prepared.
func (r *Reply) compile() (err error) {
	switch {
	case r.Delay < 0 || r.ChunkDelay < 0 || r.ChunkSize < 0 || r.Step < 0:
		return errors.New("step, delay, chunkSize and chunkDelay must not be negative")
	case r.FinishReason != "" && !slices.Contains(finishReasons, r.FinishReason):
		return fmt.Errorf("finishReason: %q is none of %s", r.FinishReason, strings.Join(finishReasons, ", "))
	case r.Error != nil && (r.Error.Status < 0 || r.Error.RetryAfter < 0):
		return errors.New("error: status and retryAfter must not be negative")
	}
	if r.FinishReason == "" {
		r.FinishReason = "stop"
		if len(r.Calls) > 0 {
			r.FinishReason = "tool_calls"
		}
	}
	if r.text, err = parse("text", r.Text); err != nil {
		return err
	}
	if r.thought, err = parse("thought", r.Thought); err != nil {
		return err
	}
	r.Calls = slices.Clone(r.Calls)
	for i := range r.Calls {
		call := &r.Calls[i]
		if call.Name == "" {
			return fmt.Errorf("calls: entry %d has no name", i+1)
		}
		if call.Args == nil {
			call.Args = map[string]any{}
		}
		if call.args, err = json.Marshal(call.Args); err != nil {
			return fmt.Errorf("calls: %s: args: %w", call.Name, err)
		}
	}
	return nil
}

// parse makes a template whose errors have the field's name. A member that a
// tool result does not have is one of them, rather than text in an answer.
func parse(field, text string) (*template.Template, error) {
	return template.New(field).Option("missingkey=error").Funcs(question{}.funcs()).Parse(text)
}

// Name implements [agent.Model].
func (m *Model) Name() string { return m.name }

// Generate implements [agent.Model].
func (m *Model) Generate(ctx context.Context, req *agent.ModelRequest, emit func(agent.ModelDelta)) (*agent.ModelResponse, error) {
	q := ask(req)
	for _, r := range m.replies {
		if r.fits(req, q) {
			return r.answer(ctx, q, emit)
		}
	}
	return nil, &agent.ModelError{
		Status: 400, Message: fmt.Sprintf("%s has no reply to %q at step %d", m.name, q.message, q.step),
	}
}

func (r *Reply) fits(req *agent.ModelRequest, q question) bool {
	return (r.Step == 0 || r.Step == q.step) && (r.Agent == "" || r.Agent == req.Agent) &&
		strings.Contains(strings.ToLower(q.message), strings.ToLower(r.Match))
}

// answer streams the reply's texts and returns the whole of it.
func (r *Reply) answer(ctx context.Context, q question, emit func(agent.ModelDelta)) (*agent.ModelResponse, error) {
	if err := pause(ctx, r.Delay); err != nil {
		return nil, err
	}
	response := &agent.ModelResponse{Usage: r.Usage.wire(), FinishReason: r.FinishReason}
	for _, part := range []struct {
		kind agent.ItemKind
		text *template.Template
	}{{agent.ItemThought, r.thought}, {agent.ItemText, r.text}} {
		text, err := q.render(part.text)
		if err != nil {
			return nil, err
		}
		if text == "" {
			continue
		}
		if err := r.stream(ctx, text, agent.ModelDelta{Item: len(response.Items), Kind: part.kind}, emit); err != nil {
			return nil, err
		}
		response.Items = append(response.Items, agent.Item{Kind: part.kind, Text: text})
	}
	if r.Error != nil {
		message := cmp.Or(r.Error.Message, "the script says so")
		return nil, &agent.ModelError{Status: r.Error.Status, Message: message, RetryAfter: r.Error.RetryAfter}
	}
	for _, call := range r.Calls {
		response.Items = append(response.Items, agent.Item{Kind: agent.ItemCall, CallID: call.ID, Name: call.Name, Args: call.args})
	}
	return response, nil
}

// stream emits the text in pieces of chunkSize characters.
func (r *Reply) stream(ctx context.Context, text string, delta agent.ModelDelta, emit func(agent.ModelDelta)) error {
	for text != "" {
		end := len(text)
		if r.ChunkSize > 0 {
			end = prefixLen(text, r.ChunkSize)
		}
		if err := pause(ctx, r.ChunkDelay); err != nil {
			return err
		}
		delta.Text = text[:end]
		emit(delta)
		text = text[end:]
	}
	return ctx.Err()
}

// prefixLen is the length in bytes of the first n characters.
func prefixLen(text string, n int) int {
	at := 0
	for ; n > 0 && at < len(text); n-- {
		_, size := utf8.DecodeRuneInString(text[at:])
		at += size
	}
	return at
}

func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (u *Usage) wire() *session.ModelUsage {
	if u == nil {
		return nil
	}
	usage := session.ModelUsage(*u)
	return &usage
}

// question is what a reply's matcher and templates know of a request.
type question struct {
	message, previous string
	result            json.RawMessage
	step              int
}

func ask(req *agent.ModelRequest) question {
	q := question{step: 1}
	for i, e := range req.Conversation {
		switch e := e.(type) {
		case *session.User:
			q.message, q.previous, q.step = e.Text, q.message, 1
		case *session.Assistant:
			if final(req.Conversation[i+1:]) {
				q.step = 1
			}
		case *session.ToolResult:
			if i == 0 || req.Conversation[i-1].Type() != session.TypeToolResult { // the first one of a step
				q.step++
			}
			q.result = e.Result
			if e.Error != "" {
				q.result, _ = json.Marshal(e.Error) // a string always encodes
			}
		}
	}
	q.step = max(q.step, req.Step)
	return q
}

// final reports whether an answer ended its turn: no call came with it.
func final(after []session.Event) bool {
	for _, e := range after {
		switch e.(type) {
		case *session.ToolCall:
			return false
		case *session.User, *session.ToolResult:
			return true
		}
	}
	return true
}

func (q question) funcs() template.FuncMap {
	return template.FuncMap{
		"message":  func() string { return q.message },
		"previous": func() string { return q.previous },
		"step":     func() int { return q.step },
		"result":   q.value,
	}
}

// value is the last tool result, nil if there is none.
func (q question) value() (value any, err error) {
	if len(q.result) == 0 {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(q.result))
	dec.UseNumber()
	err = dec.Decode(&value)
	return plain(value), err
}

// plain makes the numbers in a value ints where they are whole, so that a
// template writes 12345678 and not 1.2345678e+07, and can compare it.
func plain(value any) any {
	switch value := value.(type) {
	case json.Number:
		if whole, err := value.Int64(); err == nil {
			return whole
		}
		float, _ := value.Float64() // the nearest there is
		return float
	case []any:
		for i := range value {
			value[i] = plain(value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = plain(value[key])
		}
	}
	return value
}

func (q question) render(t *template.Template) (string, error) {
	if t.Root == nil || len(t.Root.Nodes) == 0 {
		return "", nil
	}
	clone, err := t.Clone()
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	if err := clone.Funcs(q.funcs()).Execute(&out, nil); err != nil {
		return "", &agent.ModelError{Status: 400, Message: err.Error()}
	}
	return out.String(), nil
}
