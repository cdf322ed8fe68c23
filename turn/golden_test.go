package turn_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

var update = flag.Bool("update", false, "write the golden files")

func raw(s string) json.RawMessage { return json.RawMessage(s) }

const (
	millis     = 1767225600123
	invocation = "inv_0123456789abcdef0123456789abcdef"
)

// golden compares lines with a file that has them as an array.
func golden(t *testing.T, name string, lines ...[]byte) {
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

func assistant() *session.Assistant {
	return &session.Assistant{
		EventBase: session.EventBase{ID: "event_1", CreatedAt: millis, InvocationID: invocation, AgentName: "concierge"},
		Text:      "Two are <free>.", Output: raw(`{"free":2}`),
	}
}

func usage() *session.Usage {
	u := &session.Usage{}
	u.AddCall("gpt-5.6-luna", &session.ModelUsage{InputTokens: 12, OutputTokens: 5, CachedTokens: 3, ReasoningTokens: 2})
	return u
}

// goldenEvents has a full and a minimal instance of every event that is in
// streams alone.
var goldenEvents = map[string][2]turn.Event{
	turn.TypeAssistantDelta: {
		&turn.Delta{Kind: turn.TypeAssistantDelta, MessageID: "event_1", Delta: "Two \"are\"\n<free>", CreatedAt: millis},
		&turn.Delta{Kind: turn.TypeAssistantDelta},
	},
	turn.TypeThoughtDelta: {
		&turn.Delta{Kind: turn.TypeThoughtDelta, MessageID: "event_2", Delta: "hm", CreatedAt: millis},
		&turn.Delta{Kind: turn.TypeThoughtDelta},
	},
	turn.TypeRestart: {
		&turn.Restart{
			Attempt: 3, Failures: 2, Reason: turn.RestartCrash, RewindTo: 17, CreatedAt: millis,
			Base: session.Base{Epoch: "e1", Version: 7, EventCount: 31},
		},
		&turn.Restart{Attempt: 2, Reason: turn.RestartHandoff},
	},
	turn.TypeReleased: {
		&turn.Released{Attempt: 2, CreatedAt: millis},
		&turn.Released{},
	},
	turn.TypeRetried: {
		&turn.Retried{Attempt: 2, Failures: 1, CreatedAt: millis},
		&turn.Retried{},
	},
	turn.TypeResult: {
		&turn.Result{
			SessionID: "session_42", InvocationID: invocation, Status: session.StatusYieldedTool,
			Output:       turn.Output{Text: "Two are <free>.", Value: raw(`{"free":2}`), Items: session.Events{assistant()}},
			CommitStatus: session.Merged, Version: 8,
			YieldedTools: []turn.YieldedTool{{CallID: "call_1", Name: "ask_guest", Args: raw(`{"q":"Which night?"}`)}},
			Error:        &turn.Error{Code: turn.CodeRateLimited, Message: "slow down", Retryable: true},
			Warning:      session.Merged.Warning(),
			Usage:        usage(), TurnUsage: usage(),
			State:  session.State{"nights": raw(`2`), "a": raw(`null`)},
			Events: session.Events{assistant()},
			Agent:  "concierge", Lane: turn.LaneBatch, Attempts: 3,
			CreatedAt: millis, StartedAt: millis + 5, FinishedAt: millis + 900,
			Metadata: map[string]string{"ticket": "T-1", "a": ""},
		},
		&turn.Result{
			SessionID: "session_42", InvocationID: invocation, Status: session.StatusCompleted, Agent: "echo",
			Output: turn.Output{Items: session.Events{}}, Attempts: 1, CreatedAt: millis, FinishedAt: millis,
		},
	},
}

func TestGoldenEvents(t *testing.T) {
	t.Parallel()
	for name, events := range goldenEvents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lines [][]byte
			for _, e := range events {
				data, err := turn.EncodeEvent(e)
				if err != nil {
					t.Fatal(err)
				}
				lines = append(lines, data)
				back, err := turn.DecodeEvent(e.Type(), data)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(e, back); diff != "" {
					t.Errorf("decoded event differs (-want +got):\n%s", diff)
				}
				if e.Type() != name {
					t.Errorf("a %s among the events of type %s", e.Type(), name)
				}
				if session.IsLedgerType(name) {
					t.Errorf("%s is a type of the ledger", name)
				}
			}
			golden(t, name, lines...)
		})
	}
}

var fullSubmission = &turn.Submission{
	Tenant: "acme", InvocationID: invocation, Pool: "default",
	Request: turn.Request{
		Agent: "concierge", SessionID: "session_42",
		Input: turn.Input{
			Message: &turn.Message{Text: "Is a suite free?", Media: []session.Media{
				{Type: "image", Source: session.MediaSource{Type: "url", URL: "https://example.com/a.png?b=1&c=2"}},
				{Type: "audio", Source: session.MediaSource{Type: "base64", MimeType: "audio/wav", Data: "UklGRg=="}},
			}},
			Tools:        []turn.ToolAnswer{{CallID: "call_1", Input: raw(`{"answer":"Friday"}`)}},
			State:        session.State{"nights": raw(`2`), "note": raw(`null`)},
			InitialState: map[string]session.State{"session": {"origin": raw(`"form"`)}, "user": {"diet": raw(`"vegan"`)}},
		},
		Response:     &turn.Response{Events: true, Usage: true, State: true, Deltas: true},
		Timeout:      30000,
		Lane:         turn.LaneInteractive,
		OnDisconnect: turn.OnDisconnectCancel,
		Scopes:       map[string]string{"user": "u1", "org": "o1"},
		Metadata:     map[string]string{"ticket": "T-1"},
	},
}

var minimalSubmission = &turn.Submission{
	Tenant: "default", InvocationID: invocation, Pool: "default",
	Request: turn.Request{SessionID: "session_42", Input: turn.Input{Message: turn.Text("hi")}},
}

func TestGoldenSubmission(t *testing.T) {
	t.Parallel()
	var lines [][]byte
	for _, s := range []*turn.Submission{fullSubmission, minimalSubmission} {
		stored := *s
		stored.StoredAt = millis // the broker's to say: not in the queued form
		data, err := stored.Encode()
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, data)
		back, err := turn.DecodeSubmission(data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s, back); diff != "" {
			t.Errorf("decoded submission differs (-want +got):\n%s", diff)
		}
	}
	golden(t, "submission", lines...)
}

func TestGoldenRequest(t *testing.T) {
	t.Parallel()
	var lines [][]byte
	for _, r := range []turn.Request{fullSubmission.Request, minimalSubmission.Request, {}} {
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, data)
		var back turn.Request
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r, back); diff != "" {
			t.Errorf("decoded request differs (-want +got):\n%s", diff)
		}
	}
	golden(t, "request", lines...)
}

func TestGoldenAgentInfo(t *testing.T) {
	t.Parallel()
	full := turn.AgentInfo{
		Name: "concierge", Description: "Books stays", Pool: "default", LastSeenAt: millis,
		Tools: []turn.ToolInfo{{Name: "lookup_stay"}, {Name: "ask_guest", InputSchema: raw(`{"type":"object"}`)}},
	}
	minimal := turn.AgentInfo{Name: "echo", Pool: "default", Tools: []turn.ToolInfo{}}
	var lines [][]byte
	for _, info := range []turn.AgentInfo{full, minimal} {
		data, err := json.Marshal(info)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, data)
		var back turn.AgentInfo
		if err := json.Unmarshal(data, &back); err != nil || !cmp.Equal(info, back) {
			t.Errorf("decoded: %+v %v", back, err)
		}
	}
	golden(t, "agentinfo", lines...)
}
