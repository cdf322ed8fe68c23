package openaitest

import (
	"fmt"
	"maps"
)

// responsesBody is the answer to the nth request as a stream of Responses.
func responsesBody(reply Reply, nth int) string {
	w := &responsesWire{wire: wire{ascii: reply.ASCII, named: true}, nth: nth}
	response := obj{"id": fmt.Sprintf("resp_%d", nth), "object": "response", "created_at": 1767225600, "model": "test-model"}
	state := func(kind, status string, more obj) {
		fields := maps.Clone(response)
		maps.Copy(fields, obj{"status": status, "output": []any{}, "error": nil, "incomplete_details": nil, "usage": nil})
		maps.Copy(fields, more)
		w.event(obj{"type": kind, "response": fields})
	}
	state("response.created", "in_progress", nil)
	state("response.in_progress", "in_progress", nil)
	output := []any{}
	for _, group := range runs(reply.Items) {
		output = append(output, w.group(reply.Items, group)...)
	}
	usage := reply.usage()
	end := obj{"output": output, "usage": obj{
		"input_tokens": usage.Input, "output_tokens": usage.Output, "total_tokens": usage.Input + usage.Output,
		"input_tokens_details":  obj{"cached_tokens": usage.Cached},
		"output_tokens_details": obj{"reasoning_tokens": usage.Reasoning},
	}}
	switch reply.finish() {
	case "length":
		end["incomplete_details"] = obj{"reason": "max_output_tokens"}
		state("response.incomplete", "incomplete", end)
	case "content_filter":
		end["incomplete_details"] = obj{"reason": "content_filter"}
		state("response.incomplete", "incomplete", end)
	default:
		state("response.completed", "completed", end)
	}
	return w.out.String()
}

type responsesWire struct {
	wire
	nth int // the request's number, which is part of every id
}

// group writes one item, or calls side by side, and returns them in their final
// form.
func (w *responsesWire) group(items []Item, places []int) (done []any) {
	var texts []string
	for _, place := range places {
		w.event(obj{"type": "response.output_item.added", "output_index": place, "item": w.item(items[place], place, false)})
		texts = append(texts, items[place].text)
	}
	it, place := items[places[0]], places[0]
	if it.kind == "call" {
		interleave(texts, func(which int, piece string) {
			w.event(obj{
				"type": "response.function_call_arguments.delta", "item_id": w.id("fc", places[which]),
				"output_index": places[which], "delta": piece,
			})
		})
	} else {
		w.text(it, place)
	}
	for _, place := range places {
		final := w.item(items[place], place, true)
		w.event(obj{"type": "response.output_item.done", "output_index": place, "item": final})
		done = append(done, final)
	}
	return done
}

// text writes the pieces of a text or a thought.
func (w *responsesWire) text(it Item, place int) {
	if it.text == "" && it.kind == "thought" {
		return
	}
	at := obj{"output_index": place, "content_index": 0, "item_id": w.id("msg", place)}
	names := map[string][3]string{
		"text":    {"response.content_part", "response.output_text", "text"},
		"refusal": {"response.content_part", "response.refusal", "refusal"},
		"thought": {"response.reasoning_summary_part", "response.reasoning_summary_text", "text"},
	}[it.kind]
	if it.kind == "thought" {
		at = obj{"output_index": place, "summary_index": 0, "item_id": w.id("rs", place)}
	}
	event := func(kind string, more obj) {
		fields := maps.Clone(at)
		fields["type"] = kind
		maps.Copy(fields, more)
		w.event(fields)
	}
	event(names[0]+".added", obj{"part": part(it, "")})
	for _, piece := range pieces(it.text) {
		event(names[1]+".delta", obj{"delta": piece})
	}
	event(names[1]+".done", obj{names[2]: it.text})
	event(names[0]+".done", obj{"part": part(it, it.text)})
}

func part(it Item, text string) obj {
	switch it.kind {
	case "refusal":
		return obj{"type": "refusal", "refusal": text}
	case "thought":
		return obj{"type": "summary_text", "text": text}
	}
	return obj{"type": "output_text", "text": text, "annotations": []any{}}
}

// item is an item as it is announced, or as it is in the end.
func (w *responsesWire) item(it Item, place int, done bool) obj {
	status, parts := "in_progress", []any{}
	if done {
		status = "completed"
		if it.text != "" {
			parts = append(parts, part(it, it.text))
		}
	}
	switch it.kind {
	case "call":
		fields := obj{
			"id": w.id("fc", place), "type": "function_call", "status": status,
			"call_id": it.call, "name": it.name, "arguments": "",
		}
		if done {
			fields["arguments"] = it.text
		}
		return fields
	case "thought":
		fields := obj{"id": w.id("rs", place), "type": "reasoning", "summary": parts, "encrypted_content": "partial"}
		if done {
			fields["encrypted_content"] = w.id("secret", place)
		}
		return fields
	}
	return obj{"id": w.id("msg", place), "type": "message", "status": status, "role": "assistant", "content": parts}
}

// id names an item by its request and its place.
func (w *responsesWire) id(kind string, place int) string {
	return fmt.Sprintf("%s_%d_%d", kind, w.nth, place)
}
