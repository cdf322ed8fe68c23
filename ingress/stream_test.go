package ingress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

func TestStreamOfASubmit(t *testing.T) {
	t.Parallel()
	h := setup(t)
	s := h.stream(t.Context(), "POST", "/v1/turns", `{"sessionId":"a b","input":{"message":"hi"},"metadata":{"k":"v"}}`)
	// Headers and a comment come before any worker has the turn.
	if f, _ := s.next(); f.Comment != "queued" {
		t.Errorf("first: %+v", f)
	}
	sub := h.broker.take(t)
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no",
		"Content-Location": "/v1/turns/" + sub.InvocationID, "Turnpool-Session": "session_a%20b",
	} {
		if got := s.resp.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	h.emitEcho(sub)
	result := h.finish(sub, session.StatusCompleted)
	var want []frame
	for _, f := range h.broker.log(sub.InvocationID).frames {
		want = append(want, frame{ID: strconv.FormatInt(f.Seq, 10), Event: f.Type, Data: string(f.Data)})
	}
	if diff := cmp.Diff(want, s.events()); diff != "" {
		t.Errorf("(-log +stream):\n%s", diff)
	}
	if got := string(mustEncode(t, result)); got != want[len(want)-1].Data || !strings.HasPrefix(got, `{"type":"result",`) {
		t.Errorf("last: %s", got)
	}
}

// From whatever event a viewer comes back, it gets the rest of one and the same
// stream, whichever way it says where it was.
func TestResumeAtEveryFrame(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"", "text=full", "types=assistant_delta", "types=assistant_delta&text=full"} {
		t.Run(query, func(t *testing.T) {
			t.Parallel()
			h := setup(t)
			id := h.submitAsync(`{"input":{"message":"abcdefgh"}}`)
			sub := h.broker.take(t)
			h.emitEcho(sub)
			h.finish(sub, session.StatusCompleted)
			path := "/v1/turns/" + id + "/events?" + query
			whole := h.stream(t.Context(), "GET", path, "").events()
			for after := range whole {
				if last := whole[len(whole)-1]; last.Event != turn.TypeResult {
					t.Fatalf("last: %+v", last)
				}
				var rest []frame
				at := "0"
				if after > 0 {
					at = whole[after-1].ID
				}
				rest = whole[after:]
				byHeader := h.stream(t.Context(), "GET", path+"&after=1", "", "Last-Event-ID: "+at).events()
				byQuery := h.stream(t.Context(), "GET", path+"&after="+at, "").events()
				if diff := cmp.Diff(rest, byHeader); diff != "" {
					t.Errorf("after %s, by header:\n%s", at, diff)
				}
				if diff := cmp.Diff(rest, byQuery); diff != "" {
					t.Errorf("after %s, by query:\n%s", at, diff)
				}
			}
			end := whole[len(whole)-1].ID
			for _, after := range []string{end, "1000"} {
				h.want(h.do("GET", path+"&after="+after, ""), http.StatusNoContent, "")
			}
		})
	}
}

func TestResumeWhileItRuns(t *testing.T) {
	t.Parallel()
	h := setup(t)
	id := h.submitAsync(`{"input":{"message":"abc"}}`)
	sub := h.broker.take(t)
	ctx, cut := context.WithCancel(t.Context())
	first := h.stream(ctx, "GET", "/v1/turns/"+id+"/events?text=full", "")
	h.emitEcho(sub)
	for range 3 { // invocation_start, "a", "b"
		first.event()
	}
	cut()
	second := h.stream(t.Context(), "GET", "/v1/turns/"+id+"/events?text=full", "", "Last-Event-ID: 3")
	if f, _ := second.event(); f.ID != "4" || !strings.Contains(f.Data, `"delta":"c"`) || !strings.HasSuffix(f.Data, `,"text":"abc"}`) {
		t.Errorf("%+v", f)
	}
	h.finish(sub, session.StatusCompleted)
	if got := eventTypes(second.events()); !slices.Equal(got, []string{"assistant", "result"}) {
		t.Errorf("rest: %v", got)
	}
}

