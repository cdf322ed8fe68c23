package session_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/session"
)

var update = flag.Bool("update", false, "write the golden files")

func raw(s string) json.RawMessage { return json.RawMessage(s) }

// fullBase has every field of an event's base.
var fullBase = session.EventBase{
	ID: "event_6f1c", CreatedAt: 1767225600123, InvocationID: "inv_01", AgentName: "concierge",
	ParentInvocationID: "inv_00",
	ProviderContext:    &session.ProviderContext{Provider: "openai", Data: raw(`{"id":"rs_1","encrypted":"<&>"}`)},
}

// minimalBase has those that no event lacks.
var minimalBase = session.EventBase{ID: "event_6f1c", CreatedAt: 1767225600123, InvocationID: "inv_01", AgentName: "concierge"}

// goldenEvents has a full and a minimal instance of every type.
var goldenEvents = map[string][2]session.Event{
	session.TypeUser: {
		&session.User{
			EventBase: fullBase, Text: "Is a suite free?\n\"Yes\"", Source: "voice", MessageID: "msg_1",
			Media: []session.Media{
				{Type: "image", Source: session.MediaSource{Type: "url", URL: "https://example.com/a.png?b=1&c=2"}},
				{Type: "document", Source: session.MediaSource{Type: "base64", MimeType: "application/pdf", Data: "JVBERi0="}},
			},
		},
		&session.User{EventBase: minimalBase, Text: ""},
	},
	session.TypeAssistant: {
		&session.Assistant{EventBase: fullBase, Text: "Two are.", Output: raw(`{"free":2}`)},
		&session.Assistant{EventBase: minimalBase},
	},
	session.TypeThought: {
		&session.Thought{EventBase: fullBase, Text: "They may mean the small one."},
		&session.Thought{EventBase: minimalBase},
	},
	session.TypeToolCall: {
		&session.ToolCall{EventBase: fullBase, CallID: "call_1", Name: "ask_guest", Args: raw(`{"q":"Which night?"}`), Yields: true},
		&session.ToolCall{EventBase: minimalBase, CallID: "call_1", Name: "ask_guest", Args: raw(`{}`)},
	},
	session.TypeToolYield: {
		&session.ToolYield{EventBase: fullBase, CallID: "call_1", Name: "ask_guest", Args: raw(`{"q":"Which night?"}`)},
		&session.ToolYield{EventBase: minimalBase, CallID: "call_1", Name: "ask_guest", Args: raw(`{}`)},
	},
	session.TypeToolInput: {
		&session.ToolInput{EventBase: fullBase, CallID: "call_1", Name: "ask_guest", Input: raw(`{"answer":"Friday"}`)},
		&session.ToolInput{EventBase: minimalBase, CallID: "call_1", Name: "ask_guest", Input: raw(`null`)},
	},
	session.TypeToolResult: {
		&session.ToolResult{
			EventBase: fullBase, CallID: "call_1", Name: "lookup_stay", Result: raw(`{"a\u0000b":"x\u0000y","lit":"\\u0000"}`),
			Error: "timed out", DurationMs: 30000, RetryCount: 2, TimedOut: true,
		},
		&session.ToolResult{EventBase: minimalBase, CallID: "call_1", Name: "lookup_stay"},
	},
	session.TypeStateChange: {
		&session.StateChange{EventBase: fullBase, Scope: session.ScopeSession, Source: session.SourceMutation, Changes: []session.Change{
			{Key: "nights", OldValue: raw(`1`), NewValue: raw(`{"n":2}`)},
			{Key: "note", OldValue: raw(`"old"`)},
			{Key: "room", NewValue: raw(`null`)},
		}},
		&session.StateChange{EventBase: minimalBase, Scope: "user", Source: session.SourceDirect, Changes: []session.Change{}},
	},
	session.TypeInvocationStart: {
		&session.InvocationStart{
			EventBase: fullBase, Kind: "turn", SessionID: "session_42", Version: 7, EventCount: 31, Epoch: "e1", Attempt: 2,
		},
		&session.InvocationStart{EventBase: minimalBase, Kind: "turn", SessionID: "session_42", Attempt: 1},
	},
	session.TypeInvocationEnd: {
		&session.InvocationEnd{
			EventBase: fullBase, Reason: session.StatusError,
			Error: &session.Error{Code: "model_error", Message: "overloaded", Retryable: true},
		},
		&session.InvocationEnd{EventBase: minimalBase, Reason: session.StatusCompleted},
	},
	session.TypeInvocationYield: {
		&session.InvocationYield{EventBase: fullBase, YieldedToolIDs: []string{"call_1", "call_2"}, YieldIndex: 3},
		&session.InvocationYield{EventBase: minimalBase, YieldedToolIDs: []string{}},
	},
	session.TypeInvocationResume: {
		&session.InvocationResume{EventBase: fullBase, YieldIndex: 3, Resumes: "inv_00"},
		&session.InvocationResume{EventBase: minimalBase, Resumes: "inv_00"},
	},
	session.TypeModelStart: {
		&session.ModelStart{
			EventBase: fullBase, StepIndex: 1, MessageCount: 4,
			Tools:        []session.ToolSummary{{Name: "ask_guest", Description: "Ask the guest"}, {Name: "lookup_stay"}},
			OutputSchema: raw(`{"type":"object"}`),
		},
		&session.ModelStart{EventBase: minimalBase, StepIndex: 1, MessageCount: 1},
	},
	session.TypeModelEnd: {
		&session.ModelEnd{
			EventBase: fullBase, StepIndex: 1, DurationMs: 812, Items: 3, FinishReason: "tool_calls",
			Usage: &session.ModelUsage{InputTokens: 900, OutputTokens: 40, CachedTokens: 512, CacheWriteTokens: 128, ReasoningTokens: 16},
			Error: &session.Error{Code: "rate_limited", Message: "slow down", Retryable: true},
		},
		&session.ModelEnd{EventBase: minimalBase, StepIndex: 1},
	},
	session.TypeAnnotation: {
		&session.Annotation{EventBase: fullBase, Kind: "mark", Label: "checkout", Message: "cart emptied", Data: raw(`[1,2]`)},
		&session.Annotation{EventBase: minimalBase, Kind: "phase"},
	},
	"dream": {
		&session.Unknown{
			EventBase: fullBase, TypeName: "dream",
			Raw: raw(`{"sheep":[1e2,1.10],"type":"dream","id":"event_6f1c","createdAt":1767225600123,"invocationId":"inv_01","agentName":"concierge","parentInvocationId":"inv_00","providerContext":{"provider":"openai","data":{"id":"rs_1","encrypted":"<&>"}}}`),
		},
		&session.Unknown{TypeName: "dream", Raw: raw(`{"type":"dream"}`)},
	},
}

