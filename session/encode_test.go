package session_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/session"
)

func TestEncodeAll(t *testing.T) {
	t.Parallel()
	var all []session.Event
	for _, name := range append(session.LedgerTypes(), "dream") {
		pair := goldenEvents[name]
		all = append(all, pair[:]...)
	}
	data, err := session.EncodeAll(all)
	if err != nil {
		t.Fatal(err)
	}
	back, err := session.DecodeAll(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all, back); diff != "" {
		t.Errorf("decoded events differ (-want +got):\n%s", diff)
	}
	if data, err := session.EncodeAll(nil); err != nil || string(data) != "[]" {
		t.Errorf("no events: %s %v", data, err)
	}
}

func TestEventsAsJSON(t *testing.T) {
	t.Parallel()
	type page struct{ Events session.Events }
	in := page{session.Events{goldenEvents[session.TypeToolResult][0], goldenEvents["dream"][0]}}
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out page
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	if len(out.Events) != 2 {
		t.Fatalf("%d events", len(out.Events))
	}
	if diff := cmp.Diff(in.Events[0], out.Events[0], cmp.Comparer(session.EqualJSON)); diff != "" {
		t.Errorf("decoded event differs (-want +got):\n%s", diff)
	}
	if data, _ := json.Marshal(page{}); string(data) != `{"Events":[]}` {
		t.Errorf("no events: %s", data)
	}
}

// What cannot be encoded is an error, never a ledger that cannot be read.
func TestEncodeFails(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]session.Event{
		"nil":               nil,
		"nil pointer":       (*session.User)(nil),
		"nil unknown":       (*session.Unknown)(nil),
		"broken raw":        &session.ToolCall{Args: raw(`{"a":`)},
		"two values":        &session.ToolCall{Args: raw(`1 2`)},
		"empty raw":         &session.ToolCall{Args: raw(``)},
		"control character": &session.ToolCall{Args: raw("\"\x00\"")},
		"unknown, empty":    &session.Unknown{TypeName: "dream"},
		"unknown, no type":  &session.Unknown{TypeName: "dream", Raw: raw(`{}`)},
		"unknown, no event": &session.Unknown{TypeName: "dream", Raw: raw(`7`)},
		"too deep":          &session.ToolCall{Args: raw(strings.Repeat("[", 9_995) + strings.Repeat("]", 9_995))},
		"too deep, unknown": &session.Unknown{Raw: raw(`{"type":"dream","a":` + strings.Repeat("[", 9_995) + strings.Repeat("]", 9_995) + `}`)},
	} {
		if data, err := session.Encode(e); err == nil {
			t.Errorf("%s: encoded as %.100s", name, data)
		}
		if _, err := session.EncodeAll([]session.Event{goldenEvents[session.TypeUser][0], e}); err == nil {
			t.Errorf("%s: encoded in a slice", name)
		}
	}
}

// What is encoded can be read back, in a slice and in a page of slices.
func TestEncodeDeep(t *testing.T) {
	t.Parallel()
	wide := strings.Repeat("[],", 20_000)
	for name, value := range map[string]string{
		"deep":    strings.Repeat("[", 9_980) + strings.Repeat("]", 9_980),
		"wide":    "[" + wide[:len(wide)-1] + "]",
		"in text": `"` + strings.Repeat("[{", 20_000) + `"`,
	} {
		data, err := session.EncodeAll([]session.Event{&session.StateChange{Changes: []session.Change{{Key: "k", NewValue: raw(value)}}}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := session.DecodeAll(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !json.Valid([]byte(`{"events":` + string(data) + `}`)) {
			t.Errorf("%s: not valid in a page", name)
		}
	}
}

func TestEncodeText(t *testing.T) {
	t.Parallel()
	e := &session.ToolResult{CallID: "a\xff\xfeb", Result: raw("{\"k\xff\xfe\":\"\\u0000\\ud800\"}"), Error: "\x00"}
	data, err := session.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	if !utf8.Valid(data) {
		t.Errorf("not UTF-8: %q", data)
	}
	back, err := session.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	want := &session.ToolResult{CallID: "a\ufffd\ufffdb", Result: raw("{\"k\ufffd\ufffd\":\"\\u0000\\ud800\"}"), Error: "\x00"}
	if diff := cmp.Diff(session.Event(want), back); diff != "" {
		t.Errorf("decoded event differs (-want +got):\n%s", diff)
	}
}

func TestDecodeFails(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		``, `null`, `7`, `[]`, `{}`, `{"type":""}`, `{"type":7}`, `{"type":"user","text":7}`, `{"type":"user"`,
		`{"type":"dream","createdAt":"yesterday"}`, `{"type":"user"} {}`,
	} {
		if e, err := session.Decode([]byte(data)); err == nil {
			t.Errorf("%s decoded as %+v", data, e)
		}
	}
	for _, data := range []string{``, `{}`, `[7]`, `[null]`, `[{}]`, `[{"type":"user"}`} {
		if e, err := session.DecodeAll([]byte(data)); err == nil {
			t.Errorf("%s decoded as %+v", data, e)
		}
	}
}

func TestMayLeave(t *testing.T) {
	t.Parallel()
	for scope, want := range map[string]bool{"session": true, "user": false, "org": false, "": false, "Session": false} {
		if got := session.MayLeave(&session.StateChange{Scope: scope}); got != want {
			t.Errorf("change of scope %q may leave: %t", scope, got)
		}
	}
	for name, pair := range goldenEvents {
		if name != session.TypeStateChange && !session.MayLeave(pair[0]) {
			t.Errorf("a %s may not leave", name)
		}
	}
}

func TestError(t *testing.T) {
	t.Parallel()
	var err error = &session.Error{Code: "timeout", Message: "too slow"}
	if err.Error() != "timeout: too slow" {
		t.Error(err)
	}
}
