package httptool

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxExcerpt is how many bytes of an error's body the model sees: enough for a
// reason, too few for a page.
const maxExcerpt = 512

// result makes a result of an answer.
func (c *caller) result(resp *http.Response) (json.RawMessage, error) {
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, c.statusError(resp)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.max+1))
	switch {
	case err != nil:
		return nil, c.sendError(err)
	case int64(len(body)) > c.max:
		return nil, fmt.Errorf("the answer is longer than %d bytes, the limit of this tool (maxResponse)", c.max)
	}
	return decode(body, resp.Header.Get("Content-Type"))
}

// decode returns a body as JSON. JSON is taken for it whatever its type says, as
// many servers say text.
func decode(body []byte, contentType string) (json.RawMessage, error) {
	body = bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\ufeff")))
	switch {
	case len(body) == 0:
		return json.RawMessage("null"), nil
	case !utf8.Valid(body):
		return nil, errors.New("the answer is neither JSON nor text in UTF-8")
	case json.Valid(body):
		return body, nil
	case saysJSON(contentType):
		return nil, errors.New("the answer says that it is JSON, and is not")
	}
	return json.Marshal(string(body))
}

func saysJSON(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType) // "" if it is none
	return kind == "application/json" || strings.HasSuffix(kind, "+json")
}

// statusError says which status came, and how the body begins.
func (c *caller) statusError(resp *http.Response) error {
	text := strings.TrimSpace(fmt.Sprintf("status %d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
	// More than is shown, so that a secret on the edge is seen whole and taken
	// out. A body that breaks off is shown as far as it came.
	start, _ := io.ReadAll(io.LimitReader(resp.Body, 8*maxExcerpt))
	if excerpt := c.clean(string(start)); excerpt != "" {
		text += ": " + excerpt
	}
	return errors.New(text)
}

// sendError says why a request has no answer. The URL that net/http puts in
// front, the addresses and the names that were looked up are left out.
func (c *caller) sendError(err error) error {
	var (
		inURL  *url.Error
		lookup *net.DNSError
		cert   *tls.CertificateVerificationError
		op     *net.OpError
	)
	if errors.As(err, &inURL) {
		err = inURL.Err
	}
	for _, own := range []error{errNotPublic, errRedirects, errScheme, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, own) {
			return own
		}
	}
	switch {
	case errors.As(err, &lookup):
		return errors.New("the request failed: the host's name was not resolved")
	case errors.As(err, &cert):
		return errors.New("the request failed: the host's certificate is not trusted")
	case errors.As(err, &op):
		err = op.Err
	}
	return errors.New("the request failed: " + cmp.Or(c.clean(err.Error()), "it does not say why"))
}

// clean makes one short line of a text that a server had a hand in, without the
// tool's secrets.
func (c *caller) clean(text string) string {
	for _, secret := range c.secrets {
		text = strings.ReplaceAll(text, secret, "[redacted]")
	}
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\ufffd")), " ")
	if len(text) <= maxExcerpt {
		return text
	}
	end := maxExcerpt
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// secretsOf is what a server could repeat in an error: the values of headers and
// of the URL's parameters, and the words in them, if they are long enough to be
// secret.
func secretsOf(headers http.Header, target *target) (secrets []string) {
	add := func(value string) {
		if len(value) >= 8 {
			secrets = append(secrets, value)
		}
	}
	for name, values := range headers {
		if slices.Contains(plainHeaders, name) {
			continue
		}
		for _, value := range values {
			add(value)
			for word := range strings.FieldsSeq(value) {
				add(word)
			}
		}
	}
	for _, values := range target.url.Query() {
		for _, value := range values {
			add(value)
		}
	}
	if password, ok := target.url.User.Password(); ok {
		add(password)
	}
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return secrets
}
