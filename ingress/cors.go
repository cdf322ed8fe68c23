package ingress

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
)

const (
	corsMethods = "GET, HEAD, POST, DELETE"
	corsRequest = "Accept, Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Prefer, traceparent"
	corsExposed = "Content-Location, ETag, Idempotency-Replayed, Location, Preference-Applied, Retry-After, Turnpool-Session"
	corsMaxAge  = "600"
)

// cors says which origins' scripts may call and read. None: it is off.
type cors struct {
	origins []string
	all     bool
}

func newCORS(origins []string) (cors, error) {
	for _, origin := range origins {
		if origin == "*" {
			return cors{all: true}, nil
		}
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || u.Scheme+"://"+u.Host != origin {
			return cors{}, fmt.Errorf(`ingress: CORS origin %q is neither "*" nor like https://app.example.com`, origin)
		}
	}
	return cors{origins: origins}, nil
}

// serve sets the headers that let the caller's script read the answer, whatever
// it will be, and answers a preflight itself; it reports whether it did.
func (c cors) serve(w http.ResponseWriter, r *http.Request) bool {
	if !c.all && len(c.origins) == 0 {
		return false
	}
	h := w.Header()
	origin := r.Header.Get("Origin")
	switch {
	case c.all:
		h.Set("Access-Control-Allow-Origin", "*")
	default:
		h.Add("Vary", "Origin")
		if !slices.Contains(c.origins, origin) {
			return false
		}
		h.Set("Access-Control-Allow-Origin", origin)
	}
	if r.Method != http.MethodOptions || origin == "" || r.Header.Get("Access-Control-Request-Method") == "" {
		h.Set("Access-Control-Expose-Headers", corsExposed)
		return false
	}
	h.Set("Access-Control-Allow-Methods", corsMethods)
	h.Set("Access-Control-Allow-Headers", corsRequest)
	h.Set("Access-Control-Max-Age", corsMaxAge)
	w.WriteHeader(http.StatusNoContent)
	return true
}
