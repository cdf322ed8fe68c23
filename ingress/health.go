package ingress

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/turnpool/turnpool/internal/health"
)

// health says that the process serves requests.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, health.View{Status: health.OK, Checks: map[string]string{}})
	return nil
}

var (
	errNoAgents = errors.New("no worker was ever seen")
	errShutdown = errors.New("a shutdown is on")
)

// ready says whether a turn could be accepted here now: the broker and the
// store answer, some worker was seen, and no shutdown is on.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) error {
	view, failures := health.Check(r.Context(), map[string]func(context.Context) error{
		"broker":  s.deps.Queue.Ping,
		"store":   s.deps.Store.Ping,
		"agents":  func(context.Context) error { return unless(s.deps.Registry.Any(), errNoAgents) },
		"serving": func(context.Context) error { return unless(!s.life.stopping(), errShutdown) },
	})
	if failures["broker"] != nil || failures["store"] != nil {
		s.log.Warn("not ready", "broker", failures["broker"], "store", failures["store"])
	}
	status := http.StatusOK
	if view.Status != health.OK {
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", strconv.Itoa(meanings[codeUnavailable].retryAfter))
	}
	writeJSON(w, status, view)
	return nil
}

func unless(holds bool, err error) error {
	if holds {
		return nil
	}
	return err
}