func TestStreamTypes(t *testing.T) {
	t.Parallel()
	h := setup(t)
	id := h.submitAsync(`{"input":{"message":"ab"}}`)
	sub := h.broker.take(t)
	h.emitEcho(sub)
	h.broker.emit(t, id, &turn.Restart{Attempt: 2, Reason: turn.RestartCrash})
	h.emitEcho(sub)
	h.finish(sub, session.StatusCompleted)
	tests := map[string][]string{
		"types=assistant":                         {"assistant", "invocation_restart", "assistant", "result"},
		"types=result":                            {"invocation_restart", "result"},
		"types=tool_call,%20thought_delta,":       {"invocation_restart", "result"},
		"types=invocation_start&types=assistant":  {"invocation_start", "assistant", "invocation_restart", "invocation_start", "assistant", "result"},
		"types=invocation_restart,assistant&text": {"assistant", "invocation_restart", "assistant", "result"},
	}
	for query, want := range tests {
		if got := eventTypes(h.stream(t.Context(), "GET", "/v1/turns/"+id+"/events?"+query, "").events()); !slices.Equal(got, want) {
			t.Errorf("%s: %v", query, got)
		}
	}
	for _, query := range []string{"types=asistant", "types=reconnect", "types=released", "text=half"} {
		h.want(h.do("GET", "/v1/turns/"+id+"/events?"+query, ""), http.StatusBadRequest, codeInvalidField)
	}
}

func TestFullText(t *testing.T) {
	t.Parallel()
	delta := func(kind, message, piece string) turn.Event {
		return &turn.Delta{Kind: kind, MessageID: message, Delta: piece}
	}
	whole := func(id string) turn.Event {
		return &session.Assistant{EventBase: session.EventBase{ID: id}}
	}
	big := strings.Repeat("x", maxText/2+1)
	events := []turn.Event{
		delta(turn.TypeThoughtDelta, "t", "hm"), delta(turn.TypeAssistantDelta, "a", `"<é`), delta(turn.TypeThoughtDelta, "t", "m"),
		delta(turn.TypeAssistantDelta, "a", ">\n"), whole("a"), delta(turn.TypeAssistantDelta, "b", "1"),
		&turn.Restart{Attempt: 2}, delta(turn.TypeAssistantDelta, "b", "2"), delta(turn.TypeAssistantDelta, "b", ""),
		delta(turn.TypeAssistantDelta, "c", big), delta(turn.TypeAssistantDelta, "d", big), whole("c"),
		delta(turn.TypeAssistantDelta, "d", "!"), delta(turn.TypeAssistantDelta, "b", "3"),
	}
	none := "-"
	want := []string{"hm", `"<é`, "hmm", "\"<é>\n", "", "1", none, "2", "2", big, none, "", none, "23"}
	var texts texts
	for i, e := range events {
		data := texts.extend(turn.Frame{Seq: int64(i + 1), Type: e.Type(), Data: mustEncode(t, e)}, true)
		var got struct{ Text *string }
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if text := got.Text; text == nil && want[i] != none || text != nil && *text != want[i] {
			t.Errorf("event %d: %.80s", i, data)
		}
		if bytes.ContainsAny(data, "\n\r") {
			t.Errorf("event %d is no line: %q", i, data)
		}
	}
}

func TestBadCursor(t *testing.T) {
	t.Parallel()
	h := setup(t)
	id := h.submitAsync(message)
	for _, cursor := range []string{"x", "-1", "1.0", "0x1", "99999999999999999999"} {
		path := "/v1/turns/" + id + "/events"
		a := h.do("GET", path, "", "Last-Event-ID: "+cursor)
		h.want(a, http.StatusBadRequest, codeBadCursor)
		h.want(h.do("GET", path+"?after="+cursor, ""), http.StatusBadRequest, codeBadCursor)
		if cursor == "x" {
			golden(t, "problem_bad_cursor", a.body)
		}
	}
}

