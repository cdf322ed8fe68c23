package ingress

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	b := newBroker()
	deps := Deps{Queue: b, Log: b, Control: b, Registry: b, Dead: b, Keys: b, Store: session.NewMemory()}
	tests := map[string]struct {
		cfg  Config
		deps func(*Deps)
		want string
	}{
		"no queue":    {deps: func(d *Deps) { d.Queue = nil }, want: "no queue"},
		"no log":      {deps: func(d *Deps) { d.Log = nil }, want: "no log"},
		"no control":  {deps: func(d *Deps) { d.Control = nil }, want: "no control"},
		"no registry": {deps: func(d *Deps) { d.Registry = nil }, want: "no registry"},
		"no store":    {deps: func(d *Deps) { d.Store = nil }, want: "no store"},
		"negative":    {cfg: Config{Wait: -time.Second}, want: "must not be negative"},
		"agent":       {cfg: Config{DefaultAgent: "a.b"}, want: "no valid name"},
		"origin":      {cfg: Config{CORSOrigins: []string{"app.example.com"}}, want: "CORS origin"},
		"origin path": {cfg: Config{CORSOrigins: []string{"https://app.example.com/"}}, want: "CORS origin"},
	}
	for name, tt := range tests {
		d := deps
		if tt.deps != nil {
			tt.deps(&d)
		}
		if _, err := New(tt.cfg, d); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Config{}, deps); err != nil {
		t.Error(err)
	}
}

func TestUnknownPaths(t *testing.T) {
	t.Parallel()
	h := setup(t)
	a := h.do("GET", "/v1/nothing", "")
	golden(t, "problem_not_found", a.body)
	for _, path := range []string{"/", "/v1", "/v1/turns/", "/v1//turns", "/v1/./turns", "/v1/turns/a/b/c", "/V1/turns"} {
		a := h.do("GET", path, "")
		h.want(a, http.StatusNotFound, codeNotFound)
		if got := a.header.Get("Content-Type"); got != "application/problem+json" {
			t.Errorf("%s: Content-Type %q", path, got)
		}
	}
}

func TestWrongMethods(t *testing.T) {
	t.Parallel()
	h := setup(t)
	golden(t, "problem_method_not_allowed", h.do("PUT", "/v1/turns", "").body)
	for path, allow := range map[string]string{
		"/v1/turns":             "POST",
		"/v1/turns/x":           "GET, HEAD",
		"/v1/sessions":          "GET, HEAD, POST",
		"/v1/sessions/x":        "DELETE, GET, HEAD",
		"/v1/turns/x/cancel":    "POST",
		"/openapi.json":         "GET, HEAD",
		"/v1/sessions/x/events": "GET, HEAD",
	} {
		for _, method := range []string{"PUT", "PATCH", "OPTIONS"} {
			a := h.do(method, path, "")
			h.want(a, http.StatusMethodNotAllowed, codeMethodNotAllowed)
			if got := a.header.Get("Allow"); got != allow {
				t.Errorf("%s: Allow %q, want %q", path, got, allow)
			}
		}
	}
	h.want(h.do("GET", "/v1/turns", ""), http.StatusMethodNotAllowed, codeMethodNotAllowed)
}

func TestPanics(t *testing.T) {
	t.Parallel()
	h := setup(t)
	h.broker.onAgents = func() { panic("secret text") }
	a := h.do("GET", "/v1/agents", "")
	h.want(a, http.StatusInternalServerError, codeInternal)
	golden(t, "problem_internal", a.body)
	if strings.Contains(string(a.body), "secret") || !strings.Contains(h.logs.String(), "secret text") {
		t.Error("a panic's text belongs in the log, and nowhere else")
	}

	// After the first byte the connection is cut, so that nobody takes what
	// there is for the whole.
	id := h.submitAsync(message)
	h.broker.onNext = func(context.Context, string) error { panic("later") }
	s := h.stream(t.Context(), "GET", "/v1/turns/"+id+"/events", "")
	s.next()
	for f, ok := s.next(); ok; f, ok = s.next() {
		t.Errorf("then %+v", f)
	}
	if s.scan.Err() == nil {
		t.Error("the stream ended well")
	}
}

func TestAbortHandlerPassesThrough(t *testing.T) {
	t.Parallel()
	h := setup(t)
	h.broker.onAgents = func() { panic(http.ErrAbortHandler) }
	defer func() {
		if v := recover(); v != http.ErrAbortHandler {
			t.Errorf("recovered %v", v)
		}
	}()
	h.server.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/v1/agents", nil))
}

