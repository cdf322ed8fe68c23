package ingress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// view is what a viewer wants to see of a turn's events.
type view struct {
	// types are those that pass, nil for all.
	types map[string]bool
	// text adds the accumulated text to each delta.
	text bool
	// after is the number of the last event that the viewer has.
	after int64
}

func (v view) shows(f turn.Frame) bool {
	return f.Seq > v.after && (v.types == nil || v.types[f.Type])
}

// alwaysPass are the types that no filter holds back: without them a viewer
// would not know that what it has is void, or that the turn is over.
var alwaysPass = []string{turn.TypeResult, turn.TypeRestart}

// viewOf reads ?types= and ?text=.
func viewOf(query url.Values) (view, error) {
	var v view
	switch query.Get("text") {
	case "":
	case "full":
		v.text = true
	default:
		return v, invalidQuery("text", "expected full")
	}
	for name := range strings.SplitSeq(strings.Join(query["types"], ","), ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if !knownType(name) {
			return v, invalidQuery("types", fmt.Sprintf("there is no event type %q", shorten(name, 40)))
		}
		if v.types == nil {
			v.types = map[string]bool{}
			for _, always := range alwaysPass {
				v.types[always] = true
			}
		}
		v.types[name] = true
	}
	return v, nil
}

func knownType(name string) bool {
	return session.IsLedgerType(name) || name == turn.TypeAssistantDelta || name == turn.TypeThoughtDelta ||
		slices.Contains(alwaysPass, name)
}

func invalidQuery(name, message string) error {
	return &fault{code: codeInvalidField, detail: "query parameter " + name + ": " + message}
}

// cursor is the number of the last event that the viewer has. What a browser
// sends when it reconnects is newer than what was in the address.
func cursor(r *http.Request) (int64, error) {
	given := r.Header.Get("Last-Event-ID")
	if given == "" {
		given = r.URL.Query().Get("after")
	}
	if given == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(given, 10, 64)
	if err != nil || n < 0 {
		return 0, badCursor(fmt.Sprintf("expected the id of an event of this stream, got %q", shorten(given, 40)))
	}
	return n, nil
}

func badCursor(detail string) error { return &fault{code: codeBadCursor, detail: detail} }

// streamTurn serves the events of a turn that was submitted before.
func (s *Server) streamTurn(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	view, err := viewOf(r.URL.Query())
	if err != nil {
		return err
	}
	if view.after, err = cursor(r); err != nil {
		return err
	}
	if !turn.ValidInvocationID(id) {
		return unknownTurn(id)
	}
	state, err := s.deps.Log.State(r.Context(), tenant(r), id)
	if err != nil {
		return brokerFault(err)
	}
	if state.Finished && view.after >= state.NextSeq-1 {
		w.WriteHeader(http.StatusNoContent) // a browser stops reconnecting
		return nil
	}
	head, err := s.streamable(r.Context(), tenant(r), id, &state, view.after)
	if err != nil {
		return err
	}
	return s.resume(w, r, head, view, state)
}

// streamable says what is known of a turn whose events are asked for, or why
// there are none.
func (s *Server) streamable(ctx context.Context, tenant, id string, state *turn.LogState, after int64) (streamHead, error) {
	head := streamHead{invocationID: id}
	stand, err := s.where(ctx, tenant, id)
	switch {
	case err == nil:
		head.sessionID = stand.sessionID()
	case hasEvents(*state):
		// A store that is away is no reason to withhold them, and neither is one
		// that has lost the turn.
		s.log.Debug("streaming a turn of an unknown session", "invocation", id, "error", err)
	default:
		return head, err
	}
	if !hasEvents(*state) && stand.finished() { // maybe since the log was looked at
		if *state, err = s.deps.Log.State(ctx, tenant, id); err != nil {
			return head, brokerFault(err)
		}
	}
	switch last := max(0, state.NextSeq-1); {
	case hasEvents(*state) && (after <= last || state.Finished):
		return head, nil
	case hasEvents(*state):
		return head, badCursor(fmt.Sprintf("the turn has %d events so far", last))
	case stand.row != nil && (stand.finished() || after > 0): // it had events
		return head, expired(id)
	case after > 0:
		return head, badCursor("the turn has no events yet")
	}
	return head, nil
}

func hasEvents(state turn.LogState) bool { return state.NextSeq > 1 }

// resume relays from the cursor on. If there are events after it they are read
// before the first byte goes out, so that it can still be said that they have
// expired.
func (s *Server) resume(w http.ResponseWriter, r *http.Request, head streamHead, v view, state turn.LogState) error {
	from := v.after
	if v.text {
		from = 0 // the text of a message begins before the cursor
	}
	reader, err := s.deps.Log.Follow(r.Context(), tenant(r), head.invocationID, from)
	if err != nil {
		return eventsFault(err, head.invocationID)
	}
	defer reader.Close()
	var first []turn.Frame
	if from < state.NextSeq-1 {
		if first, err = s.firstFrames(r.Context(), reader); err != nil {
			return eventsFault(err, head.invocationID)
		}
	}
	s.relay(w, r, reader, v, head, first)
	return nil
}

// firstFrames reads what is stored. That it is not there after all is left to
// the stream's heartbeat.
func (s *Server) firstFrames(ctx context.Context, reader turn.LogReader) ([]turn.Frame, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	frames, err := reader.Next(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) {
		return nil, nil
	}
	return frames, err
}

