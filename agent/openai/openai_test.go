package openai_test

import (
	"math"
	"strings"
	"testing"

	"github.com/turnpool/turnpool/agent/openai"
	"github.com/turnpool/turnpool/agent/openai/openaitest"
)

func TestNew(t *testing.T) {
	t.Parallel()
	warm, hot, none := 1.5, 2.5, math.NaN()
	for name, c := range map[string]struct {
		cfg  openai.Config
		want string // part of the error, "" if there is none
	}{
		"OpenAI":              {openai.Config{Model: "m", APIKey: "k"}, ""},
		"a server of one's":   {openai.Config{Model: "m", BaseURL: "http://127.0.0.1:1/v1"}, ""},
		"everything":          {openai.Config{Model: "m", APIKey: "k", API: openai.Responses, ReasoningEffort: "low", ReasoningSummary: "auto", MaxOutputTokens: 9, Temperature: &warm}, ""},
		"no model":            {openai.Config{APIKey: "k"}, "no model"},
		"no key":              {openai.Config{Model: "m"}, "API key"},
		"no such api":         {openai.Config{Model: "m", APIKey: "k", API: "completions"}, `"completions" is neither`},
		"negative limit":      {openai.Config{Model: "m", APIKey: "k", MaxOutputTokens: -1}, "negative"},
		"too hot":             {openai.Config{Model: "m", APIKey: "k", Temperature: &hot}, "temperature"},
		"no temperature":      {openai.Config{Model: "m", APIKey: "k", Temperature: &none}, "temperature"},
		"summaries with chat": {openai.Config{Model: "m", BaseURL: "http://h", ReasoningSummary: "auto"}, "summaries"},
		"no host":             {openai.Config{Model: "m", BaseURL: "/v1"}, "base URL"},
		"no http":             {openai.Config{Model: "m", BaseURL: "ftp://user:hidden@h/v1"}, "base URL"},
		"no address":          {openai.Config{Model: "m", BaseURL: "http://h:hidden/v1"}, "base URL"},
		"a query":             {openai.Config{Model: "m", BaseURL: "http://h/v1?key=hidden"}, "base URL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model, err := openai.New(c.cfg)
			switch {
			case c.want == "" && (err != nil || model.Name() != "openai/m"):
				t.Errorf("model %v, error %v", model, err)
			case c.want != "" && (err == nil || model != nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("model %v, error %v, want one with %q", model, err, c.want)
			case err != nil && strings.Contains(err.Error(), "hidden"):
				t.Errorf("error %q tells a secret", err)
			}
		})
	}
}

// The API is Chat for a base URL, unless the configuration says otherwise.
func TestWhichAPI(t *testing.T) {
	t.Parallel()
	for given, path := range map[openai.API]string{
		"": "/v1/chat/completions", openai.Chat: "/v1/chat/completions", openai.Responses: "/v1/responses",
	} {
		model, srv := setup(t, openai.Config{API: given})
		srv.Reply(openaitest.Reply{})
		mustAsk(t, model, hello())
		equal(t, "path for "+string(given), srv.Requests()[0].Path, path)
	}
}

// Nothing of the SDK's variables gets into a request.
func TestNoEnvironment(t *testing.T) {
	for _, name := range []string{"OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"} {
		t.Setenv(name, "from-the-environment")
	}
	t.Setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/from-the-environment")
	t.Setenv("OPENAI_CUSTOM_HEADERS", "X-Custom: from-the-environment")
	for _, api := range []openai.API{openai.Responses, openai.Chat} {
		for key, want := range map[string]string{"": "", "sk-own": "Bearer sk-own"} {
			srv := openaitest.New(t)
			srv.Reply(openaitest.Reply{})
			mustAsk(t, mustNew(t, openai.Config{Model: "m", BaseURL: srv.URL(), APIKey: key, API: api}), hello())
			header := srv.Requests()[0].Header
			equal(t, "authorization", header.Get("Authorization"), want)
			for name, values := range header {
				if strings.Contains(strings.Join(values, " "), "environment") {
					t.Errorf("%s: %v", name, values)
				}
			}
		}
	}
}
