package script_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/script"
	"github.com/turnpool/turnpool/session"
)

var _ agent.Model = (*script.Model)(nil)

// answer asks a model, with the messages of a person before what is in req.
func answer(t *testing.T, m *script.Model, req agent.ModelRequest, messages ...string) (*agent.ModelResponse, []agent.ModelDelta, error) {
	t.Helper()
	var said []session.Event
	for _, text := range messages {
		said = append(said, &session.User{Text: text})
	}
	req.Conversation = append(said, req.Conversation...)
	if req.Step == 0 {
		req.Step = 1
	}
	var deltas []agent.ModelDelta
	response, err := m.Generate(t.Context(), &req, func(d agent.ModelDelta) { deltas = append(deltas, d) })
	return response, deltas, err
}

func mustNew(t testing.TB, replies ...*script.Reply) *script.Model {
	t.Helper()
	model, err := script.New("demo", replies...)
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// text is the one text that a model answers with.
func text(t *testing.T, m *script.Model, req agent.ModelRequest, messages ...string) string {
	t.Helper()
	response, _, err := answer(t, m, req, messages...)
	if err != nil {
		t.Fatal(err)
	}
	if len(response.Items) != 1 || response.Items[0].Kind != agent.ItemText {
		t.Fatalf("items %+v", response.Items)
	}
	return response.Items[0].Text
}

// The first reply that fits answers.
func TestMatchersInOrder(t *testing.T) {
	t.Parallel()
	model := mustNew(t,
		&script.Reply{Match: "book", Step: 2, Text: "booked"},
		&script.Reply{Match: "BOOK", Agent: "concierge", Text: "concierge books"},
		&script.Reply{Match: "book", Text: "somebody books"},
		&script.Reply{Step: 3, Text: "third step"},
		&script.Reply{Match: "Straße", Text: "street"},
		&script.Reply{Match: "", Agent: "night", Text: "good night"},
	)
	for _, c := range []struct {
		agent   string
		step    int
		message string
		want    string
	}{
		{"concierge", 1, "Book me in", "concierge books"},
		{"concierge", 2, "Book me in", "booked"},
		{"other", 1, "my cookbook", "somebody books"},
		{"other", 2, "bOOk", "booked"},
		{"other", 3, "bOOk", "somebody books"},
		{"other", 3, "hello", "third step"},
		{"other", 1, "in welcher STRASSE", ""},
		{"other", 1, "in welcher STRAßE", "street"},
		{"night", 1, "hello", "good night"},
		{"other", 1, "hello", ""},
		{"Concierge", 1, "book", "somebody books"},
	} {
		req := agent.ModelRequest{Agent: c.agent, Step: c.step}
		if c.want != "" {
			equal(t, fmt.Sprint(c), text(t, model, req, c.message), c.want)
			continue
		}
		_, _, err := answer(t, model, req, c.message)
		var failed *agent.ModelError
		if !errors.As(err, &failed) || failed.Status != 400 || failed.Retryable() || !strings.Contains(failed.Message, c.message) {
			t.Errorf("%v: error %v", c, err)
		}
	}
}

// The last message counts, whoever else spoke after it.
func TestTheLastMessageCounts(t *testing.T) {
	t.Parallel()
	model := mustNew(t, &script.Reply{Match: "old", Text: "wrong"}, &script.Reply{Text: "right"})
	req := agent.ModelRequest{Conversation: []session.Event{&session.Assistant{Text: "old"}}}
	equal(t, "answer", text(t, model, req, "old", "new"), "right")
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	result := func(text string) []session.Event {
		return []session.Event{&session.ToolCall{}, &session.ToolResult{Result: json.RawMessage(text)}}
	}
	for _, c := range []struct {
		template string
		heard    []session.Event
		said     []string
		want     string
	}{
		{template: "You said {{message}}", said: []string{"hi <b>"}, want: "You said hi <b>"},
		{template: "{{message}}", said: []string{"{{message}} {{nothing}}"}, want: "{{message}} {{nothing}}"},
		{template: "[{{message}}][{{previous}}]", want: "[][]"},
		{template: "{{previous}} then {{message}}", said: []string{"a", "b", "c"}, want: "b then c"},
		{template: "step {{step}}", want: "step 1"},
		{template: "{{(result).nights}} nights", heard: result(`{"nights":3}`), want: "3 nights"},
		{template: "{{(result).id}}", heard: result(`{"id":12345678901}`), want: "12345678901"},
		{template: "{{(result).price}}", heard: result(`{"price":2.50}`), want: "2.5"},
		{template: "{{if gt (result).nights 2}}long{{end}}", heard: result(`{"nights":3}`), want: "long"},
		{template: "{{range result}}{{.name}};{{end}}", heard: result(`[{"name":"a"},{"name":"b"}]`), want: "a;b;"},
		{template: "{{result}}", heard: result(`"text"`), want: "text"},
		{template: "{{if result}}yes{{else}}no{{end}}", want: "no"},
		{template: "{{if result}}yes{{else}}no{{end}}", heard: result(`null`), want: "no"},
		{template: "{{result}}", heard: append(result(`1`), &session.ToolResult{Error: `no "such" booking`}), want: `no "such" booking`},
		{template: "{{result}}", heard: append(result(`1`), result(`2`)...), want: "2"},
		{template: `{{printf "%q" message}}`, said: []string{"é\n"}, want: `"é\n"`},
	} {
		req := agent.ModelRequest{Conversation: c.heard}
		equal(t, c.template, text(t, mustNew(t, &script.Reply{Text: c.template}), req, c.said...), c.want)
	}
}

// A template that fails is the script's fault, and no other call will mend it.
func TestTemplateErrors(t *testing.T) {
	t.Parallel()
	heard := []session.Event{&session.ToolResult{Result: json.RawMessage(`{"nights":3}`)}}
	for template, conversation := range map[string][]session.Event{
		"{{(result).nights}}": nil, "{{(result).nigths}}": heard, "{{(result).nights.x}}": heard, "{{index message 99}}": nil,
	} {
		_, _, err := answer(t, mustNew(t, &script.Reply{Text: template}), agent.ModelRequest{Conversation: conversation}, "hi")
		var failed *agent.ModelError
		if !errors.As(err, &failed) || failed.Retryable() {
			t.Errorf("%s: error %v", template, err)
		}
	}
}

func TestChunks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		size int
		want []string
	}{
		{"hello world", 0, []string{"hello world"}},
		{"hello world", 4, []string{"hell", "o wo", "rld"}},
		{"hello", 5, []string{"hello"}},
		{"hello", 50, []string{"hello"}},
		{"dél 日本語 🙂!", 2, []string{"dé", "l ", "日本", "語 ", "🙂!"}},
		{"", 2, nil},
	} {
		_, deltas, err := answer(t, mustNew(t, &script.Reply{Text: c.text, ChunkSize: c.size}), agent.ModelRequest{}, "hi")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range deltas {
			got = append(got, d.Text)
		}
		equal(t, c.text, got, c.want)
	}
}

