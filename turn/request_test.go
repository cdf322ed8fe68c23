package turn_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

func TestMessage(t *testing.T) {
	t.Parallel()
	media := []session.Media{{Type: "image", Source: session.MediaSource{Type: "url", URL: "u"}}}
	for data, want := range map[string]turn.Message{
		`"hi"`:           {Text: "hi"},
		`""`:             {},
		`"\u0000\ud800"`: {Text: "\x00\ufffd"},
		`{"text":"hi"}`:  {Text: "hi"},
		`{}`:             {},
		`{"media":[{"type":"image","source":{"type":"url","url":"u"}}]}`: {Media: media},
	} {
		got := turn.Message{Text: "before", Media: media} // nothing of which stays
		if err := json.Unmarshal([]byte(data), &got); err != nil {
			t.Errorf("%s: %v", data, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", data, diff)
		}
	}
	for _, data := range []string{`7`, `[]`, `true`, `{"text":7}`, `{"txt":"hi"}`, `{"text":"hi","role":"user"}`, `{"media":"u"}`, `"`} {
		var got turn.Message
		if err := json.Unmarshal([]byte(data), &got); err == nil {
			t.Errorf("%s decoded as %+v", data, got)
		}
	}
	var in turn.Input
	if err := json.Unmarshal([]byte(`{"message":null}`), &in); err != nil || in.Message != nil {
		t.Errorf("no message: %+v %v", in.Message, err)
	}
}

func TestInputEmpty(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   turn.Input
		want bool
	}{
		"nothing":       {turn.Input{}, true},
		"empty lists":   {turn.Input{Tools: []turn.ToolAnswer{}, State: session.State{}}, true},
		"initial state": {turn.Input{InitialState: map[string]session.State{"session": {"a": raw(`1`)}}}, true},
		"message":       {turn.Input{Message: turn.Text("")}, false},
		"answer":        {turn.Input{Tools: []turn.ToolAnswer{{}}}, false},
		"state":         {turn.Input{State: session.State{"a": raw(`1`)}}, false},
	} {
		if got := c.in.Empty(); got != c.want {
			t.Errorf("%s: empty %t", name, got)
		}
	}
}

func TestSubmissionTimeout(t *testing.T) {
	t.Parallel()
	const limit = 15 * time.Minute
	for asked, want := range map[int64]time.Duration{
		0: limit, -1: limit, math.MinInt64: limit,
		1: time.Millisecond, 30_000: 30 * time.Second, 900_000: limit, 900_001: limit,
		math.MaxInt64: limit, math.MaxInt64 / 1_000: limit,
		18446744073710: limit, // in nanoseconds it overflows to less than a second
	} {
		s := turn.Submission{Request: turn.Request{Timeout: asked}}
		if got := s.Timeout(limit); got != want {
			t.Errorf("timeout %d becomes %v, want %v", asked, got, want)
		}
	}
}

func TestDecodeSubmissionFails(t *testing.T) {
	t.Parallel()
	good := `{"tenant":"acme","invocationId":"` + invocation + `","pool":"default","request":{"sessionId":"session_1","input":{}}}`
	if _, err := turn.DecodeSubmission([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{
		{`"acme"`, `""`}, {`"acme"`, `"a.b"`}, {`"acme"`, `7`}, {`"` + invocation + `"`, `"inv_1"`}, {`"session_1"`, `""`},
		{`"input":{}`, `"input":{"message":7}`}, {`}}`, `}`}, {`}}`, `}} {}`},
	} {
		data := strings.Replace(good, c[0], c[1], 1)
		if s, err := turn.DecodeSubmission([]byte(data)); err == nil {
			t.Errorf("%s decoded as %+v", data, s)
		}
	}
}

func TestLanes(t *testing.T) {
	t.Parallel()
	if len(turn.Lanes) != 2 || turn.Lanes[0] != turn.LaneInteractive {
		t.Errorf("lanes: %v", turn.Lanes)
	}
}
