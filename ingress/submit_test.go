package ingress

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

func TestSubmitWaitsForTheResult(t *testing.T) {
	t.Parallel()
	h := setup(t)
	h.echo()
	a := h.do("POST", "/v1/turns", `{"sessionId":"thread-42","input":{"message":"hi"},"metadata":{"ticket":"7"}}`)
	h.want(a, http.StatusOK, "")
	if got := a.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
	golden(t, "turn_completed", a.body)

	// The same bytes are under its id.
	id := decodeBody[turn.Result](t, a).InvocationID
	again := h.do("GET", "/v1/turns/"+id, "")
	h.want(again, http.StatusOK, "")
	if diff := cmp.Diff(string(a.body), string(again.body)); diff != "" {
		t.Errorf("POST and GET differ:\n%s", diff)
	}
}

func TestSubmitPassesTheRequestOn(t *testing.T) {
	t.Parallel()
	h := setup(t)
	id := h.submitAsync(`{"agent":"concierge","sessionId":"a","input":{"tools":[{"callId":"c","input":{"x": 1}}]},"timeout":5,"lane":"batch","scopes":{"user":"u"},"metadata":{"k":"v"}}`)
	want := &turn.Submission{
		Tenant: turn.DefaultTenant, InvocationID: id, Pool: "desk", StoredAt: now.UnixMilli(),
		Request: turn.Request{
			Agent: "concierge", SessionID: "session_a", Timeout: 5, Lane: turn.LaneBatch,
			Input:  turn.Input{Tools: []turn.ToolAnswer{{CallID: "c", Input: json.RawMessage(`{"x":1}`)}}},
			Scopes: map[string]string{"user": "u"}, Metadata: map[string]string{"k": "v"},
		},
	}
	if diff := cmp.Diff(want, h.broker.take(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if log := h.logs.String(); !strings.Contains(log, `msg="turn accepted" invocation=`+id+` session=session_a agent=concierge lane=batch`) {
		t.Errorf("log: %s", log)
	}
}

func TestSubmitAsync(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ prefer, applied string }{
		"respond-async":        {"respond-async", "respond-async"},
		"its case":             {"Respond-Async; foo=bar", "respond-async"},
		"no wait":              {"wait=0", "wait=0"},
		"no wait, quoted":      {`handling=lenient, wait="0"`, "wait=0"},
		"both, with no wait":   {"respond-async, wait=0", "respond-async, wait=0"},
		"among what is no use": {"return=minimal,respond-async,wait=soon", "respond-async"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := setup(t)
			a := h.do("POST", "/v1/turns", `{"sessionId":"x","input":{"message":"hi"},"metadata":{"k":"v"}}`, "Prefer: "+tt.prefer)
			h.want(a, http.StatusAccepted, "")
			golden(t, "accepted_queued", a.body)
			id := decodeBody[turnSummary](t, a).InvocationID
			if got := a.header.Get("Location"); got != "/v1/turns/"+id {
				t.Errorf("Location %q", got)
			}
			if got := a.header.Get("Preference-Applied"); got != tt.applied {
				t.Errorf("Preference-Applied %q, want %q", got, tt.applied)
			}
			if slices.Contains(h.broker.trace, "watch") {
				t.Error("it subscribed for nobody")
			}
		})
	}
}

func TestSubmitWaitRunsOut(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		prefer, applied string
		held            time.Duration
	}{
		"the caller's":               {"wait=3", "wait=3", 3 * time.Second},
		"the server's":               {"", "wait=30", 30 * time.Second},
		"the server's is less":       {"wait=3600", "wait=30", 30 * time.Second},
		"a number that is too large": {"wait=99999999999999999999", "wait=30", 30 * time.Second},
		"a preference to ignore":     {"wait=-1", "wait=30", 30 * time.Second},
		"wait, then not":             {"respond-async, wait=5", "respond-async, wait=5", 5 * time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := setup(t)
				start := time.Now()
				a := h.do("POST", "/v1/turns", `{"sessionId":"x","input":{"message":"hi"},"metadata":{"k":"v"}}`, "Prefer: "+tt.prefer)
				h.want(a, http.StatusAccepted, "")
				if held := time.Since(start); held != tt.held {
					t.Errorf("held %v, want %v", held, tt.held)
				}
				golden(t, "accepted_queued", a.body)
				if got := a.header.Get("Preference-Applied"); got != tt.applied {
					t.Errorf("Preference-Applied %q, want %q", got, tt.applied)
				}
				if got := a.header.Get("Location"); !turn.ValidInvocationID(strings.TrimPrefix(got, "/v1/turns/")) {
					t.Errorf("Location %q", got)
				}
			})
		})
	}
}