// Chunks are the text again, and never end inside a character.
func TestChunksOfAnyText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		message := rapid.String().Draw(rt, "text")
		size := rapid.IntRange(1, 9).Draw(rt, "chunkSize")
		_, deltas, err := answer(t, mustNew(t, &script.Reply{Text: "{{message}}", ChunkSize: size}), agent.ModelRequest{}, message)
		if err != nil {
			rt.Fatal(err)
		}
		var whole strings.Builder
		for i, d := range deltas {
			whole.WriteString(d.Text)
			if n := utf8.RuneCountInString(d.Text); n > size || n < size && i < len(deltas)-1 || !utf8.ValidString(d.Text) {
				rt.Errorf("chunk %d of %q is %q", i, message, d.Text)
			}
		}
		if whole.String() != message {
			rt.Errorf("chunks make %q of %q", whole.String(), message)
		}
	})
}

// A thought has its own message, before the text's.
func TestThoughtAndText(t *testing.T) {
	t.Parallel()
	model := mustNew(t, &script.Reply{Thought: "hm {{message}}", Text: "yes", ChunkSize: 3})
	response, deltas, err := answer(t, model, agent.ModelRequest{}, "x")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "deltas", deltas, []agent.ModelDelta{
		{Item: 0, Kind: agent.ItemThought, Text: "hm "}, {Item: 0, Kind: agent.ItemThought, Text: "x"},
		{Item: 1, Kind: agent.ItemText, Text: "yes"},
	})
	equal(t, "items", response.Items, []agent.Item{{Kind: agent.ItemThought, Text: "hm x"}, {Kind: agent.ItemText, Text: "yes"}})
	if response.Usage != nil {
		t.Errorf("usage %+v, though the reply has none", response.Usage)
	}
}

func TestFinishReason(t *testing.T) {
	t.Parallel()
	for want, reply := range map[string]*script.Reply{
		"stop":           {Text: "hi"},
		"tool_calls":     {Calls: []script.Call{{Name: "t"}}},
		"content_filter": {FinishReason: "content_filter", Calls: []script.Call{{Name: "t"}}},
	} {
		response, _, err := answer(t, mustNew(t, reply), agent.ModelRequest{}, "hi")
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "finish reason", response.FinishReason, want)
	}
}