// TestGolden pins the wire form of every event: a file a type, with a full and a
// minimal instance.
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, events := range goldenEvents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lines [][]byte
			for _, e := range events {
				data, err := session.Encode(e)
				if err != nil {
					t.Fatal(err)
				}
				lines = append(lines, data)
				back, err := session.Decode(data)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(e, back); diff != "" {
					t.Errorf("decoded event differs (-want +got):\n%s", diff)
				}
			}
			golden(t, name, lines)
		})
	}
}

// golden compares lines with a file that has them as an array.
func golden(t *testing.T, name string, lines [][]byte) {
	t.Helper()
	got := append(append([]byte("[\n"), bytes.Join(lines, []byte(",\n"))...), "\n]\n"...)
	path := filepath.Join("testdata", name+".golden.json")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestGoldenHasEveryType(t *testing.T) {
	t.Parallel()
	for _, name := range session.LedgerTypes() {
		pair, ok := goldenEvents[name]
		if !ok {
			t.Errorf("%s has no golden events", name)
			continue
		}
		for _, e := range pair {
			if e.Type() != name {
				t.Errorf("%T among the %s events is a %s", e, name, e.Type())
			}
		}
		if !session.IsLedgerType(name) {
			t.Errorf("%s is no ledger type", name)
		}
	}
	for _, name := range []string{"", "dream", "assistant_delta", "result"} {
		if session.IsLedgerType(name) {
			t.Errorf("%q is a ledger type", name)
		}
	}
}
