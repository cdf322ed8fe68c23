package ingress

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// pingTimeout is less than the second that a probe usually waits.
const pingTimeout = 800 * time.Millisecond

const (
	healthOK          = "ok"
	healthUnavailable = "unavailable"
)

// healthView answers a probe. Checks has one entry for each thing that was
// looked at, with the same words as Status.
type healthView struct {
	Status string            `json:"status"`
	Checks map[string]string `json:"checks"`
}

// health says that the process serves requests.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, healthView{Status: healthOK, Checks: map[string]string{}})
	return nil
}

// ready says whether a turn could be accepted here now: the broker and the
// store answer, some worker was seen, and no shutdown is on.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) error {
	view := healthView{Status: healthOK, Checks: s.checks(r.Context())}
	status := http.StatusOK
	for _, check := range view.Checks {
		if check != healthOK {
			view.Status, status = healthUnavailable, http.StatusServiceUnavailable
			w.Header().Set("Retry-After", strconv.Itoa(meanings[codeUnavailable].retryAfter))
		}
	}
	writeJSON(w, status, view)
	return nil
}

func (s *Server) checks(ctx context.Context) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	var broker, store error
	var both sync.WaitGroup
	both.Go(func() { broker = s.deps.Queue.Ping(ctx) })
	both.Go(func() { store = s.deps.Store.Ping(ctx) })
	both.Wait()
	if broker != nil || store != nil {
		s.log.Warn("not ready", "broker", broker, "store", store)
	}
	return map[string]string{
		"broker":  healthWord(broker == nil),
		"store":   healthWord(store == nil),
		"agents":  healthWord(s.deps.Registry.Any()),
		"serving": healthWord(!s.life.stopping()),
	}
}

func healthWord(ok bool) string {
	if ok {
		return healthOK
	}
	return healthUnavailable
}