func TestDelays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		model := mustNew(t, &script.Reply{Delay: 2 * time.Second, Thought: "ab", Text: "cdef", ChunkSize: 2, ChunkDelay: 20 * time.Millisecond})
		begin := time.Now()
		var at []time.Duration
		_, err := model.Generate(t.Context(), &agent.ModelRequest{}, func(agent.ModelDelta) { at = append(at, time.Since(begin)) })
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "times of deltas", at, []time.Duration{2020 * time.Millisecond, 2040 * time.Millisecond, 2060 * time.Millisecond})
		equal(t, "time of the answer", time.Since(begin), 2060*time.Millisecond)
	})
}

// An error comes after the text was streamed.
func TestError(t *testing.T) {
	t.Parallel()
	model := mustNew(t,
		&script.Reply{Match: "silent", Error: &script.Error{Status: 503}},
		&script.Reply{Text: "half a sen", ChunkSize: 6, Error: &script.Error{Status: 429, Message: "slow down", RetryAfter: 3 * time.Second}})
	response, deltas, err := answer(t, model, agent.ModelRequest{}, "hi")
	var failed *agent.ModelError
	if !errors.As(err, &failed) || response != nil {
		t.Fatalf("%v, %v", response, err)
	}
	equal(t, "error", *failed, agent.ModelError{Status: 429, Message: "slow down", RetryAfter: 3 * time.Second})
	equal(t, "deltas", len(deltas), 2)

	if _, _, err = answer(t, model, agent.ModelRequest{}, "silent"); err == nil || err.Error() != "model: status 503: the script says so" {
		t.Errorf("error %v", err)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reply  *script.Reply
		after  time.Duration
		deltas int
	}{
		"before":       {&script.Reply{Text: "abc"}, 0, 0},
		"in delay":     {&script.Reply{Text: "abc", Delay: time.Hour}, time.Second, 0},
		"between":      {&script.Reply{Text: "abcdef", ChunkSize: 1, ChunkDelay: time.Second}, 2500 * time.Millisecond, 2},
		"in a thought": {&script.Reply{Thought: "abc", ChunkDelay: time.Hour}, time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.after == 0 {
					cancel()
				} else {
					time.AfterFunc(c.after, cancel)
				}
				begin, deltas := time.Now(), 0
				response, err := mustNew(t, c.reply).Generate(ctx, &agent.ModelRequest{}, func(agent.ModelDelta) { deltas++ })
				if !errors.Is(err, context.Canceled) || response != nil {
					t.Errorf("%v, %v", response, err)
				}
				equal(t, "deltas", deltas, c.deltas)
				equal(t, "time", time.Since(begin), c.after)
			})
		})
	}
}

// A model keeps no state: the same question has the same answer, whoever else
// asks at the same time.
func TestSameQuestionSameAnswer(t *testing.T) {
	t.Parallel()
	model := mustNew(t,
		&script.Reply{Match: "call", Step: 1, Calls: []script.Call{{Name: "t", Args: map[string]any{"a": 1}}}},
		&script.Reply{Thought: "{{previous}}", Text: "{{message}} at {{step}}", ChunkSize: 3})
	done := make(chan string)
	const askers = 50
	for i := range askers {
		go func() {
			message := fmt.Sprintf("question %d", i)
			response, _, err := answer(t, model, agent.ModelRequest{Step: i}, "before", message)
			switch {
			case err != nil:
				done <- err.Error()
			case response.Items[0].Text != "before" || response.Items[1].Text != fmt.Sprintf("%s at %d", message, max(1, i)):
				done <- fmt.Sprintf("%d: %+v", i, response.Items)
			default:
				done <- ""
			}
		}()
	}
	for range askers {
		if fault := within(t, done); fault != "" {
			t.Error(fault)
		}
	}
}

// A turn that goes on after a person's answer is at the step after the question,
// whatever its own count says.
func TestStepAfterAnswer(t *testing.T) {
	t.Parallel()
	model := mustNew(t,
		&script.Reply{Match: "book", Step: 1, Calls: []script.Call{{Name: "ask"}}},
		&script.Reply{Match: "book", Step: 2, Text: "booked for {{(result).night}}"},
		&script.Reply{Step: 1, Text: "first step"},
	)
	asked := []session.Event{
		&session.User{Text: "hello"}, &session.Assistant{Text: "first step"},
		&session.User{Text: "book"}, &session.ToolCall{CallID: "c1"}, &session.ToolCall{CallID: "c2"},
		&session.ToolResult{CallID: "c1"}, &session.ToolResult{CallID: "c2", Result: json.RawMessage(`{"night":"Friday"}`)},
	}
	if got := text(t, model, agent.ModelRequest{Step: 1, Conversation: asked}); got != "booked for Friday" {
		t.Errorf("after the answer: %q", got)
	}
	over := append(asked, &session.Assistant{Text: "booked for Friday"}, &session.User{Text: "thanks"})
	if got := text(t, model, agent.ModelRequest{Step: 1, Conversation: over}); got != "first step" {
		t.Errorf("the next message: %q", got)
	}
}
