package openai_test

import (
	"strings"
	"testing"

	"github.com/turnpool/turnpool/agent/openai"
	"github.com/turnpool/turnpool/agent/openai/openaitest"
	"github.com/turnpool/turnpool/session"
)

// chunk is a chunk with one choice.
func chunk(delta string) string { return `{"choices":[{"index":0,"delta":{` + delta + `}}]}` }

func callChunk(calls string) string { return chunk(`"tool_calls":[` + calls + `]`) }

func finishChunk(reason string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

// flat writes each event on one line.
func flat(events []string) []string {
	for i, e := range events {
		events[i] = strings.NewReplacer("\n", "", "\t", "").Replace(e)
	}
	return events
}

// Streams of Chat Completions as servers other than OpenAI's write them.
func TestChatStreams(t *testing.T) {
	t.Parallel()
	done := "[DONE]"
	two := []seen{
		{Kind: "call", CallID: "c1", Name: "f", Text: `{"a":1}`},
		{Kind: "call", CallID: "c2", Name: "g", Text: `{"b":2}`},
	}
	for name, c := range map[string]struct {
		events []string
		items  []seen
		finish string
	}{
		"interleaved calls": {
			[]string{
				callChunk(`{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}`),
				callChunk(`{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":"{"}}`),
				callChunk(`{"index":0,"function":{"arguments":"{\"a\""}},{"index":1,"function":{"arguments":"\"b\":"}}`),
				callChunk(`{"index":1,"function":{"arguments":"2}"}}`), callChunk(`{"index":0,"function":{"arguments":":1}"}}`),
				finishChunk("tool_calls"), done,
			}, two, "tool_calls",
		},
		"the second call first": {
			[]string{
				callChunk(`{"index":1,"id":"c2","function":{"name":"g","arguments":"{\"b\":2}"}}`),
				callChunk(`{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\":1}"}}`),
				finishChunk("tool_calls"), done,
			}, []seen{two[1], two[0]}, "tool_calls",
		},
		"whole calls in one chunk, which stops": {
			[]string{
				`{"choices":[{"delta":{"content":null,"tool_calls":[
					{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\":1}"}},
					{"index":1,"id":"c2","function":{"name":"g","arguments":"{\"b\":2}"}}]},"finish_reason":"stop"}]}`, done,
			}, two, "tool_calls",
		},
		"whole calls without an index": {
			[]string{
				callChunk(`{"id":"c1","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"c2","function":{"name":"g","arguments":"{\"b\":2}"}}`),
				finishChunk("tool_calls"), done,
			}, two, "tool_calls",
		},
		"pieces without an index, with an id": {
			[]string{
				callChunk(`{"id":"c1","function":{"name":"f","arguments":"{\"a\""}}`), callChunk(`{"id":"c2","function":{"name":"g","arguments":"{\"b\""}}`),
				callChunk(`{"id":"c1","function":{"arguments":":1}"}}`), callChunk(`{"id":"c2","function":{"arguments":":2}"}}`),
				finishChunk("tool_calls"), done,
			}, two, "tool_calls",
		},
		"pieces without index and id": {
			[]string{
				callChunk(`{"id":"c1","function":{"name":"f","arguments":"{\"a\""}}`), callChunk(`{"index":null,"function":{"arguments":":1}"}}`),
				callChunk(`{"id":"c2","function":{"name":"g","arguments":"{\"b\""}}`), callChunk(`{"function":{"arguments":":2}"}}`),
				finishChunk("tool_calls"), done,
			}, two, "tool_calls",
		},
		"no ids at all": {
			[]string{
				callChunk(`{"function":{"name":"f","arguments":"{\"a\":1}"}},{"function":{"name":"g","arguments":"{\"b\":2}"}}`),
				finishChunk("tool_calls"), done,
			}, []seen{{Kind: "call", Name: "f", Text: `{"a":1}`}, {Kind: "call", Name: "g", Text: `{"b":2}`}}, "tool_calls",
		},
		"one index for all": {
			[]string{
				callChunk(`{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\":1}"}}`),
				callChunk(`{"index":0,"id":"c2","function":{"name":"g","arguments":"{\"b\""}}`),
				callChunk(`{"index":0,"function":{"arguments":":2}"}}`),
				finishChunk("tool_calls"), done,
			}, two, "tool_calls",
		},
		"everything again in each piece": {
			[]string{
				callChunk(`{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"a\""}}`),
				callChunk(`{"index":0,"id":"c1","function":{"name":"f","arguments":":1}"}}`),
				callChunk(`{"index":1,"id":"","function":{"name":"g","arguments":"{"}}`),
				callChunk(`{"index":1,"id":"c2","function":{"name":"","arguments":"\"b\":2}"}}`),
				finishChunk("tool_calls"), done,
			}, two, "tool_calls",
		},
		"thoughts between texts": {
			[]string{
				chunk(`"reasoning_content":"Hm","reasoning":"Hm"`), chunk(`"content":"One, "`), chunk(`"reasoning_content":", yes"`),
				chunk(`"content":"two","reasoning_content":null`), finishChunk("stop"), done,
			}, []seen{
				{Kind: "thought", Text: "Hm, yes", Context: `openai {"field":"reasoning_content"}`}, {Kind: "text", Text: "One, two"},
			}, "stop",
		},
		"thoughts under the other name": {
			[]string{chunk(`"reasoning":"Hm","reasoning_content":"","reasoning_details":[{}]`), chunk(`"reasoning":{"no":"text"}`), finishChunk("stop"), done},
			[]seen{{Kind: "thought", Text: "Hm", Context: `openai {"field":"reasoning"}`}}, "stop",
		},
		"what Google wants back": {
			[]string{callChunk(`{"index":0,"id":"c1","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"a/b=="}}}`), finishChunk("tool_calls"), done},
			[]seen{{Kind: "call", CallID: "c1", Name: "f", Text: "{}", Context: `openai {"extra_content":{"google":{"thought_signature":"a/b=="}}}`}}, "tool_calls",
		},
		"empty choices, other choices, null errors": {
			[]string{
				`{"choices":[],"prompt_filter_results":[]}`, `{"choices":null,"error":null}`, `{"error":null}`,
				`{"choices":[{"index":1,"delta":{"content":"the other"},"finish_reason":"length"},{"index":0,"delta":{"content":"this one"}}]}`,
				`{"choices":[{"index":0,"delta":null,"finish_reason":"stop"}]}`, `{"choices":[]}`, done,
			}, []seen{{Kind: "text", Text: "this one"}}, "stop",
		},
		"refusal": {
			[]string{chunk(`"content":"One, "`), chunk(`"refusal":"no more."`), finishChunk("stop"), done},
			[]seen{{Kind: "text", Text: "One, no more."}}, "content_filter",
		},
		"no finish reason":                {[]string{chunk(`"content":"One"`), done}, []seen{{Kind: "text", Text: "One"}}, "stop"},
		"an empty finish reason":          {[]string{finishChunk(""), chunk(`"content":"One"`), finishChunk("length"), finishChunk(""), done}, []seen{{Kind: "text", Text: "One"}}, "length"},
		"a finish reason of their own":    {[]string{chunk(`"content":"One"`), finishChunk("eos_token"), done}, []seen{{Kind: "text", Text: "One"}}, "stop"},
		"an old finish reason":            {[]string{callChunk(`{"index":0,"id":"c1","function":{"name":"f"}}`), finishChunk("function_call"), done}, []seen{{Kind: "call", CallID: "c1", Name: "f"}}, "tool_calls"},
		"no [DONE]":                       {[]string{chunk(`"content":"One"`), finishChunk("length")}, []seen{{Kind: "text", Text: "One"}}, "length"},
		"what comes after it is not read": {[]string{finishChunk("stop"), done, `no JSON`}, nil, "stop"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model, srv := setup(t, openai.Config{})
			srv.Reply(openaitest.Reply{Body: sse(false, flat(c.events)...)})
			response := mustAsk(t, model, hello())
			equal(t, "items", see(response.Items), c.items)
			equal(t, "finish reason", response.FinishReason, c.finish)
		})
	}
}