// A cursor that is ahead of its stream is of another one. It must not wait for
// events that the viewer would then never see.
func TestCursorAheadOfTheStream(t *testing.T) {
	t.Parallel()
	h := setup(t)
	id := h.submitAsync(`{"input":{"message":"ab"}}`)
	sub := h.broker.take(t)
	path := "/v1/turns/" + id + "/events?after="
	h.want(h.do("GET", path+"1", ""), http.StatusBadRequest, codeBadCursor)
	h.emitEcho(sub) // 4 events
	h.want(h.do("GET", path+"5", ""), http.StatusBadRequest, codeBadCursor)
	s := h.stream(t.Context(), "GET", path+"4", "")
	h.claim(sub, 1)
	h.finish(sub, session.StatusCompleted)
	if got := eventTypes(s.events()); !slices.Equal(got, []string{"result"}) {
		t.Errorf("events: %v", got)
	}
	h.want(h.do("GET", path+"5", ""), http.StatusNoContent, "")
	h.want(h.do("GET", path+"6", ""), http.StatusNoContent, "")
}

// The events of a turn that still runs can be gone too.
func TestExpiredWhileItRuns(t *testing.T) {
	t.Parallel()
	h := setup(t)
	id := h.submitAsync(message)
	sub := h.broker.take(t)
	h.emitEcho(sub)
	h.claim(sub, 2)
	h.broker.expire(id, 1000)
	h.want(h.do("GET", "/v1/turns/"+id+"/events?after=3", ""), http.StatusGone, codeExpired)
	h.stream(t.Context(), "GET", "/v1/turns/"+id+"/events", "") // what is to come
}

func TestExpiredEvents(t *testing.T) {
	t.Parallel()
	h := setup(t)
	id := h.submitAsync(`{"input":{"message":"abc"}}`)
	sub := h.broker.take(t)
	h.emitEcho(sub)
	h.finish(sub, session.StatusCompleted)
	path := "/v1/turns/" + id + "/events"
	gone := func(a answer) {
		t.Helper()
		h.want(a, http.StatusGone, codeExpired)
		golden(t, "problem_expired", a.body)
		if got := a.header.Get("Location"); got != "/v1/turns/"+id {
			t.Errorf("Location %q", got)
		}
	}

	// The beginning is gone.
	h.broker.expire(id, 2)
	gone(h.do("GET", path, ""))
	gone(h.do("GET", path+"?after=1", ""))
	gone(h.do("GET", path+"?after=3&text=full", "")) // the text begins before it
	if got := eventTypes(h.stream(t.Context(), "GET", path+"?after=3", "").events()); !slices.Equal(got, []string{"assistant_delta", "assistant", "result"}) {
		t.Errorf("rest: %v", got)
	}

	// All is gone.
	h.broker.expire(id, 1000)
	gone(h.do("GET", path, ""))
	gone(h.do("GET", path+"?after=1000", ""))
}

func TestStreamOfAQueuedTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		id := h.submitAsync(`{"sessionId":"x","input":{"message":"hi"}}`)
		s := h.stream(t.Context(), "GET", "/v1/turns/"+id+"/events", "")
		if got := s.resp.Header.Get("Turnpool-Session"); got != "session_x" {
			t.Errorf("Turnpool-Session %q", got)
		}
		start := time.Now()
		for i, want := range []string{"queued", "waiting", "waiting"} {
			if f, _ := s.next(); f.Comment != want || time.Since(start) != time.Duration(i)*15*time.Second {
				t.Errorf("after %v: %+v", time.Since(start), f)
			}
		}
		h.finish(h.broker.take(t), session.StatusCompleted)
		if got := eventTypes(s.events()); !slices.Equal(got, []string{"result"}) {
			t.Errorf("events: %v", got)
		}
	})
}

// Each heartbeat looks whether something was missed, waiting callers' too.
func TestHeartbeatChecks(t *testing.T) {
	t.Parallel()
	for _, accept := range []string{"application/json", "text/event-stream"} {
		t.Run(accept, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := setup(t)
				deaf := true // the reader missed all, until it is told to read back
				h.broker.onNext = func(ctx context.Context, _ string) error {
					if deaf {
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				}
				h.broker.onCheck = func(string) error { deaf = false; return nil }
				start := time.Now()
				go func() { h.finish(h.broker.take(t), session.StatusCompleted) }()
				a := h.do("POST", "/v1/turns", message, "Accept: "+accept)
				if a.status != http.StatusOK || !strings.Contains(string(a.body), `"completed"`) || time.Since(start) != 15*time.Second {
					t.Errorf("after %v: %d %s", time.Since(start), a.status, a.body)
				}
			})
		})
	}
}

