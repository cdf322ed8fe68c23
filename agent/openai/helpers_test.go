package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/openai"
	"github.com/turnpool/turnpool/agent/openai/openaitest"
	"github.com/turnpool/turnpool/session"
)

var _ agent.Model = (*openai.Model)(nil)

// apis runs a test for each API.
func apis(t *testing.T, test func(t *testing.T, api openai.API)) {
	t.Helper()
	for _, api := range []openai.API{openai.Responses, openai.Chat} {
		t.Run(string(api), func(t *testing.T) {
			t.Parallel()
			test(t, api)
		})
	}
}

// setup returns a model and the provider that it asks.
func setup(t *testing.T, cfg openai.Config) (*openai.Model, *openaitest.Server) {
	t.Helper()
	srv := openaitest.New(t)
	cfg.BaseURL, cfg.APIKey = srv.URL(), "sk-secret"
	if cfg.Model == "" {
		cfg.Model = "test-model"
	}
	return mustNew(t, cfg), srv
}

func mustNew(t testing.TB, cfg openai.Config) *openai.Model {
	t.Helper()
	model, err := openai.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// hello is a question with nothing special.
func hello() *agent.ModelRequest {
	return &agent.ModelRequest{Step: 1, Conversation: []session.Event{&session.User{Text: "hello"}}}
}

// ask asks, and checks that the deltas are those of the items: each at its item's
// place, of its kind, and all of its text.
func ask(t testing.TB, m agent.Model, req *agent.ModelRequest) (*agent.ModelResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var deltas []agent.ModelDelta
	response, err := m.Generate(ctx, req, func(d agent.ModelDelta) { deltas = append(deltas, d) })
	if err == nil {
		checkDeltas(t, response, deltas)
	}
	return response, err
}

func checkDeltas(t testing.TB, response *agent.ModelResponse, deltas []agent.ModelDelta) {
	t.Helper()
	texts := make([]strings.Builder, len(response.Items))
	for _, d := range deltas {
		if d.Item >= len(response.Items) || d.Kind != response.Items[d.Item].Kind || d.Kind == agent.ItemCall || d.Text == "" {
			t.Fatalf("delta %+v does not fit the items %+v", d, response.Items)
		}
		texts[d.Item].WriteString(d.Text)
	}
	for i, it := range response.Items {
		if streamed := texts[i].String(); streamed != it.Text {
			t.Errorf("item %d has the text %q, and streamed %q", i, it.Text, streamed)
		}
	}
}

// mustAsk is [ask] for questions that are answered.
func mustAsk(t testing.TB, m agent.Model, req *agent.ModelRequest) *agent.ModelResponse {
	t.Helper()
	response, err := ask(t, m, req)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// fails asks a question that is not answered, and returns why.
func fails(t testing.TB, m agent.Model, req *agent.ModelRequest) *agent.ModelError {
	t.Helper()
	response, err := ask(t, m, req)
	var failed *agent.ModelError
	if !errors.As(err, &failed) || response != nil {
		t.Fatalf("answer %+v, error %v; want a model error", response, err)
	}
	if strings.Contains(failed.Message, "sk-secret") {
		t.Errorf("the message has the key: %s", failed.Message)
	}
	return failed
}

// seen is an item as tests compare it: calls have arguments for a text.
type seen struct {
	Kind    string
	Text    string
	CallID  string
	Name    string
	Context string
}

func see(items []agent.Item) (all []seen) {
	for _, it := range items {
		s := seen{Text: it.Text, CallID: it.CallID, Name: it.Name}
		s.Kind = map[agent.ItemKind]string{agent.ItemText: "text", agent.ItemThought: "thought", agent.ItemCall: "call"}[it.Kind]
		if it.Kind == agent.ItemCall {
			s.Text = string(it.Args)
		}
		if c := it.ProviderContext; c != nil {
			s.Context = c.Provider + " " + string(c.Data)
		}
		all = append(all, s)
	}
	return all
}

// said is an item without its context.
func said(items []agent.Item) []seen {
	all := see(items)
	for i := range all {
		all[i].Context = ""
	}
	return all
}

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// decode reads JSON as a server would.
func decode(t testing.TB, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}

// within fails the test if it takes longer than a minute of real time.
func within[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came in a minute")
		panic("unreachable")
	}
}

func indexOf(t testing.TB, text, part string) int {
	t.Helper()
	at := strings.Index(text, part)
	if at < 0 {
		t.Fatalf("no %q in %s", part, text)
	}
	return at
}