func eventsFault(err error, id string) error {
	if errors.Is(err, turn.ErrExpired) {
		return expired(id)
	}
	return brokerFault(err)
}

// streamHead is what the headers of a stream say.
type streamHead struct {
	invocationID string
	sessionID    string // "": not known
}

func (h streamHead) write(w http.ResponseWriter) {
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache, no-transform")
	header.Set("X-Accel-Buffering", "no")
	header.Set("Content-Location", turnPath(h.invocationID))
	if h.sessionID != "" {
		// Escaped as in a path: a header has no room for every character.
		header.Set("Turnpool-Session", url.PathEscape(h.sessionID))
	}
	w.WriteHeader(http.StatusOK)
}

// relay is the stream from the headers to the end. From here on a failure ends
// it, and its viewer comes back for the rest.
func (s *Server) relay(w http.ResponseWriter, r *http.Request, reader turn.LogReader, v view, head streamHead, first []turn.Frame) {
	if s.life.open.enter() { // else a shutdown is on, and the stream ends at once
		defer s.life.open.leave()
	}
	head.write(w)
	if r.Method == http.MethodHead {
		return
	}
	s.metrics.viewers.Inc()
	defer s.metrics.viewers.Dec()
	st := &stream{w: w, control: http.NewResponseController(w), timeout: s.cfg.WriteTimeout, view: v}
	st.control.SetReadDeadline(time.Time{}) // of the server's, for requests
	err := s.relayFrames(r.Context(), reader, st, first)
	switch {
	case err == nil:
	case errors.Is(err, errStopping):
		err = st.reconnect()
	case errors.Is(err, errViewer) || r.Context().Err() != nil:
		s.log.Debug("a viewer is gone", "invocation", head.invocationID, "error", err)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.metrics.dropped.Inc()
		}
	default:
		s.log.Warn("a stream broke", "invocation", head.invocationID, "error", err)
		err = st.comment("the stream broke off; come back with Last-Event-ID")
	}
	if !errors.Is(err, errViewer) {
		st.control.SetWriteDeadline(time.Time{}) // the connection may serve more
	}
}

func (s *Server) relayFrames(ctx context.Context, reader turn.LogReader, st *stream, first []turn.Frame) error {
	if err := st.comment("queued"); err != nil {
		return err
	}
	if len(first) > 0 {
		if done, err := st.frames(first); done || err != nil {
			return err
		}
	}
	return s.follow(ctx, reader, st)
}

// errViewer: the viewer cannot be written to.
var errViewer = errors.New("viewer is gone or too slow")

// flushAbove bounds the bytes that wait for one flush: a long log is replayed
// in pieces.
const flushAbove = 32 << 10

// stream writes frames to one viewer. It is used by one goroutine.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	view    view
	texts   texts
	buf     []byte // what is not flushed yet
}

// frames implements viewer: it writes what there is, then flushes once.
func (st *stream) frames(frames []turn.Frame) (done bool, err error) {
	for _, f := range frames {
		shown := st.view.shows(f)
		if st.view.text {
			f.Data = st.texts.extend(f, shown)
		}
		if shown {
			st.buf = appendFrame(st.buf, f)
		}
		if len(st.buf) > flushAbove {
			if err := st.flush(); err != nil {
				return false, err
			}
		}
		done = done || f.Type == turn.TypeResult
	}
	return done, st.flush()
}

// beat implements viewer.
func (st *stream) beat() error { return st.comment("waiting") }

func (st *stream) comment(text string) error {
	st.buf = append(st.buf, ": "+text+"\n\n"...)
	return st.flush()
}

// reconnect sends the viewer to another ingress, at a moment of its own so that
// not all come at once.
func (st *stream) reconnect() error {
	st.buf = fmt.Appendf(st.buf, "event: reconnect\nretry: %d\ndata: {}\n\n", 500+rand.IntN(1000))
	return st.flush()
}

// flush sends what is buffered, and gives the viewer a bounded time to take it.
func (st *stream) flush() error {
	if len(st.buf) == 0 {
		return nil
	}
	st.control.SetWriteDeadline(time.Now().Add(st.timeout)) // a writer without deadlines has none to miss
	_, err := st.w.Write(st.buf)
	st.buf = st.buf[:0]
	if err == nil {
		err = st.control.Flush()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errViewer, err)
	}
	return nil
}

// appendFrame appends an event in the form of an event stream. Neither its type
// nor its data can break the frame.
func appendFrame(buf []byte, f turn.Frame) []byte {
	buf = append(buf, "id: "...)
	buf = strconv.AppendInt(buf, f.Seq, 10)
	buf = append(buf, "\nevent: "...)
	buf = append(buf, oneLine(f.Type)...)
	buf = append(buf, "\ndata: "...)
	start := len(buf)
	buf = append(buf, f.Data...)
	for i, c := range buf[start:] {
		if c == '\n' || c == '\r' { // in JSON they can only be space
			buf[start+i] = ' '
		}
	}
	return append(buf, "\n\n"...)
}

func oneLine(name string) string {
	if strings.ContainsAny(name, "\r\n") {
		return strings.NewReplacer("\r", " ", "\n", " ").Replace(name)
	}
	return name
}

func expired(id string) error {
	address := turnPath(id)
	return &fault{code: codeExpired, location: address, detail: "the events of this turn are not kept any more; its result is at " + address}
}
