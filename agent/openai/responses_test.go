package openai_test

import (
	"testing"

	"github.com/turnpool/turnpool/agent/openai"
	"github.com/turnpool/turnpool/agent/openai/openaitest"
	"github.com/turnpool/turnpool/session"
)

const completed = `{"type":"response.completed","response":{"status":"completed","output":[]}}`

// Streams of Responses that the test server's own wire has not.
func TestResponsesStreams(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events []string
		items  []seen
		finish string
	}{
		"what the provider wants back": {
			[]string{
				`{"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"a/b==","new":{"b":1,"a":2}}}`,
				`{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"One moment."}`,
				`{"type":"response.output_item.done","output_index":1,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","phase":"commentary","content":[{"type":"output_text","text":"One moment.","annotations":[],"logprobs":[]}]}}`,
				`{"type":"response.output_item.done","output_index":2,"item":{"id":"fc_1","type":"function_call","status":"completed","call_id":"c1","name":"f","arguments":"{}"}}`,
				completed,
			},
			[]seen{
				{Kind: "thought", Context: `openai {"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"a/b==","new":{"b":1,"a":2}}`},
				{Kind: "text", Text: "One moment.", Context: `openai {"id":"msg_1","phase":"commentary","role":"assistant","status":"completed","type":"message"}`},
				{Kind: "call", CallID: "c1", Name: "f", Text: "{}", Context: `openai {"id":"fc_1","status":"completed","type":"function_call"}`},
			}, "tool_calls",
		},
		"items of other kinds have no place": {
			[]string{
				`{"type":"response.output_item.added","output_index":0,"item":{"type":"web_search_call"}}`,
				`{"type":"response.output_item.added","output_index":1,"item":{"type":"message"}}`,
				`{"type":"response.output_item.added","output_index":2,"item":{"type":"newer_than_this"}}`,
				`{"type":"response.output_text.delta","output_index":2,"delta":"lost"}`,
				`{"type":"response.output_item.added","output_index":3,"item":{"type":"message"}}`,
				`{"type":"response.output_text.delta","output_index":3,"delta":"two"}`,
				`{"type":"response.output_text.delta","output_index":1,"delta":"one"}`,
				`{"type":"response.output_item.done","output_index":0,"item":{"type":"web_search_call"}}`,
				`{"type":"response.newer.than.this","output_index":1,"delta":{"an":"object"}}`,
				completed,
			},
			[]seen{{Kind: "text", Text: "one"}, {Kind: "text", Text: "two"}}, "stop",
		},
		"several parts": {
			[]string{
				`{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"First"}`,
				`{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":" part"}`,
				`{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":1,"delta":"Second"}`,
				`{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","summary":[{"type":"summary_text","text":"First part"},{"type":"summary_text","text":"Second"}]}}`,
				`{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"One, "}`,
				`{"type":"response.refusal.delta","output_index":1,"content_index":1,"delta":"no more."}`,
				`{"type":"response.output_item.done","output_index":1,"item":{"type":"message","content":[{"type":"output_text","text":"One, "},{"type":"refusal","refusal":"no more."}]}}`,
				completed,
			},
			[]seen{
				{Kind: "thought", Text: "First part\n\nSecond", Context: `openai {"type":"reasoning","summary":[{"type":"summary_text","text":"First part"},{"type":"summary_text","text":"Second"}]}`},
				{Kind: "text", Text: "One, no more.", Context: `openai {"type":"message"}`},
			}, "content_filter",
		},
		"open thoughts": {
			[]string{
				`{"type":"response.reasoning_text.delta","output_index":0,"content_index":0,"delta":"Hm"}`,
				`{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","content":[{"type":"reasoning_text","text":"Hm"}]}}`,
				completed,
			},
			[]seen{{Kind: "thought", Text: "Hm", Context: `openai {"type":"reasoning","content":[{"type":"reasoning_text","text":"Hm"}]}`}}, "stop",
		},
		"only a last event, only deltas, both": {
			[]string{
				`{"type":"response.output_text.delta","output_index":1,"delta":"never "}`,
				`{"type":"response.output_text.delta","output_index":1,"delta":"finished"}`,
				`{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call"}}`,
				`{"type":"response.function_call_arguments.delta","output_index":2,"delta":"{\"a\""}`,
				`{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"newer"},"output":[
					{"type":"web_search_call"},{"type":"message","content":[{"type":"output_text","text":"never finished"}]},
					{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\":1}"},{"type":"reasoning","id":"rs_1"}]}}`,
			},
			[]seen{
				{Kind: "text", Text: "never finished", Context: `openai {"type":"message"}`},
				{Kind: "call", CallID: "c1", Name: "f", Text: `{"a":1}`, Context: `openai {"type":"function_call"}`},
				{Kind: "thought", Context: `openai {"type":"reasoning","id":"rs_1"}`},
			}, "length",
		},
		"the first final form counts": {
			[]string{
				`{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"c1","name":"f","arguments":"1"}}`,
				`{"type":"response.completed","response":{"status":"completed","output":[{"type":"function_call","call_id":"c2","name":"g","arguments":"2"}]}}`,
			},
			[]seen{{Kind: "call", CallID: "c1", Name: "f", Text: "1", Context: `openai {"type":"function_call"}`}}, "tool_calls",
		},
		"what comes after the end is not read": {
			[]string{completed, `no JSON`}, nil, "stop",
		},
		"null errors": {
			[]string{`{"type":"response.created","error":null,"response":{"error":null}}`, `{"type":"","error":null}`, `{}`, completed}, nil, "stop",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model, srv := setup(t, openai.Config{API: openai.Responses})
			srv.Reply(openaitest.Reply{Body: sse(false, flat(c.events)...)})
			response := mustAsk(t, model, hello())
			equal(t, "items", see(response.Items), c.items)
			equal(t, "finish reason", response.FinishReason, c.finish)
		})
	}
}

func TestResponsesUsage(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]*session.ModelUsage{
		`null`: nil,
		`{"input_tokens":9,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":3},"output_tokens":8,"output_tokens_details":{"reasoning_tokens":7},"total_tokens":17}`: {
			InputTokens: 9, CachedTokens: 4, CacheWriteTokens: 3, OutputTokens: 8, ReasoningTokens: 7,
		},
	} {
		model, srv := setup(t, openai.Config{API: openai.Responses})
		srv.Reply(openaitest.Reply{Body: sse(true, `{"type":"response.completed","response":{"status":"completed","output":[],"usage":`+text+`}}`)})
		equal(t, text, mustAsk(t, model, hello()).Usage, want)
	}
}
