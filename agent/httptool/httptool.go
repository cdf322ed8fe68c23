package httptool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpool/turnpool/agent"
)

// Defaults of a [Config].
const (
	DefaultTimeout     = 30 * time.Second
	DefaultMaxResponse = 1 << 20
)

// maxMaxResponse is what an answer may have at most: it is held in memory.
const maxMaxResponse = 1 << 30

// maxRedirects is how many redirects a call follows: enough for a moved API, too
// few for a loop to matter.
const maxRedirects = 5

// Config describes a tool. Name, Description and Parameters are the tool's own,
// see [agent.Tool].
type Config struct {
	Name        string
	Description string
	Parameters  *jsonschema.Schema
	// Yields makes the tool stop the turn and ask first. The request, made once
	// the answer is there, has it in its body, so it must be one that has a body.
	Yields *jsonschema.Schema
	// Method is GET, HEAD, POST, PUT, PATCH or DELETE; empty: POST.
	Method string
	// URL is http or https; its path and query may have {name} placeholders. Such
	// a name must be a required property of Parameters, if those name any.
	URL string
	// Headers go with each request, to the URL's own host only.
	Headers map[string]string
	// Timeout is the limit of one call, redirects and body included; 0:
	// [DefaultTimeout]. It becomes the tool's, so an agent's ToolTimeout does not
	// count.
	Timeout time.Duration
	// MaxResponse bounds the body of an answer, unpacked, in bytes; 0:
	// [DefaultMaxResponse]. A longer answer is an error.
	MaxResponse int64
	// AllowPrivate permits addresses that are not public: loopback, private and
	// link-local networks, and the like.
	AllowPrivate bool
	// Client sends the requests instead of this package's own, which all tools
	// share. It dials by itself, so nothing checks its addresses: it needs
	// AllowPrivate. Its CheckRedirect is not used.
	Client *http.Client
}

// Fault is something that is wrong with a [Config].
type Fault struct {
	// Field names what is wrong as an agents file does: method, url,
	// headers.X-Key, timeout, maxResponse, yields, client.
	Field string
	// Text says what is wrong and what is accepted. It has no value in it, as
	// that may be secret.
	Text string
}

// Check says what is wrong with the configuration, all of it. Name and schemas
// are left to [agent.Agent.Check].
func (c *Config) Check() []Fault {
	var faults []Fault
	fault := func(bad bool, field, text string) {
		if bad {
			faults = append(faults, Fault{field, text})
		}
	}
	fault(!slices.Contains(methods, c.method()), "method", "there is no such method; want one of "+strings.Join(methods, ", "))
	fault(c.Yields != nil && !hasBody(c.method()), "yields", "the answer goes in the body; want a method that has one, such as POST")
	fault(c.Timeout < 0, "timeout", "want a positive duration")
	fault(c.MaxResponse < 0 || c.MaxResponse > maxMaxResponse, "maxResponse", "want a number of bytes from 1 to 1 GiB")
	fault(c.Client != nil && !c.AllowPrivate, "client", "nothing checks its addresses; want AllowPrivate with it")
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		text := headerFault(name, c.Headers[name])
		fault(text != "", "headers."+name, text)
		fault(seen[http.CanonicalHeaderKey(name)], "headers."+name, "the header is there twice")
		seen[http.CanonicalHeaderKey(name)] = true
	}
	target, err := parseTarget(c.URL)
	if err != nil {
		return append(faults, Fault{"url", err.Error()})
	}
	fault(!c.AllowPrivate && target.private(), "url",
		"the host is no public address; want one that is, or private addresses allowed (allowPrivate)")
	for _, name := range target.names() {
		fault(!c.requires(name), "url", fmt.Sprintf("{%s} is no required property of parameters", name))
	}
	return faults
}

// requires reports whether the arguments have the property for sure. Parameters
// that name none are not judged.
func (c *Config) requires(name string) bool {
	return c.Parameters == nil || len(c.Parameters.Properties) == 0 ||
		c.Parameters.Properties[name] != nil && slices.Contains(c.Parameters.Required, name)
}

func (c *Config) method() string { return cmp.Or(c.Method, http.MethodPost) }

// New makes a tool of the configuration, which is not used after that. The tool
// serves any number of calls at once; a call whose context ends closes its
// request. It does not ask the network, so a host need not be there yet.
func New(cfg Config) (*agent.Tool, error) {
	var errs []error
	for _, fault := range cfg.Check() {
		errs = append(errs, fmt.Errorf("http tool %q: %s: %s", cfg.Name, fault.Field, fault.Text))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &agent.Tool{
		Name: cfg.Name, Description: cfg.Description, Parameters: cfg.Parameters, Yields: cfg.Yields,
		Timeout: cmp.Or(cfg.Timeout, DefaultTimeout), Execute: newCaller(cfg).execute,
	}, nil
}

// caller makes the calls of one tool. It is not changed once it is made.
type caller struct {
	method  string
	target  *target
	yields  bool
	headers http.Header
	max     int64
	client  *http.Client
	secrets []string // what no error may have, longest first
}

func newCaller(cfg Config) *caller {
	target, _ := parseTarget(cfg.URL) // Check has seen it
	c := &caller{
		method: cfg.method(), target: target, yields: cfg.Yields != nil,
		headers: http.Header{}, max: cmp.Or(cfg.MaxResponse, DefaultMaxResponse),
	}
	for name, value := range cfg.Headers {
		c.headers.Set(name, value)
	}
	c.secrets = secretsOf(c.headers, target)
	client := &http.Client{Transport: transport(cfg.AllowPrivate)}
	if cfg.Client != nil {
		own := *cfg.Client
		client = &own
	}
	client.CheckRedirect = c.redirect
	c.client = client
	return c
}

// execute makes one call; see the package comment.
func (c *caller) execute(ctx context.Context, call *agent.Call) (json.RawMessage, error) {
	req, err := c.request(ctx, call)
	if err != nil {
		return nil, err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, c.sendError(err)
	}
	defer resp.Body.Close()
	return c.result(resp)
}