func TestSubmitWaitRunsOutWhileRunning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		go func() { h.emitEcho(h.broker.take(t)) }()
		a := h.do("POST", "/v1/turns", message, "Prefer: wait=1")
		h.want(a, http.StatusAccepted, "")
		if got := decodeBody[turnSummary](t, a).Status; got != session.StatusRunning {
			t.Errorf("status %q", got)
		}
	})
}

// The result's event may be missed; the row is not.
func TestSubmitReadsTheRowBeforeItGivesUp(t *testing.T) {
	t.Parallel()
	for _, status := range []session.Status{session.StatusCompleted, session.StatusError} {
		t.Run(string(status), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := setup(t)
				go func() {
					h.commit(h.broker.take(t), status, func(r *turn.Result) {
						if status == session.StatusError {
							r.Error = &turn.Error{Code: turn.CodeTimeout}
						}
					})
				}()
				a := h.do("POST", "/v1/turns", message, "Prefer: wait=1")
				want := http.StatusOK
				if status == session.StatusError {
					want = http.StatusGatewayTimeout
				}
				h.want(a, want, "")
				if got := decodeBody[turn.Result](t, a); got.Status != status {
					t.Errorf("status %q", got.Status)
				}
			})
		})
	}
}

// A store that is away does not turn an accepted turn into an error.
func TestSubmitWithoutTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		h.store.break_(errStore)
		h.want(h.do("POST", "/v1/turns", message), http.StatusAccepted, "")
	})
}

func TestSubmitStatuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		status session.Status
		code   string
		want   int
	}{
		{session.StatusCompleted, "", 200},
		{session.StatusYieldedTool, "", 200},
		{session.StatusMaxSteps, "", 200},
		{session.StatusMaxDuration, "", 200},
		{session.StatusAborted, "", 200},
		{session.StatusError, turn.CodeTimeout, 504},
		{session.StatusError, turn.CodeUnknownCall, 409},
		{session.StatusError, turn.CodeAlreadyAnswered, 409},
		{session.StatusError, turn.CodeInvalidAnswer, 422},
		{session.StatusError, turn.CodeModelError, 500},
		{session.StatusError, turn.CodeRateLimited, 500},
		{session.StatusError, turn.CodeWorkerLost, 500},
		{session.StatusError, turn.CodeInternal, 500},
	}
	for _, tt := range tests {
		t.Run(string(tt.status)+"_"+tt.code, func(t *testing.T) {
			t.Parallel()
			h := setup(t)
			done := make(chan struct{})
			go func() {
				defer close(done)
				h.finish(h.broker.take(t), tt.status, func(r *turn.Result) {
					if tt.code != "" {
						r.Error = &turn.Error{Code: tt.code, Message: "no"}
					}
				})
			}()
			a := h.do("POST", "/v1/turns", message)
			<-done
			if a.status != tt.want || a.header.Get("Content-Type") != "application/json" {
				t.Errorf("%d %s, want %d", a.status, a.header.Get("Content-Type"), tt.want)
			}
			result := decodeBody[turn.Result](t, a)
			if result.Status != tt.status {
				t.Errorf("status %q", result.Status)
			}
			// GET is 200 whatever the turn's status.
			h.want(h.do("GET", "/v1/turns/"+result.InvocationID, ""), http.StatusOK, "")
		})
	}
}

