package httptool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/turnpool/turnpool/agent"
)

var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
}

func hasBody(method string) bool { return method != http.MethodGet && method != http.MethodHead }

// ownHeaders are set by the request itself.
var ownHeaders = []string{
	"Connection", "Content-Length", "Host", "Idempotency-Key", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// headerFault says what is wrong with a header, or nothing.
func headerFault(name, value string) string {
	switch {
	case name == "" || strings.IndexFunc(name, notToken) >= 0:
		return "it is no header name; want letters, digits and -"
	case slices.Contains(ownHeaders, http.CanonicalHeaderKey(name)):
		return "the request sets it itself"
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return "want a value without line breaks and control characters"
	}
	return ""
}

// notToken is what a header name must not have (RFC 9110, 5.6.2).
func notToken(r rune) bool {
	return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// request makes the request of a call.
func (c *caller) request(ctx context.Context, call *agent.Call) (*http.Request, error) {
	args, err := object(call.Args)
	if err != nil {
		return nil, err
	}
	u, err := c.target.fill(args)
	if err != nil {
		return nil, err
	}
	var body io.Reader
	switch {
	case !hasBody(c.method):
		err = addQuery(u, args)
	case c.yields:
		answer := cmp.Or(string(call.Answer), "null")
		body, err = encode(map[string]any{"args": args, "answer": json.RawMessage(answer)})
	case len(args) > 0 || c.method != http.MethodDelete:
		body, err = encode(args)
	}
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, c.method, u.String(), body)
	if err != nil {
		return nil, errors.New("the arguments make no request") // its own words quote the URL
	}
	c.setHeaders(req, call.Token)
	return req, nil
}

func (c *caller) setHeaders(req *http.Request, token string) {
	req.Header.Set("Accept", "application/json, */*;q=0.5")
	req.Header.Set("User-Agent", "turnpool")
	if req.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(req.Header, c.headers.Clone())
	if token != "" {
		req.Header.Set("Idempotency-Key", token)
	}
}

// object reads arguments. Their numbers stay as they were written.
func object(raw json.RawMessage) (map[string]any, error) {
	args := map[string]any{}
	if len(raw) == 0 {
		return args, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&args); err != nil || args == nil {
		return nil, errors.New("arguments are not a JSON object")
	}
	return args, nil
}

// encode writes JSON with its keys in order, so that an attempt that is repeated
// sends the same bytes, however the model orders its keys.
func encode(value any) (io.Reader, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	out.Truncate(out.Len() - 1)              // the line break
	return bytes.NewReader(out.Bytes()), nil // of a type that net/http can read again, for a redirect
}

// addQuery adds the arguments behind the URL's own parameters. None of those can
// be given again: which one counts would be the server's guess, and the file's
// may be a key.
func addQuery(u *url.URL, args map[string]any) error {
	own, added := u.Query(), url.Values{}
	for name, value := range args {
		if own.Has(name) {
			return fmt.Errorf("argument %q is part of the URL already", name)
		}
		texts, err := queryTexts(value)
		if err != nil {
			return err
		}
		for _, text := range texts {
			added.Add(name, text)
		}
	}
	if len(added) > 0 {
		u.RawQuery = strings.TrimPrefix(u.RawQuery+"&"+added.Encode(), "&")
	}
	return nil
}

// queryTexts are the values of a parameter.
func queryTexts(value any) ([]string, error) {
	if value == nil {
		return nil, nil
	}
	if text, ok := scalar(value); ok {
		return []string{text}, nil
	}
	if list, ok := value.([]any); ok {
		var texts []string
		for _, each := range list {
			if text, ok := scalar(each); ok {
				texts = append(texts, text)
			}
		}
		if len(texts) == len(list) {
			return texts, nil
		}
	}
	text, err := json.Marshal(value)
	return []string{string(text)}, err
}

// scalar is the text of a string, a number or a boolean.
func scalar(value any) (string, bool) {
	switch value := value.(type) {
	case string:
		return value, true
	case json.Number:
		return value.String(), true
	case bool:
		return fmt.Sprint(value), true
	}
	return "", false
}

// plainHeaders are those of a tool that another host may see.
var plainHeaders = []string{"Accept", "Content-Type", "User-Agent"}

var (
	errRedirects = fmt.Errorf("more than %d redirects", maxRedirects)
	errScheme    = errors.New("a redirect leads to something that is not http or https")
)

// redirect decides on a redirect. Once one has led to another host, the tool's
// headers stay away for good, also on a way back: who sends a request there may
// want to use them.
func (c *caller) redirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return errRedirects
	}
	if req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return errScheme
	}
	req.Header.Del("Referer") // the URL, whose query may have a key
	for _, hop := range append(via[1:len(via):len(via)], req) {
		if !sameOrigin(hop.URL, via[0].URL) {
			c.withhold(req)
			break
		}
	}
	return nil
}

func (c *caller) withhold(req *http.Request) {
	for name := range c.headers {
		if !slices.Contains(plainHeaders, name) {
			req.Header.Del(name)
		}
	}
}

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Host, b.Host)
}