func TestReaderFails(t *testing.T) {
	t.Parallel()
	down := errors.New("connection lost")
	t.Run("and is mended at once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h := setup(t)
			broken := true
			h.broker.onNext = func(context.Context, string) error {
				if broken {
					return down
				}
				return nil
			}
			h.broker.onCheck = func(string) error { broken = false; return nil }
			start := time.Now()
			h.echo()
			if h.want(h.do("POST", "/v1/turns", message), http.StatusOK, ""); time.Since(start) != 0 {
				t.Errorf("took %v", time.Since(start))
			}
		})
	})
	t.Run("while the broker is away", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h := setup(t)
			start := time.Now()
			away := func() error {
				if time.Since(start) < 40*time.Second {
					return turn.ErrUnavailable
				}
				return nil
			}
			h.broker.onNext = func(context.Context, string) error { return away() }
			h.broker.onCheck = func(string) error { return away() }
			h.echo()
			s := h.stream(t.Context(), "POST", "/v1/turns", message)
			var comments int
			var last frame
			for f, ok := s.next(); ok; f, ok = s.next() {
				if f.Comment != "" {
					comments++
				}
				last = f
			}
			if comments != 3 || last.Event != turn.TypeResult { // queued, and two heartbeats meanwhile
				t.Errorf("%d comments, last %+v", comments, last)
			}
		})
	})
	t.Run("for good", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			h := setup(t)
			h.broker.onNext = func(context.Context, string) error { return down }
			s := h.stream(t.Context(), "POST", "/v1/turns", message)
			s.next()
			if f, ok := s.next(); !ok || f.Comment != "the stream broke off; come back with Last-Event-ID" {
				t.Errorf("%+v", f)
			}
			if f, ok := s.next(); ok {
				t.Errorf("then %+v", f)
			}
			// A caller that waits is told where to look.
			h.want(h.do("POST", "/v1/turns", message), http.StatusAccepted, "")
		})
	})
	t.Run("before the first byte", func(t *testing.T) {
		t.Parallel()
		h := setup(t)
		id := h.submitAsync(message)
		h.emitEcho(h.broker.take(t))
		h.broker.onNext = func(context.Context, string) error { return turn.ErrUnavailable }
		h.want(h.do("GET", "/v1/turns/"+id+"/events", ""), http.StatusServiceUnavailable, codeUnavailable)
		h.broker.onFollow = func() error { return turn.ErrUnavailable }
		h.want(h.do("GET", "/v1/turns/"+id+"/events", ""), http.StatusServiceUnavailable, codeUnavailable)
		h.broker.onState = func() error { return turn.ErrUnavailable }
		h.want(h.do("GET", "/v1/turns/"+id+"/events", ""), http.StatusServiceUnavailable, codeUnavailable)
	})
}

// The events are served from the log alone when the store is away, or has lost
// the turn.
func TestStreamWithoutTheStore(t *testing.T) {
	t.Parallel()
	h := setup(t)
	id := h.submitAsync(message)
	sub := h.broker.take(t)
	h.emitEcho(sub)
	h.finish(sub, session.StatusCompleted)
	for _, err := range []error{errStore, session.ErrNotFound} {
		h.store.break_(err)
		s := h.stream(t.Context(), "GET", "/v1/turns/"+id+"/events", "")
		if got := s.events(); len(got) == 0 || s.resp.Header.Get("Turnpool-Session") != "" {
			t.Errorf("%d events, %v", len(got), s.resp.Header)
		}
	}
}

// A viewer that takes nothing is cut when its write has lasted too long, and
// nobody else notices.
func TestStalledViewerIsCutAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		id := h.submitAsync(message)
		sub := h.broker.take(t)
		path := "/v1/turns/" + id + "/events"
		stalled := h.stream(t.Context(), "GET", path, "")
		attentive := h.stream(t.Context(), "GET", path, "")
		start := time.Now()
		got := make(chan []frame)
		go func() { got <- attentive.events() }()
		const many = 100
		for range many {
			h.broker.emit(t, id, &turn.Delta{Kind: turn.TypeAssistantDelta, MessageID: "m", Delta: strings.Repeat("x", 1000)})
		}
		synctest.Wait()
		h.finish(sub, session.StatusCompleted)
		if frames := <-got; len(frames) != many+1 || time.Since(start) != 0 {
			t.Errorf("the attentive one has %d frames after %v", len(frames), time.Since(start))
		}
		if err := h.broker.await(t.Context(), func() bool { return strings.Count(fmt.Sprint(h.broker.trace), "close") == 2 }); err != nil {
			t.Fatal(err)
		}
		if cut := time.Since(start); cut != 10*time.Second {
			t.Errorf("cut after %v", cut)
		}
		if _, err := io.ReadAll(stalled.resp.Body); err == nil {
			t.Error("the stalled one's stream ended well")
		}
	})
}

