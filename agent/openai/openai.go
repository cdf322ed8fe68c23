package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/turnpool/turnpool/agent"
)

// API is one of the two that a provider may speak.
type API string

// The APIs.
const (
	Responses API = "responses"
	Chat      API = "chat"
)

const openAI = "https://api.openai.com/v1"

// Config says which model, where, and how. Only Model is always needed. Nothing
// is read from the environment.
type Config struct {
	// Model is the provider's name of it.
	Model string
	// BaseURL is the address that the API's paths are added to, for example
	// http://127.0.0.1:11434/v1; empty: OpenAI's.
	BaseURL string
	// APIKey is sent as a bearer token. OpenAI needs one; empty: none is sent.
	APIKey string
	// API is empty for Responses, or for Chat when there is a BaseURL.
	API API

	// ReasoningEffort is none, minimal, low, medium, high or what else the model
	// knows; empty: the model's default.
	ReasoningEffort string
	// ReasoningSummary is auto, concise or detailed: OpenAI then streams summaries
	// of the model's thoughts. Empty: no summaries. Responses only.
	ReasoningSummary string
	// MaxOutputTokens bounds an answer, its reasoning included; 0: the model's
	// limit.
	MaxOutputTokens int64
	// Temperature is left to the provider if it is nil.
	Temperature *float64

	// HTTPClient makes the requests; nil: one of the model's own, which keeps
	// connections open and waits 10 minutes for an answer's first byte.
	HTTPClient *http.Client
}

// Model is one model of a provider. Any number of calls may use it at once; they
// share its connections. It holds nothing that needs closing.
type Model struct {
	cfg         Config
	responses   responses.ResponseService
	completions openai.ChatCompletionService
	// unreasoned is set once the provider has refused to include reasoning items,
	// as OpenAI does for models that do not reason.
	unreasoned atomic.Bool
}

// New checks the configuration. It makes no request.
func New(cfg Config) (*Model, error) {
	if err := cfg.fill(); err != nil {
		return nil, fmt.Errorf("openai: %w", err)
	}
	// The services are made one by one, because the client of all of them would
	// take its defaults from OPENAI_* variables.
	opts := []option.RequestOption{
		option.WithBaseURL(cfg.BaseURL),
		option.WithHTTPClient(cfg.HTTPClient),
		option.WithMaxRetries(0),
		option.WithMiddleware(refuse),
	}
	if cfg.APIKey != "" {
		opts = append(opts, option.WithAPIKey(cfg.APIKey))
	}
	return &Model{
		cfg:         cfg,
		responses:   responses.NewResponseService(opts...),
		completions: openai.NewChatCompletionService(opts...),
	}, nil
}

// fill checks the configuration and fills in what is left out.
func (c *Config) fill() error {
	switch {
	case c.Model == "":
		return errors.New("no model is named")
	case c.APIKey == "" && c.BaseURL == "":
		return errors.New("OpenAI needs an API key")
	case c.API != "" && c.API != Responses && c.API != Chat:
		return fmt.Errorf("api %q is neither %q nor %q", c.API, Responses, Chat)
	case c.MaxOutputTokens < 0:
		return errors.New("the limit of output tokens must not be negative")
	case c.Temperature != nil && !(*c.Temperature >= 0 && *c.Temperature <= 2):
		return errors.New("the temperature must be from 0 to 2")
	}
	if c.API == "" {
		c.API = Responses
		if c.BaseURL != "" {
			c.API = Chat
		}
	}
	if c.API == Chat && c.ReasoningSummary != "" {
		return fmt.Errorf("api %q has no summaries of reasoning", Chat)
	}
	if c.BaseURL == "" {
		c.BaseURL = openAI
	}
	u, err := url.Parse(c.BaseURL)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("the base URL is no http or https address without a query") // not repeated: it may have a password
	}
	if c.HTTPClient == nil {
		c.HTTPClient = &http.Client{Transport: newTransport()}
	}
	return nil
}

// newTransport returns the standard one, with room for as many idle connections
// to the one host as to all, and a limit on a server that never answers.
func newTransport() http.RoundTripper {
	standard, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // the program has wrapped it, and had its reasons
		return http.DefaultTransport
	}
	own := standard.Clone()
	own.MaxIdleConnsPerHost = own.MaxIdleConns
	own.ResponseHeaderTimeout = 10 * time.Minute
	return own
}

// Name implements [agent.Model]: "openai/" and the provider's name of the model.
func (m *Model) Name() string { return "openai/" + m.cfg.Model }

// Generate implements [agent.Model]. When ctx ends, the request is closed and
// ctx's error comes back; every other failure is an [agent.ModelError].
func (m *Model) Generate(ctx context.Context, req *agent.ModelRequest, emit func(agent.ModelDelta)) (*agent.ModelResponse, error) {
	generate := m.respond
	if m.cfg.API == Chat {
		generate = m.complete
	}
	response, err := generate(ctx, req, emit)
	if err != nil {
		return nil, m.failure(ctx, err)
	}
	return response, nil
}
