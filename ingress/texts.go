package ingress

import (
	"bytes"
	"encoding/json"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// maxText bounds the text that is kept for one viewer, to be repeated in each
// delta. A message that does not fit goes on without.
const maxText = 1 << 20

// texts accumulates the messages that the model is still writing. The zero
// value is ready for a turn's first event; it must see all of them.
type texts struct {
	open map[string]*openText // by message id
	size int
}

type openText struct {
	text []byte
	over bool // text is not all there is
}

// extend takes the next event. It returns the event's data, with the text so
// far if it is a delta that is shown.
func (t *texts) extend(f turn.Frame, shown bool) json.RawMessage {
	switch f.Type {
	case turn.TypeAssistantDelta, turn.TypeThoughtDelta:
		message := t.add(f.Data)
		if shown && message != nil && !message.over {
			return withText(f.Data, message.text)
		}
	case session.TypeAssistant, session.TypeThought:
		t.close(f.Data)
	case turn.TypeRestart: // what was still being written is void
		*t = texts{}
	}
	return f.Data
}

func (t *texts) add(delta json.RawMessage) *openText {
	var d turn.Delta
	if json.Unmarshal(delta, &d) != nil {
		return nil
	}
	message := t.open[d.MessageID]
	if message == nil {
		message = new(openText)
		if t.open == nil {
			t.open = map[string]*openText{}
		}
		t.open[d.MessageID] = message
	}
	if message.over || t.size+len(d.Delta) > maxText {
		t.size -= len(message.text)
		*message = openText{over: true}
		return message
	}
	t.size += len(d.Delta)
	message.text = append(message.text, d.Delta...)
	return message
}

func (t *texts) close(event json.RawMessage) {
	var closed struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(event, &closed) != nil || t.open[closed.ID] == nil {
		return
	}
	t.size -= len(t.open[closed.ID].text)
	delete(t.open, closed.ID)
}

// withText adds the text as the last member of an object.
func withText(object json.RawMessage, text []byte) json.RawMessage {
	quoted, err := encodeJSON(string(text))
	end := bytes.LastIndexByte(object, '}')
	if err != nil || end < 0 {
		return object
	}
	out := make([]byte, 0, end+len(quoted)+9)
	out = append(out, object[:end]...)
	out = append(out, `,"text":`...)
	out = append(out, quoted...)
	return append(out, '}')
}