func TestViewerGoesAway(t *testing.T) {
	t.Parallel()
	h := setup(t)
	id := h.submitAsync(message)
	ctx, leave := context.WithCancel(t.Context())
	h.stream(ctx, "GET", "/v1/turns/"+id+"/events", "").next()
	leave()
	if err := h.broker.await(t.Context(), func() bool { return slices.Contains(h.broker.trace, "close") }); err != nil {
		t.Fatal(err)
	}
	h.want(h.do("GET", "/v1/turns/"+id, ""), http.StatusOK, "")
}

// A connection that served a stream serves requests after it, with none of the
// stream's deadlines.
func TestConnectionOutlivesItsStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		dials := 0
		transport := h.client.Transport.(*http.Transport)
		dial := transport.DialContext
		transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials++
			return dial(ctx, network, addr)
		}
		h.echo()
		h.stream(t.Context(), "POST", "/v1/turns", message).events()
		time.Sleep(time.Minute) // of the test's own clock
		h.want(h.do("GET", "/healthz", ""), http.StatusOK, "")
		if dials != 1 {
			t.Errorf("%d connections", dials)
		}
	})
}

func TestHeadOfAStream(t *testing.T) {
	t.Parallel()
	h := setup(t)
	id := h.submitAsync(message)
	a := h.do("HEAD", "/v1/turns/"+id+"/events", "")
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "text/event-stream" || len(a.body) > 0 {
		t.Errorf("%d %v", a.status, a.header)
	}
}

func TestAppendFrame(t *testing.T) {
	t.Parallel()
	tests := []struct {
		frame turn.Frame
		want  string
	}{
		{turn.Frame{Seq: 1, Type: "assistant", Data: json.RawMessage(`{"text":"a\nb"}`)}, "id: 1\nevent: assistant\ndata: {\"text\":\"a\\nb\"}\n\n"},
		{turn.Frame{Seq: 9, Type: "x\n\rdata: y", Data: json.RawMessage("{\r\n\"a\":\n1}")}, "id: 9\nevent: x  data: y\ndata: {  \"a\": 1}\n\n"},
	}
	for _, tt := range tests {
		if got := string(appendFrame(nil, tt.frame)); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// A long log goes out in pieces, and arrives whole.
func TestLongReplay(t *testing.T) {
	t.Parallel()
	h := setup(t)
	id := h.submitAsync(message)
	sub := h.broker.take(t)
	const many = 500
	for range many {
		h.broker.emit(t, id, &turn.Delta{Kind: turn.TypeAssistantDelta, MessageID: "m", Delta: strings.Repeat("é", 1000)})
	}
	h.finish(sub, session.StatusCompleted)
	frames := h.stream(t.Context(), "GET", "/v1/turns/"+id+"/events", "").events()
	for i, f := range frames {
		if f.ID != strconv.Itoa(i+1) {
			t.Fatalf("frame %d has id %s", i, f.ID)
		}
	}
	if len(frames) != many+1 {
		t.Errorf("%d frames", len(frames))
	}
}

func TestViewOfNothing(t *testing.T) {
	t.Parallel()
	v, err := viewOf(url.Values{"types": {" , "}})
	if err != nil || v.types != nil {
		t.Errorf("%+v, %v", v, err)
	}
}

func BenchmarkAppendFrame(b *testing.B) {
	f := turn.Frame{Seq: 42, Type: turn.TypeAssistantDelta, Data: json.RawMessage(`{"type":"assistant_delta","messageId":"event_0","delta":"word ","createdAt":1800000000000}`)}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = appendFrame(buf[:0], f)
	}
}
