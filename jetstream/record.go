package jetstream

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpool/turnpool/turn"
)

// Headers of a log's message.
const (
	headerAttempt = "Turn-Attempt"
	headerWriter  = "Turn-Writer"
	headerTypes   = "Turn-Types"
	headerSeq     = "Turn-Seq"
)

// privateMark leads the type of an event that no reader may see.
const privateMark = "-"

// record is a message of a turn's log.
type record struct {
	// sequence is the broker's number of the message; previous that of the log's
	// message before it, if it came live.
	sequence uint64
	previous uint64

	attempt int
	writer  string
	// seq is the number of the first visible event, or of the next to come.
	seq int64
	// types has an entry an event, a private one's with its mark.
	types []string
	// data has a line an event.
	data []byte
}

func liveRecord(m *nats.Msg) (record, error) {
	r, err := parseRecord(m.Header, m.Data)
	if err != nil {
		return r, err
	}
	if r.sequence, err = headerUint(m.Header, jetstream.SequenceHeader); err != nil {
		return r, err
	}
	r.previous, err = headerUint(m.Header, jetstream.LastSequenceHeader)
	return r, err
}

func storedRecord(m *storedMsg) (record, error) {
	r, err := parseRecord(m.header, m.data)
	r.sequence = m.sequence
	return r, err
}

// parseRecord reads the headers. It does not look at the events.
func parseRecord(h nats.Header, data []byte) (record, error) {
	r := record{writer: h.Get(headerWriter), data: data}
	attempt, err := headerUint(h, headerAttempt)
	if err != nil {
		return r, err
	}
	seq, err := headerUint(h, headerSeq)
	if err != nil {
		return r, err
	}
	if attempt == 0 || attempt > maxAttempt || seq == 0 || seq > maxSeq {
		return r, fmt.Errorf("log message: attempt %d, seq %d", attempt, seq)
	}
	r.attempt, r.seq = int(attempt), int64(seq)
	r.types = strings.Split(h.Get(headerTypes), ",")
	for _, t := range r.types {
		if !validType(strings.TrimPrefix(t, privateMark)) {
			return r, fmt.Errorf("log message: event type %.80q", t)
		}
	}
	return r, nil
}

// Bounds that no turn reaches, so that sums of them do not overflow.
const (
	maxAttempt = 1 << 30
	maxSeq     = 1 << 60
)

func headerUint(h nats.Header, name string) (uint64, error) {
	n, err := strconv.ParseUint(h.Get(name), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("log message: header %s: %w", name, err)
	}
	return n, nil
}

// validType reports whether an event type can stand in the header.
func validType(t string) bool {
	return t != "" && len(t) <= 128 && !strings.HasPrefix(t, privateMark) &&
		strings.IndexFunc(t, func(r rune) bool { return r <= ' ' || r > '~' || r == ',' }) < 0
}

func (r *record) header() nats.Header {
	return nats.Header{
		headerAttempt: {strconv.Itoa(r.attempt)},
		headerWriter:  {r.writer},
		headerTypes:   {strings.Join(r.types, ",")},
		headerSeq:     {strconv.FormatInt(r.seq, 10)},
	}
}

func (r *record) lastType() string { return r.types[len(r.types)-1] }

func (r *record) visible() (n int64) {
	for _, t := range r.types {
		if !strings.HasPrefix(t, privateMark) {
			n++
		}
	}
	return n
}

func (r *record) state() turn.LogState {
	return turn.LogState{
		Sequence: r.sequence,
		Attempt:  r.attempt,
		WriterID: r.writer,
		NextSeq:  r.seq + r.visible(),
		Released: r.lastType() == privateMark+turn.TypeReleased,
		Retried:  r.lastType() == privateMark+turn.TypeRetried,
		Finished: r.lastType() == turn.TypeResult,
	}
}

// appendFrames appends the visible events after the cursor.
func (r *record) appendFrames(frames []turn.Frame, after int64) ([]turn.Frame, error) {
	seq, rest := r.seq, r.data
	for i, t := range r.types {
		line, more, found := bytes.Cut(rest, []byte{'\n'})
		if len(line) == 0 || found != (i < len(r.types)-1) {
			return frames, errLines
		}
		rest = more
		if strings.HasPrefix(t, privateMark) {
			continue
		}
		if seq > after {
			// The capacity ends with the line: who appends must not write into
			// the next event.
			frames = append(frames, turn.Frame{Seq: seq, Type: t, Data: line[:len(line):len(line)]})
		}
		seq++
	}
	return frames, nil
}

var errLines = errors.New("log message: not as many lines as event types")
