package openaitest

import "fmt"

// chatBody is the answer to the nth request as a stream of Chat Completions.
func chatBody(reply Reply, nth int) string {
	w := &wire{ascii: reply.ASCII}
	chunk := func(choices []any, usage any) {
		w.event(obj{
			"id": fmt.Sprintf("chatcmpl-%d", nth), "object": "chat.completion.chunk", "created": 1767225600,
			"model": "test-model", "choices": choices, "usage": usage,
		})
	}
	delta := func(fields obj) {
		chunk([]any{obj{"index": 0, "delta": fields, "finish_reason": nil}}, nil)
	}
	delta(obj{"role": "assistant", "content": ""})
	calls := 0
	for _, group := range runs(reply.Items) {
		if reply.Items[group[0]].kind == "call" {
			chatCalls(reply.Items[group[0]:group[0]+len(group)], calls, delta)
			calls += len(group)
			continue
		}
		it := reply.Items[group[0]]
		field := map[string]string{"text": "content", "refusal": "refusal", "thought": "reasoning_content"}[it.kind]
		for _, piece := range pieces(it.text) {
			delta(obj{field: piece})
		}
	}
	chunk([]any{obj{"index": 0, "delta": obj{}, "finish_reason": reply.finish()}}, nil)
	usage := reply.usage()
	chunk([]any{}, obj{
		"prompt_tokens": usage.Input, "completion_tokens": usage.Output, "total_tokens": usage.Input + usage.Output,
		"prompt_tokens_details":     obj{"cached_tokens": usage.Cached},
		"completion_tokens_details": obj{"reasoning_tokens": usage.Reasoning},
	})
	return w.out.String() + "data: [DONE]\n\n"
}

// chatCalls writes adjacent calls, the first of which has the index from.
func chatCalls(items []Item, from int, delta func(obj)) {
	texts := make([]string, len(items))
	for i, it := range items {
		texts[i] = it.text
		delta(obj{"tool_calls": []any{obj{
			"index": from + i, "id": it.call, "type": "function", "function": obj{"name": it.name, "arguments": ""},
		}}})
	}
	interleave(texts, func(which int, piece string) {
		delta(obj{"tool_calls": []any{obj{"index": from + which, "function": obj{"arguments": piece}}}})
	})
}
