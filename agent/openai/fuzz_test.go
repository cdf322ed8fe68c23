package openai_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/openai"
	"github.com/turnpool/turnpool/session"
)

// answering is a network that answers every request with one stream.
type answering string

func (a answering) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}},
		Body: io.NopCloser(strings.NewReader(string(a))), Request: req,
	}, nil
}

// Whatever a server sends is an answer or a model error. Of an answer, the deltas
// fit the items, and all that the ledger keeps can be written and read again.
func FuzzStream(f *testing.F) {
	for _, body := range dense {
		f.Add(body)
	}
	f.Add(sse(true, `{"type":"error","code":"server_error"}`))
	f.Add(sse(false, `{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f"}},{"index":-1}]},"finish_reason":"length"}]}`))
	f.Add(sse(false, `{"type":"response.completed","response":{"output":[{"type":"message","content":[{}]},{"type":"reasoning"}]}}`))
	f.Fuzz(func(t *testing.T, body string) {
		for _, api := range []openai.API{openai.Responses, openai.Chat} {
			model := mustNew(t, openai.Config{
				Model: "m", BaseURL: "http://h", API: api, HTTPClient: &http.Client{Transport: answering(body)},
			})
			var deltas []agent.ModelDelta
			response, err := model.Generate(t.Context(), hello(), func(d agent.ModelDelta) { deltas = append(deltas, d) })
			var failed *agent.ModelError
			if err != nil {
				if !errors.As(err, &failed) || response != nil {
					t.Errorf("answer %v, error %v", response, err)
				}
				continue
			}
			for _, d := range deltas {
				if d.Text == "" || response.Items[d.Item].Kind != d.Kind || d.Kind == agent.ItemCall {
					t.Errorf("delta %+v of %+v", d, response.Items[d.Item])
				}
			}
			checkLedger(t, model, response)
		}
	})
}

// checkLedger keeps an answer as a run does, and asks the next question with it.
func checkLedger(t *testing.T, model agent.Model, response *agent.ModelResponse) {
	t.Helper()
	var conversation []session.Event
	for _, it := range response.Items {
		base := session.EventBase{ProviderContext: it.ProviderContext}
		var e session.Event
		switch it.Kind {
		case agent.ItemThought:
			e = &session.Thought{EventBase: base, Text: it.Text}
		case agent.ItemText:
			e = &session.Assistant{EventBase: base, Text: it.Text}
		default:
			e = &session.ToolCall{EventBase: base, CallID: it.CallID, Name: it.Name, Args: []byte(`{}`)}
		}
		data, err := session.Encode(e)
		if err != nil {
			t.Fatalf("%+v: %v", it, err)
		}
		back, err := session.Decode(data)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		conversation = append(conversation, back)
	}
	if _, err := model.Generate(t.Context(), &agent.ModelRequest{Conversation: conversation}, func(agent.ModelDelta) {}); err != nil {
		t.Errorf("asking again with the answer: %v", err)
	}
}
