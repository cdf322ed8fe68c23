package script_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/script"
	"github.com/turnpool/turnpool/session"
)

const everything = `
scripts:
  demo:
    - match: book
      agent: concierge
      step: 1
      thought: Let me look.
      text: One moment.
      calls: [{id: c1, name: lookup_stay, args: {ref: B-42, nights: [1, 2.5], deep: {a: null}}}, {name: now}]
      delay: 1.5s
      chunkSize: 6
      chunkDelay: 20ms
      usage: {inputTokens: 12, outputTokens: 5, cachedTokens: 4, cacheWriteTokens: 3, reasoningTokens: 2}
      finishReason: length
    - error: {status: 429, message: slow down, retryAfter: 3s}
  other: []
`

func TestParse(t *testing.T) {
	t.Parallel()
	models, err := script.Parse([]byte(everything))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "models", len(models), 2)
	equal(t, "names", []string{models["demo"].Name(), models["other"].Name()}, []string{"script/demo", "script/other"})
	response, _, err := answer(t, models["demo"], agent.ModelRequest{Agent: "concierge", Step: 1}, "Book me in")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "items", response.Items, []agent.Item{
		{Kind: agent.ItemThought, Text: "Let me look."},
		{Kind: agent.ItemText, Text: "One moment."},
		{Kind: agent.ItemCall, CallID: "c1", Name: "lookup_stay", Args: []byte(`{"deep":{"a":null},"nights":[1,2.5],"ref":"B-42"}`)},
		{Kind: agent.ItemCall, Name: "now", Args: []byte(`{}`)},
	})
	equal(t, "usage", response.Usage, &session.ModelUsage{
		InputTokens: 12, OutputTokens: 5, CachedTokens: 4, CacheWriteTokens: 3, ReasoningTokens: 2,
	})
	equal(t, "finish reason", response.FinishReason, "length")
}

func TestParseNothing(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "scripts:", "scripts: {}"} {
		models, err := script.Parse([]byte(text))
		if err != nil || len(models) != 0 {
			t.Errorf("%q: %v, %v", text, models, err)
		}
	}
}

// Mistakes are found when the file is read, and say where they are.
func TestParseErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string // parts of the error
	}{
		"unknown field":       {"scripts:\n  demo:\n    - txet: hi", []string{`[3:7]`, `unknown field "txet"`}},
		"unknown top field":   {"scripts: {}\nscript: {}", []string{`[2:1]`, `unknown field "script"`}},
		"unknown call field":  {"scripts:\n  demo:\n    - calls:\n      - {name: t, arg: {}}", []string{`[4:19]`, `unknown field "arg"`}},
		"unknown error field": {"scripts:\n  demo:\n    - error: {code: 5}", []string{`[3:15]`, `unknown field "code"`}},
		"not a list":          {"scripts:\n  demo: hi", []string{`[2:9]`}},
		"not YAML":            {"scripts:\n  demo: [", []string{`[2:9]`}},
		"a number as time":    {"scripts:\n  demo:\n    - delay: 20", []string{`[3:14]`}},
		"no such time":        {"scripts:\n  demo:\n    - delay: 20 ms", []string{`unknown unit " ms" in duration "20 ms"`}},
		"negative time":       {"scripts:\n  demo:\n    - chunkDelay: -1s", []string{"script \"demo\", reply 1", "negative"}},
		"negative step":       {"scripts:\n  demo:\n    - step: -1", []string{"negative"}},
		"negative chunk":      {"scripts:\n  demo:\n    - chunkSize: -1", []string{"negative"}},
		"negative retryAfter": {"scripts:\n  demo:\n    - error: {retryAfter: -1s}", []string{"retryAfter"}},
		"empty reply":         {"scripts:\n  demo:\n    - text: hi\n    -", []string{`script "demo", reply 2: it is empty`}},
		"no name of a call":   {"scripts:\n  demo:\n    - calls: [{args: {}}]", []string{"reply 1: calls: entry 1 has no name"}},
		"args that are not":   {"scripts:\n  demo:\n    - calls: [{name: t, args: {x: .nan}}]", []string{"calls: t: args"}},
		"template":            {"scripts:\n  demo:\n    - text: \"{{mesage}}\"", []string{`reply 1: template: text:1: function "mesage" not defined`}},
		"thought template":    {"scripts:\n  demo:\n    - thought: \"{{\"", []string{`thought`}},
		"finish reason":       {"scripts:\n  demo:\n    - finishReason: done", []string{`"done" is none of stop`}},
		"two mistakes":        {"scripts:\n  b:\n    - step: -1\n  a:\n    - step: -1", []string{"script \"a\", reply 1", "\nscript \"b\", reply 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			models, err := script.Parse([]byte(c.text))
			if err == nil {
				t.Fatalf("no error, models %v", models)
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q, want one with %q", err, part)
				}
			}
		})
	}
}

// The caller's replies are not changed, and changing them later changes nothing.
func TestNewCopies(t *testing.T) {
	t.Parallel()
	reply := &script.Reply{Text: "hi", Calls: []script.Call{{Name: "t"}}}
	model, err := script.New("m", reply)
	if err != nil {
		t.Fatal(err)
	}
	if reply.FinishReason != "" || reply.Calls[0].Args != nil {
		t.Errorf("the reply was changed: %+v", reply)
	}
	reply.Text, reply.Calls[0].Name = "bye", "u"
	response, _, err := answer(t, model, agent.ModelRequest{Step: 1}, "x")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "items", []string{response.Items[0].Text, response.Items[1].Name}, []string{"hi", "t"})

	if _, err := script.New("m", nil); err == nil {
		t.Error("a nil reply is fine")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(everything))
	f.Add([]byte("scripts:\n  demo:\n    - {text: \"{{(result).nights}} {{message}}\", chunkDelay: 20ms}"))
	f.Add([]byte("scripts: {a: [{calls: [{name: t, args: [1, {b: &x 2, c: *x}]}]}]}"))
	f.Add([]byte("scripts: {a: [{<<: {text: hi}}]}"))
	f.Add([]byte("scripts: [1"))
	f.Add([]byte("---\n...\n---\nscripts: !!binary aGk="))
	f.Fuzz(func(t *testing.T, data []byte) {
		models, err := script.Parse(data)
		if err != nil {
			if models != nil {
				t.Error("models beside an error")
			}
			return
		}
		for name, model := range models {
			if model == nil || model.Name() != "script/"+name {
				t.Errorf("model %q is %v", name, model)
			}
		}
	})
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// within fails the test if it takes longer than a minute of real time.
func within[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came in a minute")
		panic("unreachable")
	}
}
