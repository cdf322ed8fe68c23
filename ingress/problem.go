package ingress

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// Codes of the problems that this server answers with.
const (
	codeMalformedJSON    = "malformed_json"
	codeUnknownField     = "unknown_field"
	codeInvalidField     = "invalid_field"
	codeEmptyInput       = "empty_input"
	codeMissingAgent     = "missing_agent"
	codeBadCursor        = "bad_cursor"
	codeNotFound         = "not_found"
	codeUnknownAgent     = "unknown_agent"
	codeUnknownTurn      = "unknown_turn"
	codeUnknownDead      = "unknown_dead"
	codeUnknownSession   = "unknown_session"
	codeMethodNotAllowed = "method_not_allowed"
	codeSessionExists    = "session_exists"
	codeExpired          = "expired"
	codeTooLarge         = "too_large"
	codeUnsupportedMedia = "unsupported_media_type"
	codeKeyMismatch      = "idempotency_mismatch"
	codeQueueFull        = "queue_full"
	codeRateLimited      = "rate_limited"
	codeInternal         = "internal"
	codeUnavailable      = "unavailable"
)

// meaning is what a code says over HTTP.
type meaning struct {
	status int
	title  string
	// retryAfter is in seconds; 0: the caller is not asked to come back.
	retryAfter int
}

// meanings is the one table from code to status.
var meanings = map[string]meaning{
	codeMalformedJSON:    {status: http.StatusBadRequest, title: "The body is not well-formed JSON"},
	codeUnknownField:     {status: http.StatusBadRequest, title: "A field is unknown"},
	codeInvalidField:     {status: http.StatusBadRequest, title: "A field has an invalid value"},
	codeEmptyInput:       {status: http.StatusBadRequest, title: "The input asks for nothing"},
	codeMissingAgent:     {status: http.StatusBadRequest, title: "No agent is named"},
	codeBadCursor:        {status: http.StatusBadRequest, title: "The cursor is not one of this server's"},
	codeNotFound:         {status: http.StatusNotFound, title: "Not found"},
	codeUnknownAgent:     {status: http.StatusNotFound, title: "No such agent"},
	codeUnknownTurn:      {status: http.StatusNotFound, title: "No such turn"},
	codeUnknownDead:      {status: http.StatusNotFound, title: "No such dead letter"},
	codeUnknownSession:   {status: http.StatusNotFound, title: "No such session"},
	codeMethodNotAllowed: {status: http.StatusMethodNotAllowed, title: "Method not allowed"},
	codeSessionExists:    {status: http.StatusConflict, title: "The session exists already"},
	codeExpired:          {status: http.StatusGone, title: "The events are not kept any more"},
	codeTooLarge:         {status: http.StatusRequestEntityTooLarge, title: "The request is too large"},
	codeUnsupportedMedia: {status: http.StatusUnsupportedMediaType, title: "The body is not JSON"},
	codeKeyMismatch:      {status: http.StatusUnprocessableEntity, title: "The key was used for another request"},
	codeQueueFull:        {status: http.StatusTooManyRequests, title: "The queue is full", retryAfter: 2},
	codeRateLimited:      {status: http.StatusTooManyRequests, title: "Too many requests", retryAfter: 3},
	codeInternal:         {status: http.StatusInternalServerError, title: "Something went wrong in the server"},
	codeUnavailable:      {status: http.StatusServiceUnavailable, title: "The service cannot answer now", retryAfter: 2},
}

// sentinels is the one table from an error's meaning to its code. What is in
// neither it nor a [fault] is internal.
var sentinels = []struct {
	err  error
	code string
}{
	{turn.ErrQueueFull, codeQueueFull},
	{turn.ErrTooLarge, codeTooLarge},
	{turn.ErrUnavailable, codeUnavailable},
	{turn.ErrExpired, codeExpired},
	{session.ErrExists, codeSessionExists},
	{context.DeadlineExceeded, codeUnavailable},
}

// statusOfTurn is the status of a waiting caller's answer, by the code of the
// error that the turn ended in; any other code is a 500.
var statusOfTurn = map[string]int{
	turn.CodeTimeout:         http.StatusGatewayTimeout,
	turn.CodeUnknownCall:     http.StatusConflict,
	turn.CodeAlreadyAnswered: http.StatusConflict,
	turn.CodeInvalidAnswer:   http.StatusUnprocessableEntity,
}

// fault is an error with all that its problem body says.
type fault struct {
	code     string
	detail   string
	fields   []fieldError
	instance string // "": the request's path
	location string // goes into the Location header
	cause    error  // for the log alone
}

// Error implements the error interface.
func (f *fault) Error() string {
	if f.cause != nil {
		return f.code + ": " + f.detail + ": " + f.cause.Error()
	}
	return f.code + ": " + f.detail
}

// Unwrap returns the cause.
func (f *fault) Unwrap() error { return f.cause }

// fieldError is what is wrong with one field of a request.
type fieldError struct {
	Path    string `json:"path"` // a JSON pointer
	Message string `json:"message"`
}

type problem struct {
	Type     string       `json:"type"`
	Title    string       `json:"title"`
	Status   int          `json:"status"`
	Detail   string       `json:"detail,omitempty"`
	Instance string       `json:"instance"`
	Code     string       `json:"code"`
	Errors   []fieldError `json:"errors,omitempty"`
}

// faultOf returns the fault that err is or means.
func faultOf(err error) *fault {
	var f *fault
	if errors.As(err, &f) {
		return f
	}
	return &fault{code: codeOf(err), cause: err}
}

func codeOf(err error) string {
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			return s.code
		}
	}
	return codeInternal
}

// storeFault is what an error of the store means: but for the errors that it
// has names for, the store could not be reached.
func storeFault(err error) error {
	if errors.Is(err, session.ErrExists) || errors.Is(err, context.Canceled) {
		return err
	}
	return &fault{code: codeUnavailable, detail: "the store of sessions cannot be reached", cause: err}
}

// brokerFault is what an error of the queue or the log means.
func brokerFault(err error) error {
	if code := codeOf(err); code != codeUnavailable {
		return err
	}
	return &fault{code: codeUnavailable, detail: "the broker cannot be reached", cause: err}
}

// fail answers with the problem that err is, and logs it if it is the server's.
// When the caller is gone there is nobody to tell.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return
	}
	f := faultOf(err)
	switch status := meanings[f.code].status; {
	case status >= http.StatusInternalServerError:
		s.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "code", f.code, "error", err)
	case status == http.StatusTooManyRequests:
		s.log.Warn("request refused", "method", r.Method, "path", r.URL.Path, "code", f.code)
	}
	writeProblem(w, r, f)
}

func writeProblem(w http.ResponseWriter, r *http.Request, f *fault) {
	m := meanings[f.code]
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	if m.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(m.retryAfter))
	}
	if f.location != "" {
		h.Set("Location", f.location)
	}
	writeBody(w, m.status, problem{
		Type: "urn:turnpool:" + f.code, Title: m.title, Status: m.status, Detail: f.detail,
		Instance: cmp.Or(f.instance, r.URL.EscapedPath()), Code: f.code, Errors: f.fields,
	})
}
