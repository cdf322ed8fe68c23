package jetstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// packed is what the backlog sends, message by message, one text an event.
func packed(t *testing.T, b *backlog) (messages [][]string, events int) {
	t.Helper()
	for len(b.items) > 0 {
		types, data, n, err := pack(b.take())
		if err != nil {
			t.Fatal(err)
		}
		events += n
		var texts []string
		for i, line := range bytes.Split(data, []byte{'\n'}) {
			texts = append(texts, short(t, types[i], line))
		}
		messages = append(messages, texts)
	}
	return messages, events
}

func thought(messageID, text string) *turn.Delta {
	return &turn.Delta{Kind: turn.TypeThoughtDelta, MessageID: messageID, Delta: text}
}

func TestBacklogMerges(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		events []turn.Event
		want   []string
	}{
		{"one text", []turn.Event{delta("a", "x"), delta("a", "y"), delta("a", "z")}, []string{"xyz"}},
		{"two texts", []turn.Event{delta("a", "x"), delta("b", "y"), delta("a", "z")}, []string{"x", "y", "z"}},
		{"two kinds", []turn.Event{thought("a", "x"), delta("a", "y")}, []string{"x", "y"}},
		{"others between", []turn.Event{delta("a", "x"), note("N"), delta("a", "y")}, []string{"x", "N", "y"}},
		{"a character in two", []turn.Event{delta("a", "x\xe2\x82"), delta("a", "\xacy")}, []string{"x€y"}},
		{"in three", []turn.Event{delta("a", "\xe2"), delta("a", "\x82"), delta("a", "\xac")}, []string{"€"}},
		{"never whole", []turn.Event{delta("a", "x\xe2\x82"), note("N")}, []string{"x", "\ufffd\ufffd", "N"}},
		{"another text", []turn.Event{delta("a", "x\xe2"), delta("b", "\xacy")}, []string{"x", "\ufffd", "\ufffdy"}},
		{"no character", []turn.Event{delta("a", "x\xff"), delta("a", "y")}, []string{"x\ufffdy"}},
		{"an empty one", []turn.Event{delta("a", ""), delta("a", "x")}, []string{"x"}},
	}
	for _, test := range tests {
		b := &backlog{limits: limitsFor(1 << 20)}
		emit(t, b, test.events...)
		messages, events := packed(t, b)
		if diff := cmp.Diff([][]string{test.want}, messages); diff != "" {
			t.Errorf("%s: -want +got\n%s", test.name, diff)
		}
		if events != b.added {
			t.Errorf("%s: %d events sent of %d", test.name, events, b.added)
		}
	}
}

func emit(t *testing.T, b *backlog, events ...turn.Event) {
	t.Helper()
	for _, e := range events {
		if d, ok := e.(*turn.Delta); ok {
			b.addDelta(d)
			continue
		}
		i, err := encodeItem(e, b.maxEvent)
		if err != nil {
			t.Fatal(err)
		}
		b.add(i)
	}
}

func TestBacklogKeepsTheCallersText(t *testing.T) {
	t.Parallel()
	b := &backlog{limits: limitsFor(1 << 20)}
	d := delta("a", "one ")
	b.addDelta(d)
	d.Delta, d.MessageID = "two ", "b"
	b.addDelta(d)
	d.Delta = "three"
	b.addDelta(d)
	messages, _ := packed(t, b)
	if diff := cmp.Diff([][]string{{"one ", "two three"}}, messages); diff != "" {
		t.Error(diff)
	}
}

func TestBacklogCutsLongTexts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("a€😀\x00", 20_000), strings.Repeat("\xff", 150_000)} {
		for _, piece := range []int{1, 7, 64 << 10, len(text)} {
			b := &backlog{limits: limitsFor(1 << 20)}
			for rest := text; rest != ""; {
				n := min(piece, len(rest))
				b.addDelta(delta("a", rest[:n]))
				rest = rest[n:]
			}
			b.releasePartial()
			var got strings.Builder
			for len(b.items) > 0 {
				items := b.take()
				_, data, _, err := pack(items)
				if err != nil {
					t.Fatal(err)
				}
				if len(data) > b.maxEvent {
					t.Errorf("a message of %d bytes", len(data))
				}
				for _, i := range items {
					if len(i.text) > 64<<10 {
						t.Errorf("a delta of %d bytes", len(i.text))
					}
				}
				for line := range bytes.Lines(data) {
					var d turn.Delta
					if err := json.Unmarshal(line, &d); err != nil {
						t.Fatal(err)
					}
					got.WriteString(d.Delta)
				}
			}
			if got.String() != valid(text) {
				t.Errorf("text of %d bytes in pieces of %d came out different", len(text), piece)
			}
		}
	}
}

// valid has U+FFFD in the place of every bad byte.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

func TestBacklogSplitsMessages(t *testing.T) {
	t.Parallel()
	b := &backlog{limits: limitsFor(1 << 20)}
	big := strings.Repeat("x", b.maxMessage)
	emit(t, b, note("a"), note("b"), note(big), note("c"))
	messages, _ := packed(t, b)
	if diff := cmp.Diff([][]string{{"a", "b"}, {big}, {"c"}}, messages); diff != "" {
		t.Error(diff)
	}
	events, _ := numbered(maxTypes + 1)
	emit(t, b, events...)
	if messages, _ := packed(t, b); len(messages) != 2 || len(messages[0]) != maxTypes {
		t.Errorf("%d messages for %d events", len(messages), len(events))
	}
}

func TestEventsThatCannotBeStored(t *testing.T) {
	t.Parallel()
	const limit = 1000
	unknown := func(typ, raw string) turn.Event { return &session.Unknown{TypeName: typ, Raw: json.RawMessage(raw)} }
	for name, e := range map[string]turn.Event{
		"bad raw value": &session.ToolResult{Result: json.RawMessage("{")},
		"no type":       unknown("", "{}"),
		"comma":         unknown("a,b", "{}"),
		"mark":          unknown("-a", "{}"),
		"line break":    unknown("a\nb", "{}"),
		"empty":         unknown("a", ""),
		"broken lines":  unknown("a", "{\n"),
	} {
		if _, err := encodeItem(e, limit); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := encodeItem(note(strings.Repeat("x", limit)), limit); !errors.Is(err, turn.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	i, err := encodeItem(unknown("new", "{\n\"type\": \"new\"\n}"), limit)
	if err != nil || string(i.line) != `{"type":"new"}` {
		t.Errorf("several lines became %s, %v", i.line, err)
	}
	if i, err := encodeItem(secret("k"), limit); err != nil || i.typ != "-state_change" {
		t.Errorf("private event has type %s, %v", i.typ, err)
	}
	if i, err := encodeItem(&turn.Released{Attempt: 1}, limit); err != nil || i.typ != "-released" {
		t.Errorf("mark has type %s, %v", i.typ, err)
	}
}
