package turn_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// Ledger events have one form in a stream and in a ledger.
func TestLedgerEvents(t *testing.T) {
	t.Parallel()
	inLedger, err := session.Encode(assistant())
	if err != nil {
		t.Fatal(err)
	}
	inStream, err := turn.EncodeEvent(assistant())
	if err != nil {
		t.Fatal(err)
	}
	if string(inLedger) != string(inStream) {
		t.Errorf("in the ledger %s, in the stream %s", inLedger, inStream)
	}
	back, err := turn.DecodeEvent(session.TypeAssistant, inStream)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(turn.Event(assistant()), back); diff != "" {
		t.Errorf("decoded event differs (-want +got):\n%s", diff)
	}
}

func TestUnknownEvent(t *testing.T) {
	t.Parallel()
	const data = `{"type":"dream","id":"event_9","sheep":[1e2]}`
	e, err := turn.DecodeEvent("dream", []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	again, err := turn.EncodeEvent(e)
	if err != nil || string(again) != data || e.Type() != "dream" || turn.Private(e) {
		t.Errorf("%s came back as %s: %v", data, again, err)
	}
}

func TestPrivate(t *testing.T) {
	t.Parallel()
	for name, pair := range goldenEvents {
		if got, want := turn.Private(pair[0]), name == turn.TypeReleased || name == turn.TypeRetried; got != want {
			t.Errorf("%s is private: %t", name, got)
		}
	}
	for scope, want := range map[string]bool{"session": false, "user": true, "": true} {
		if got := turn.Private(&session.StateChange{Scope: scope}); got != want {
			t.Errorf("a change of scope %q is private: %t", scope, got)
		}
	}
	if turn.Private(assistant()) {
		t.Error("an answer is private")
	}
}

// Every stored event is one line.
func TestOneLine(t *testing.T) {
	t.Parallel()
	nasty := "a\nb\r\u2028\x00\xff"
	for _, e := range []turn.Event{
		&turn.Delta{Kind: turn.TypeAssistantDelta, Delta: nasty},
		&session.User{Text: nasty},
		&session.ToolResult{Result: raw("{ \"a\":\n1 }")},
		&turn.Result{Metadata: map[string]string{nasty: nasty}, Output: turn.Output{Value: raw("{ \"a\":\n1 }")}},
		&session.Unknown{TypeName: "dream", Raw: raw("{ \"type\":\"dream\",\n\"a\":\t1 }")},
	} {
		data, err := turn.EncodeEvent(e)
		if err != nil {
			t.Errorf("%s: %v", e.Type(), err)
		}
		if strings.ContainsAny(string(data), "\n\r\x00") || !strings.HasPrefix(string(data), `{"type":"`+e.Type()+`"`) {
			t.Errorf("%s is %q", e.Type(), data)
		}
	}
}

func TestDecodeEventFails(t *testing.T) {
	t.Parallel()
	for typeName, data := range map[string]string{
		turn.TypeAssistantDelta: `{"delta":7}`,
		turn.TypeRestart:        `{"attempt":"one"}`,
		turn.TypeResult:         `{"output":{"items":[{"type":7}]}}`,
		turn.TypeReleased:       `[]`,
		session.TypeUser:        `{"text":"no type"}`,
		"":                      ``,
	} {
		if e, err := turn.DecodeEvent(typeName, []byte(data)); err == nil {
			t.Errorf("%s %s decoded as %+v", typeName, data, e)
		}
	}
}