func TestSubscribesBeforeItPublishes(t *testing.T) {
	t.Parallel()
	for _, accept := range []string{"application/json", "text/event-stream"} {
		t.Run(accept, func(t *testing.T) {
			t.Parallel()
			h := setup(t)
			h.echo()
			h.do("POST", "/v1/turns", message, "Accept: "+accept)
			h.broker.mu.Lock()
			defer h.broker.mu.Unlock()
			if diff := cmp.Diff([]string{"watch", "publish", "close"}, h.broker.trace); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSubmitRefused(t *testing.T) {
	t.Parallel()
	unsure := fmt.Errorf("publish: %w", turn.ErrUnavailable)
	tests := map[string]struct {
		publish, watch error
		agent          string
		body           string
		noDefault      bool
		noWorkers      bool
		headers        []string
		status         int
		code           string
		golden         string
	}{
		"queue full":        {publish: fmt.Errorf("lane: %w", turn.ErrQueueFull), status: 429, code: codeQueueFull, golden: "problem_queue_full"},
		"above the limit":   {publish: turn.ErrTooLarge, status: 413, code: codeTooLarge, golden: "problem_too_large_broker"},
		"unsure":            {publish: unsure, status: 503, code: codeUnavailable, golden: "problem_unavailable_publish"},
		"too slow":          {publish: context.DeadlineExceeded, status: 503, code: codeUnavailable},
		"unknown":           {publish: errStore, status: 500, code: codeInternal},
		"no subscription":   {watch: unsure, status: 503, code: codeUnavailable, golden: "problem_unavailable"},
		"unknown agent":     {body: `{"agent":"ech","input":{"message":"hi"}}`, status: 404, code: codeUnknownAgent, golden: "problem_unknown_agent"},
		"no worker yet":     {noWorkers: true, status: 503, code: codeUnavailable, golden: "problem_unavailable_agents"},
		"no agent":          {noDefault: true, status: 400, code: codeMissingAgent, golden: "problem_missing_agent"},
		"no agent, nor any": {noDefault: true, noWorkers: true, status: 400, code: codeMissingAgent},
		"malformed":         {body: `{"input":`, status: 400, code: codeMalformedJSON, golden: "problem_malformed_json"},
		"unknown field":     {body: `{"message":"hi","input":{"state":{"a":1}},"lane":7}`, status: 400, code: codeUnknownField, golden: "problem_unknown_field"},
		"invalid field":     {body: `{"input":{"message":"hi"},"timeout":-1}`, status: 400, code: codeInvalidField, golden: "problem_invalid_field"},
		"empty":             {body: `{"input":{}}`, status: 400, code: codeEmptyInput, golden: "problem_empty_input"},
		"not JSON":          {headers: []string{"Content-Type: text/plain"}, status: 415, code: codeUnsupportedMedia, golden: "problem_unsupported_media_type"},
		"a form":            {headers: []string{"Content-Type: application/x-www-form-urlencoded"}, status: 415, code: codeUnsupportedMedia},
		"another charset":   {headers: []string{"Content-Type: application/json; charset=latin1"}, status: 415, code: codeUnsupportedMedia},
		"compressed":        {headers: []string{"Content-Encoding: gzip"}, status: 415, code: codeUnsupportedMedia},
		"a browser, untyped": {
			headers: []string{"Content-Type: ", "Origin: https://evil.example"}, status: 415, code: codeUnsupportedMedia,
		},
		"types":     {headers: []string{"Accept: text/event-stream"}, body: message, status: 400, code: codeInvalidField},
		"too large": {body: `{"input":{"message":"` + strings.Repeat("x", 300<<10) + `"}}`, status: 413, code: codeTooLarge, golden: "problem_too_large"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := setup(t, func(c *Config, _ *Deps) {
				if tt.noDefault {
					c.DefaultAgent = ""
				}
			})
			if tt.noWorkers {
				h.broker.known = nil
			}
			if tt.publish != nil {
				h.broker.onPublish = func(context.Context) error { return tt.publish }
			}
			if tt.watch != nil {
				h.broker.onWatch = func() error { return tt.watch }
			}
			if tt.body == "" {
				tt.body = message
			}
			path := "/v1/turns"
			if name == "types" {
				path += "?types=assistant,assitant_delta"
			}
			a := h.do("POST", path, tt.body, tt.headers...)
			h.want(a, tt.status, tt.code)
			if got := a.header.Get("Content-Type"); got != "application/problem+json" {
				t.Errorf("Content-Type %q", got)
			}
			if wants := tt.status == 429 || tt.status == 503; wants != (a.header.Get("Retry-After") != "") {
				t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
			}
			if tt.golden != "" {
				golden(t, tt.golden, a.body)
			}
			if len(h.broker.queued) > 0 {
				t.Error("something was queued")
			}
			if n := strings.Count(fmt.Sprint(h.broker.trace), "watch"); n != strings.Count(fmt.Sprint(h.broker.trace), "close") {
				t.Errorf("a reader is left open: %v", h.broker.trace)
			}
		})
	}
}

// A publish that nobody confirmed may have been made: the caller can look.
func TestSubmitUnsureCarriesTheID(t *testing.T) {
	t.Parallel()
	h := setup(t)
	h.broker.onPublish = func(context.Context) error { return turn.ErrUnavailable }
	a := h.do("POST", "/v1/turns", message, "Prefer: respond-async")
	p := decodeBody[problem](t, a)
	id := strings.TrimPrefix(p.Instance, "/v1/turns/")
	if !turn.ValidInvocationID(id) || !strings.Contains(p.Detail, id) || !strings.Contains(p.Detail, "may still run") || a.header.Get("Location") != p.Instance {
		t.Errorf("%+v, Location %q", p, a.header.Get("Location"))
	}
}

func TestPublishIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		h.broker.onPublish = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		start := time.Now()
		h.want(h.do("POST", "/v1/turns", message), http.StatusServiceUnavailable, codeUnavailable)
		if took := time.Since(start); took != publishTimeout {
			t.Errorf("took %v", took)
		}
	})
}

