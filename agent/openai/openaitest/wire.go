package openaitest

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
)

// Item is one part of an answer.
type Item struct {
	kind       string
	text       string // of a call: its arguments
	call, name string
}

// Text is a text of the model.
func Text(text string) Item { return Item{kind: "text", text: text} }

// Refusal is a text that says no.
func Refusal(text string) Item { return Item{kind: "refusal", text: text} }

// Thought is a thought of the model. With Responses it is a reasoning item whose
// encrypted content is made of the request's number and its place; an empty text
// is an item with no summary. With Chat it is reasoning_content.
func Thought(text string) Item { return Item{kind: "thought", text: text} }

// Call is a call of a tool, with arguments as the model writes them. Adjacent
// calls are interleaved: a piece of the first, one of the second, and so on.
func Call(id, name, args string) Item { return Item{kind: "call", call: id, name: name, text: args} }

// obj is a JSON object, whose keys come out sorted.
type obj = map[string]any

// wire writes the events of a stream.
type wire struct {
	out   strings.Builder
	ascii bool
	named bool // each event is given its name, as in Responses
	seq   int
}

// event writes one event.
func (w *wire) event(fields obj) {
	if w.named {
		fields["sequence_number"] = w.seq
		w.seq++
		fmt.Fprintf(&w.out, "event: %s\n", fields["type"])
	}
	fmt.Fprintf(&w.out, "data: %s\n\n", w.json(fields))
}

func (w *wire) json(v any) string {
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // of maps and strings, so it is a mistake here
	}
	text := strings.TrimSuffix(out.String(), "\n")
	if w.ascii {
		text = escape(text)
	}
	return text
}

// escape writes what is not ASCII as \u escapes, above the first plane as two.
func escape(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch {
		case r < 0x80:
			out.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		}
	}
	return out.String()
}

// pieces splits a text into pieces of four characters, as a model writes it.
func pieces(text string) (all []string) {
	runes := []rune(text)
	for len(runes) > 0 {
		n := min(4, len(runes))
		all = append(all, string(runes[:n]))
		runes = runes[n:]
	}
	return all
}

// finish is the finish reason in terms of Chat.
func (reply Reply) finish() string {
	reason := "stop"
	for _, it := range reply.Items {
		if it.kind == "call" {
			reason = "tool_calls"
		}
	}
	if reply.Finish != "" {
		reason = reply.Finish
	}
	return reason
}

func (reply Reply) usage() Usage {
	if reply.Usage == nil {
		return Usage{Input: 10, Output: 5}
	}
	return *reply.Usage
}

// runs groups the items: adjacent calls together, everything else alone.
func runs(items []Item) (groups [][]int) {
	for i, it := range items {
		if i > 0 && it.kind == "call" && items[i-1].kind == "call" {
			groups[len(groups)-1] = append(groups[len(groups)-1], i)
			continue
		}
		groups = append(groups, []int{i})
	}
	return groups
}

// interleave calls write with the pieces of several texts in turn.
func interleave(texts []string, write func(which int, piece string)) {
	split := make([][]string, len(texts))
	left := 0
	for i, text := range texts {
		split[i] = pieces(text)
		left += len(split[i])
	}
	for left > 0 {
		for i := range split {
			if len(split[i]) > 0 {
				write(i, split[i][0])
				split[i] = split[i][1:]
				left--
			}
		}
	}
}