// A writer without deadlines, as in a test or behind a middleware, streams too.
func TestStreamToARecorder(t *testing.T) {
	t.Parallel()
	h := setup(t)
	h.echo()
	rec := httptest.NewRecorder()
	req := httptest.NewRequest("POST", "/v1/turns", strings.NewReader(message))
	req.Header.Set("Accept", "text/event-stream")
	h.server.ServeHTTP(rec, req)
	if body := rec.Body.String(); !strings.HasPrefix(body, ": queued\n\nid: 1\nevent: invocation_start\n") || !rec.Flushed {
		t.Errorf("%s", body)
	}
}

func TestAgents(t *testing.T) {
	t.Parallel()
	h := setup(t)
	a := h.do("GET", "/v1/agents", "")
	h.want(a, http.StatusOK, "")
	golden(t, "agents", a.body)
	h.broker.known = nil
	golden(t, "agents_none", h.do("GET", "/v1/agents", "").body)
}

func TestHealth(t *testing.T) {
	t.Parallel()
	h := setup(t)
	golden(t, "healthz", h.do("GET", "/healthz", "").body)
	a := h.do("GET", "/readyz", "")
	h.want(a, http.StatusOK, "")
	golden(t, "readyz", a.body)
	h.broker.onPing = func(context.Context) error { return turn.ErrUnavailable }
	h.broker.known = nil
	h.store.break_(errStore)
	a = h.do("GET", "/readyz", "")
	h.want(a, http.StatusServiceUnavailable, "")
	golden(t, "readyz_red", a.body)
	h.want(h.do("GET", "/healthz", ""), http.StatusOK, "")
}

func TestReadyIsQuick(t *testing.T) {
	t.Parallel()
	h := setup(t)
	h.broker.onPing = func(ctx context.Context) error {
		if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > time.Second {
			t.Error("a ping is not bounded")
		}
		return nil
	}
	h.want(h.do("GET", "/readyz", ""), http.StatusOK, "")
}

func TestCORS(t *testing.T) {
	t.Parallel()
	const app, evil = "https://app.example.com", "https://evil.example.com"
	preflight := []string{"Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type, prefer"}
	tests := map[string]struct {
		origins       []string
		origin, allow string
	}{
		"off":         {nil, app, ""},
		"on":          {[]string{"http://localhost:3000", app}, app, app},
		"for others":  {[]string{app}, evil, ""},
		"by any name": {[]string{app}, app + ".evil.example", ""},
		"for all":     {[]string{"*"}, evil, "*"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := setup(t, func(c *Config, _ *Deps) { c.CORSOrigins = tt.origins })
			for _, path := range []string{"/v1/turns", "/v1/turns/x/events", "/v1/nothing", "/readyz", "/openapi.json"} {
				a := h.do("GET", path, "", "Origin: "+tt.origin)
				exposed := a.header.Get("Access-Control-Expose-Headers")
				if got := a.header.Get("Access-Control-Allow-Origin"); got != tt.allow || (exposed != "") != (tt.allow != "") {
					t.Errorf("%s: allowed %q, exposed %q", path, got, exposed)
				}
				if tt.allow != "" && exposed != corsExposed {
					t.Errorf("exposed %q", exposed)
				}
				if vary := slices.Contains(a.header.Values("Vary"), "Origin"); vary != (len(tt.origins) > 0 && tt.origins[0] != "*") {
					t.Errorf("Vary %v", a.header.Values("Vary"))
				}
			}
			for _, path := range []string{"/v1/turns", "/v1/sessions/x", "/v1/nothing"} {
				a := h.do("OPTIONS", path, "", append(preflight, "Origin: "+tt.origin)...)
				if tt.allow == "" {
					if a.status < 400 || a.header.Get("Access-Control-Allow-Methods") != "" {
						t.Errorf("%s: %d %v", path, a.status, a.header)
					}
					continue
				}
				if a.status != http.StatusNoContent || a.header.Get("Access-Control-Allow-Origin") != tt.allow ||
					a.header.Get("Access-Control-Allow-Methods") != corsMethods || a.header.Get("Access-Control-Allow-Headers") != corsRequest {
					t.Errorf("%s: %d %v", path, a.status, a.header)
				}
			}
		})
	}
}
