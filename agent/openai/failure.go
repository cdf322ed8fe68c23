package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/openai/openai-go/v3/option"

	"github.com/turnpool/turnpool/agent"
)

// A failure's text may come from anybody who answers on the address, so it is
// bounded, in bytes.
const (
	maxErrorBody    = 64 << 10
	maxErrorMessage = 2 << 10
)

// refusal is an error that the provider sent.
type refusal struct {
	*agent.ModelError
	param string // the request's field that it names, if it names one
}

// Unwrap makes a refusal a [agent.ModelError] for [errors.As].
func (r *refusal) Unwrap() error { return r.ModelError }

// failure is what a caller gets for an error: ctx's own if it has ended, else a
// [agent.ModelError], which never has the API key in its text.
func (m *Model) failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	failed := agent.ModelError{Message: err.Error()}
	var told *agent.ModelError
	if errors.As(err, &told) {
		failed = *told
	}
	if m.cfg.APIKey != "" {
		failed.Message = strings.ReplaceAll(failed.Message, m.cfg.APIKey, "[API key]")
	}
	return &failed
}

// withoutAddress takes the address out of an HTTP client's error: it says nothing
// that the configuration does not, and may have a password.
func withoutAddress(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// badRequest is a question that the API has no form for. Asking again does not
// help, as with any other status 400.
func badRequest(format string, args ...any) error {
	return &agent.ModelError{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}
}

// refuse is a middleware that lets streams through, and turns every other answer
// into an error. The SDK would read an error of any length, and lose the status
// of one that is not in OpenAI's form.
func refuse(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	res, err := next(req)
	if err != nil || isStream(res) {
		return res, err
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // a part of it is better than nothing
	told := problemOf(text)
	failed := &agent.ModelError{Status: res.StatusCode, RetryAfter: retryAfter(res.Header, time.Now())}
	switch {
	case res.StatusCode >= 300:
		failed.Message = told.text(cmp.Or(http.StatusText(res.StatusCode), "an error without a message"))
	case told.isError():
		failed.Status, failed.Message = told.status(), told.text("an error without a message")
	default:
		failed.Status = http.StatusBadRequest
		failed.Message = "the server answered with " + contentType(res) + " instead of a stream"
	}
	return nil, &refusal{ModelError: failed, param: told.Param}
}

// isStream reports whether the answer may be one. Some servers stream under other
// names than text/event-stream, but not under these.
func isStream(res *http.Response) bool {
	kind := contentType(res)
	return res.StatusCode >= 200 && res.StatusCode < 300 && kind != "application/json" && kind != "text/html"
}

func contentType(res *http.Response) string {
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return kind
}

// problem is what a provider says went wrong, in any of the forms that are about.
type problem struct {
	Message string          `json:"message"`
	Type    string          `json:"type"`
	Code    json.RawMessage `json:"code"` // a string or a number
	Param   string          `json:"param"`
	plain   string          // all there is, if it is no JSON
}

// problemOf reads {"error": {…}}, {"error": "…"}, {"message": …}, {"detail": …} or
// a plain text. Fields of other types than expected are passed over.
func problemOf(text []byte) problem {
	var outer struct {
		problem
		Error  json.RawMessage `json:"error"`
		Detail json.RawMessage `json:"detail"`
	}
	if !json.Valid(text) {
		return problem{plain: string(text)}
	}
	_ = json.Unmarshal(text, &outer)
	told := outer.problem
	switch firstOf(outer.Error) {
	case '{':
		told = problem{}
		_ = json.Unmarshal(outer.Error, &told)
	case '"':
		told.Message = textOf(outer.Error)
	}
	if told.Type == "error" { // of the event, not of the error
		told.Type = ""
	}
	if told.Message == "" && firstOf(outer.Detail) != 'n' { // not null
		told.Message = unquote(outer.Detail)
	}
	return told
}

// firstOf is the byte that tells what kind of JSON a value is, 0 if there is none.
func firstOf(value json.RawMessage) byte {
	if len(value) == 0 {
		return 0
	}
	return value[0]
}

// isError reports whether anything is said to be wrong at all.
func (p problem) isError() bool { return p.Message != "" || p.code() != "" }

// code is the code, else the type, which is broader.
func (p problem) code() string {
	var number json.Number
	var name string
	if json.Unmarshal(p.Code, &name) != nil && json.Unmarshal(p.Code, &number) == nil {
		name = number.String()
	}
	return cmp.Or(name, p.Type)
}

// text is the message with its code, or otherwise what is given. A page of HTML
// says nothing to anybody.
func (p problem) text(otherwise string) string {
	message := cmp.Or(strings.TrimSpace(p.Message), strings.TrimSpace(p.plain))
	if message == "" || message[0] == '<' {
		message = otherwise
	}
	if len(message) > maxErrorMessage {
		message = strings.ToValidUTF8(message[:maxErrorMessage], "") + "…"
	}
	code := p.code()
	if _, err := strconv.Atoi(code); err == nil || strings.Contains(message, code) {
		return message // a number is a status, which is told apart
	}
	return message + " (" + code + ")"
}

// statuses are those that an error inside of a stream stands for. What has no code
// is the server's own fault, since it had taken the request.
var statuses = map[string]int{
	"":                      http.StatusInternalServerError,
	"server_error":          http.StatusInternalServerError,
	"internal_error":        http.StatusInternalServerError,
	"internal_server_error": http.StatusInternalServerError,
	"api_error":             http.StatusInternalServerError,
	"upstream_error":        http.StatusBadGateway,
	"overloaded":            http.StatusServiceUnavailable,
	"overloaded_error":      http.StatusServiceUnavailable,
	"server_overloaded":     http.StatusServiceUnavailable,
	"service_unavailable":   http.StatusServiceUnavailable,
	"timeout":               http.StatusGatewayTimeout,
	"vector_store_timeout":  http.StatusGatewayTimeout,
	"rate_limit_exceeded":   http.StatusTooManyRequests,
	"rate_limit_error":      http.StatusTooManyRequests,
	"too_many_requests":     http.StatusTooManyRequests,
	"insufficient_quota":    http.StatusTooManyRequests,
	"invalid_api_key":       http.StatusUnauthorized,
	"authentication_error":  http.StatusUnauthorized,
	"permission_error":      http.StatusForbidden,
}

// status is the HTTP status that the error would have had if it had come first.
func (p problem) status() int {
	code := p.code()
	if status, known := statuses[code]; known {
		return status
	}
	if status, known := statuses[p.Type]; known && p.Type != "" {
		return status
	}
	if number, err := strconv.Atoi(code); err == nil && number >= 400 && number < 600 {
		return number
	}
	return http.StatusBadRequest
}

// inStream is the error that a stream ends with.
func (p problem) inStream() error {
	return &agent.ModelError{Status: p.status(), Message: p.text("an error without a message")}
}

// retryAfter is how long the provider asks to wait, 0 if it does not. A date is
// compared with the provider's own clock, if it tells it.
func retryAfter(header http.Header, now time.Time) time.Duration {
	if wait := pause(header.Get("Retry-After-Ms"), time.Millisecond); wait > 0 {
		return wait
	}
	given := header.Get("Retry-After")
	if wait := pause(given, time.Second); wait > 0 {
		return wait
	}
	until, err := http.ParseTime(given)
	if err != nil {
		return 0
	}
	if theirs, err := http.ParseTime(header.Get("Date")); err == nil {
		now = theirs
	}
	return min(max(0, until.Sub(now)), maxRetryAfter)
}

// maxRetryAfter is what a longer wait is cut to.
const maxRetryAfter = 24 * time.Hour

// pause reads a number of units, 0 if it is none.
func pause(text string, unit time.Duration) time.Duration {
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || !(number > 0) {
		return 0
	}
	return time.Duration(min(number*float64(unit), float64(maxRetryAfter)))
}
