package httptool_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/turnpool/turnpool/agent/httptool"
)

// secret are headers that only a tool's own host may see.
var secret = map[string]string{"Authorization": "Bearer abc", "X-Key": "k", "Cookie": "c=1", "Accept": "application/hal+json"}

func location(url string, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, url, status) }
}

// A redirect within a host is followed with everything.
func TestRedirect(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		http.StatusTemporaryRedirect: `POST /new {"ref":"B-42"}`,
		http.StatusPermanentRedirect: `POST /new {"ref":"B-42"}`,
		http.StatusSeeOther:          `GET /new `,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/new" {
					say(200, "application/json", `{"moved":true}`)(w, r)
					return
				}
				location("/new", status)(w, r)
			})
			result, err := call(t, newTool(t, httptool.Config{URL: s.URL + "/old", Headers: secret}), `{"ref":"B-42"}`)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "result", result, `{"moved":true}`)
			last := s.requests()[1]
			equal(t, "second request", last.Method+" "+last.URI+" "+last.Body, want)
			equal(t, "its key", last.Header.Get("X-Key"), "k")
			equal(t, "its token", last.Header.Get("Idempotency-Key"), "tok_1")
			equal(t, "its referer", last.Header.Get("Referer"), "")
		})
	}
}

// Another host gets the request and none of the tool's secrets, and neither does
// the own host when that other one sends us back.
func TestRedirectToAnotherHost(t *testing.T) {
	t.Parallel()
	var home *server
	other := serve(t, func(w http.ResponseWriter, r *http.Request) { location(home.URL+"/back", 307)(w, r) })
	home = serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/back" {
			say(200, "application/json", `1`)(w, r)
			return
		}
		location(other.URL+"/there", 307)(w, r)
	})
	result, err := call(t, newTool(t, httptool.Config{URL: home.URL + "/?key=url-secret", Headers: secret}), `{"ref":"B-42"}`)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "result", result, "1")
	for what, req := range map[string]got{"there": other.one(t), "back": home.requests()[1]} {
		equal(t, what+": body", req.Body, `{"ref":"B-42"}`)
		equal(t, what+": token", req.Header.Get("Idempotency-Key"), "tok_1")
		equal(t, what+": content type", req.Header.Get("Content-Type"), "application/json")
		for _, name := range []string{"Authorization", "X-Key", "Cookie", "Referer"} {
			equal(t, what+": "+name, req.Header.Values(name), []string(nil))
		}
	}
}

func TestRedirectLimit(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { location(r.URL.Path+"x", 307)(w, r) })
	_, err := call(t, newTool(t, httptool.Config{URL: s.URL + "/"}), `{}`)
	wantError(t, err, "more than 5 redirects")
	equal(t, "requests", len(s.requests()), 6)
}

func TestRedirectElsewhere(t *testing.T) {
	t.Parallel()
	s := serve(t, location("file:///etc/passwd", 302))
	_, err := call(t, newTool(t, httptool.Config{URL: s.URL}), `{}`)
	wantError(t, err, "a redirect leads to something that is not http or https")
}

// A redirect is no way to an address that the tool may not use.
func TestRedirectToPrivate(t *testing.T) {
	t.Parallel()
	inside := serve(t, say(200, "text/plain", "the inside"))
	outside := serve(t, location(inside.URL, 302))
	may := netip.MustParseAddrPort(strings.TrimPrefix(outside.URL, "http://"))
	tool, transport := httptool.NewUnchecked(httptool.Config{Method: "GET", URL: outside.URL},
		func(at netip.AddrPort) bool { return at == may })
	t.Cleanup(transport.CloseIdleConnections)
	_, err := call(t, tool, `{}`)
	wantError(t, err, "the host is at a private address, which this tool may not use")
	equal(t, "requests outside", len(outside.requests()), 1)
	equal(t, "requests inside", len(inside.requests()), 0)
}
