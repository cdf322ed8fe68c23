package jetstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/turnpool/turnpool/turn"
)

// backlog is what a writer was given and has not sent yet. Adjacent deltas of
// one text become one as long as they wait.
type backlog struct {
	items []item
	// partial is the incomplete character at the end of the last delta.
	partial item
	// added counts the events that went in.
	added int
	limits
}

// item is an event that waits, or several deltas in one.
type item struct {
	// typ is the event's type, with the mark if it is private.
	typ string
	// line is the event's JSON; empty for a delta, which is encoded when it goes.
	line []byte
	// text and the two next to it are a delta's.
	text      []byte
	messageID string
	createdAt int64
	// events is how many events have gone in for good when this one is stored.
	events int
}

// limits are sizes in bytes.
type limits struct {
	// maxEvent is the greatest event that can be stored, alone in its message.
	maxEvent int
	// maxMessage is where a message ends that has more than one event. A delta's
	// text counts as it is, and may get six times as long as JSON.
	maxMessage int
	// maxDelta is the greatest text of one delta.
	maxDelta int
}

const (
	// headerRoom is left for a message's headers, and those that the server adds.
	headerRoom = 16 << 10
	// maxTypes bounds the events of a message, and with them the header of their
	// types, which the server limits.
	maxTypes = 512
)

func limitsFor(maxPayload int) limits {
	room := max(maxPayload-headerRoom, maxPayload/2)
	return limits{
		maxEvent:   room,
		maxMessage: min(256<<10, room/8),
		maxDelta:   min(64<<10, room/8),
	}
}

// encodeItem returns an event that is no delta, ready to be stored.
func encodeItem(e turn.Event, maxEvent int) (item, error) {
	typ := e.Type()
	if !validType(typ) {
		return item{}, fmt.Errorf("event type %.80q cannot be stored", typ)
	}
	line, err := turn.EncodeEvent(e)
	if err != nil {
		return item{}, err
	}
	if line, err = oneLine(line); err != nil {
		return item{}, fmt.Errorf("%s event: %w", typ, err)
	}
	if len(line) > maxEvent {
		return item{}, fmt.Errorf("%s event of %d bytes, above %d: %w", typ, len(line), maxEvent, turn.ErrTooLarge)
	}
	if turn.Private(e) {
		typ = privateMark + typ
	}
	return item{typ: typ, line: line, events: 1}, nil
}

// oneLine takes line breaks out of JSON that was not made here.
func oneLine(data []byte) ([]byte, error) {
	if len(data) > 0 && bytes.IndexByte(data, '\n') < 0 {
		return data, nil
	}
	var buf bytes.Buffer
	err := json.Compact(&buf, data)
	return buf.Bytes(), err
}

func (b *backlog) add(i item) {
	b.releasePartial()
	b.items = append(b.items, i)
	b.added++
}

func (b *backlog) addDelta(d *turn.Delta) {
	text := []byte(d.Delta)
	if p := &b.partial; len(p.text) > 0 && p.typ == d.Kind && p.messageID == d.MessageID {
		text = append(p.text, text...)
		p.text = nil
	}
	b.releasePartial()
	whole := wholeRunes(text)
	if whole < len(text) {
		b.partial = item{typ: d.Kind, text: text[whole:len(text):len(text)], messageID: d.MessageID, createdAt: d.CreatedAt}
	}
	if whole == 0 {
		return
	}
	b.appendText(d, text[:whole])
	b.items[len(b.items)-1].events++
	b.added++
}

// releasePartial gives up waiting for the rest of a character.
func (b *backlog) releasePartial() {
	if len(b.partial.text) > 0 {
		b.items = append(b.items, b.partial)
		b.partial = item{}
	}
}

// appendText appends text to the delta that waits last, if it is of the same
// text, and cuts what becomes too long.
func (b *backlog) appendText(d *turn.Delta, text []byte) {
	if n := len(b.items); n > 0 {
		last := &b.items[n-1]
		if last.line == nil && last.typ == d.Kind && last.messageID == d.MessageID {
			cut := cutRunes(text, b.maxDelta-len(last.text))
			last.text, text = append(last.text, text[:cut]...), text[cut:]
		}
	}
	for len(text) > 0 {
		cut := cutRunes(text, b.maxDelta)
		b.items = append(b.items, item{
			typ: d.Kind, text: text[:cut:cut], messageID: d.MessageID, createdAt: d.CreatedAt,
		})
		text = text[cut:]
	}
}

// take returns the items of the next message, and takes them out.
func (b *backlog) take() []item {
	n, size := 0, 0
	for n < len(b.items) && n < maxTypes {
		size += len(b.items[n].line) + len(b.items[n].text)
		if n > 0 && size > b.maxMessage {
			break
		}
		n++
	}
	taken := b.items[:n:n]
	if b.items = b.items[n:]; len(b.items) == 0 {
		b.items = nil
	}
	return taken
}

// pack encodes items as the body of one message.
func pack(items []item) (types []string, data []byte, events int, err error) {
	types = make([]string, len(items))
	for n, i := range items {
		line := i.line
		if line == nil {
			line, err = turn.EncodeEvent(&turn.Delta{
				Kind: i.typ, MessageID: i.messageID, Delta: string(i.text), CreatedAt: i.createdAt,
			})
			if err != nil {
				return nil, nil, 0, err
			}
		}
		if n > 0 {
			data = append(data, '\n')
		}
		types[n], data, events = i.typ, append(data, line...), events+i.events
	}
	return types, data, events, nil
}

// wholeRunes returns the length of text without an incomplete character at its
// end. Bytes that cannot become a character count as whole.
func wholeRunes(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		start := len(text) - n
		if utf8.RuneStart(text[start]) {
			if utf8.FullRune(text[start:]) {
				break
			}
			return start
		}
	}
	return len(text)
}

// cutRunes returns the greatest length up to limit that does not cut a character
// in two.
func cutRunes(text []byte, limit int) int {
	if len(text) <= limit {
		return len(text)
	}
	cut := max(limit, 0)
	for n := 0; n < utf8.UTFMax && cut > 0 && !utf8.RuneStart(text[cut]); n++ {
		cut--
	}
	return cut
}