func TestContentTypesTaken(t *testing.T) {
	t.Parallel()
	h := setup(t)
	for _, header := range []string{
		"Content-Type: ", "Content-Type: application/json", "Content-Type: application/json; charset=utf-8",
		`Content-Type: APPLICATION/JSON; charset="UTF-8"`, "Content-Encoding: identity",
	} {
		h.want(h.do("POST", "/v1/turns", message, "Prefer: respond-async", header), http.StatusAccepted, "")
	}
}

func TestChunkedBodyIsBounded(t *testing.T) {
	t.Parallel()
	h := setup(t, func(c *Config, _ *Deps) { c.MaxBody = 100 })
	send := func(n int) *http.Response {
		body := fmt.Sprintf(`{"input":{"message":%q}}`, strings.Repeat("x", n))
		req, err := http.NewRequest("POST", "http://ingress/v1/turns", io.MultiReader(strings.NewReader(body))) // no length
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Prefer", "respond-async")
		resp, err := h.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	if got := send(76).StatusCode; got != http.StatusAccepted {
		t.Errorf("100 bytes: %d", got)
	}
	if got := send(77).StatusCode; got != http.StatusRequestEntityTooLarge {
		t.Errorf("101 bytes: %d", got)
	}
}

// A caller that hangs up has asked for nothing to be undone.
func TestDisconnectCancelsNothing(t *testing.T) {
	t.Parallel()
	for _, accept := range []string{"application/json", "text/event-stream"} {
		t.Run(accept, func(t *testing.T) {
			t.Parallel()
			h := setup(t)
			ctx, hangUp := context.WithCancel(t.Context())
			sent := make(chan error)
			go func() {
				req, _ := http.NewRequestWithContext(ctx, "POST", "http://ingress/v1/turns", strings.NewReader(message))
				req.Header.Set("Accept", accept)
				resp, err := h.client.Do(req)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				sent <- err
			}()
			sub := h.broker.take(t)
			hangUp()
			if err := <-sent; err == nil {
				t.Error("the request succeeded")
			}
			// Its reader is closed, and it is queued as before.
			if err := h.broker.await(t.Context(), func() bool { return slices.Contains(h.broker.trace, "close") }); err != nil {
				t.Fatal(err)
			}
			h.finish(sub, session.StatusCompleted)
			h.want(h.do("GET", "/v1/turns/"+sub.InvocationID, ""), http.StatusOK, "")
			if h.broker.cancels > 0 || len(h.broker.removed) > 0 {
				t.Error("it was cancelled")
			}
		})
	}
}

func TestAcceptsStream(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{
		"":                  false,
		"*/*":               false,
		"text/event-stream": true,
		"TEXT/Event-Stream": true,
		"text/event-stream, application/json;q=0.5":        true,
		"application/json, text/event-stream":              false,
		"application/json;q=0.1, text/event-stream; q=0.9": true,
		"text/event-stream;q=0":                            false,
		"text/event-stream;q=x, */*":                       false,
		"text/*":                                           false,
	}
	for accept, want := range tests {
		if got := acceptsStream([]string{accept}); got != want {
			t.Errorf("%q: %v", accept, got)
		}
	}
	if !acceptsStream([]string{"text/html;q=0.5", "text/event-stream"}) {
		t.Error("two header lines")
	}
}