// A connection that is lost after the finish reason has cost the usage at most.
func TestChatCutAfterTheEnd(t *testing.T) {
	t.Parallel()
	model, srv := setup(t, openai.Config{})
	body := sse(false, chunk(`"content":"One"`), finishChunk("stop"), `{"choices":[],"usage":{"prompt_tokens":1}}`, "[DONE]")
	srv.Reply(openaitest.Reply{Body: body, DropAt: indexOf(t, body, `"usage"`)})
	response := mustAsk(t, model, hello())
	equal(t, "items", said(response.Items), []seen{{Kind: "text", Text: "One"}})
	equal(t, "usage", response.Usage, (*session.ModelUsage)(nil))
}

func TestChatUsage(t *testing.T) {
	t.Parallel()
	const early = `{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}`
	const late = `{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":3,"audio_tokens":0},
		"completion_tokens":8,"completion_tokens_details":{"reasoning_tokens":7},"total_tokens":17}`
	full := &session.ModelUsage{InputTokens: 9, CachedTokens: 4, CacheWriteTokens: 3, OutputTokens: 8, ReasoningTokens: 7}
	for name, c := range map[string]struct {
		events []string
		want   *session.ModelUsage
	}{
		"none":                    {[]string{finishChunk("stop")}, nil},
		"null":                    {[]string{finishChunk("stop"), `{"choices":[],"usage":null}`}, nil},
		"in a chunk of its own":   {[]string{finishChunk("stop"), `{"choices":[],"usage":` + late + `}`}, full},
		"with the finish reason":  {[]string{`{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":` + late + `}`}, full},
		"growing with each chunk": {[]string{`{"choices":[],"usage":` + early + `}`, `{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":` + late + `}`, `{"choices":[],"usage":null}`}, full},
		"without details":         {[]string{finishChunk("stop"), `{"choices":[],"usage":` + early + `}`}, &session.ModelUsage{InputTokens: 9, OutputTokens: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model, srv := setup(t, openai.Config{})
			srv.Reply(openaitest.Reply{Body: sse(false, flat(append(c.events, "[DONE]"))...)})
			equal(t, "usage", mustAsk(t, model, hello()).Usage, c.want)
		})
	}
}
