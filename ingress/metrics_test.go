package ingress

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpool/turnpool/turn"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	h := setup(t)
	h.submitAsync(message)
	h.submitAsync(message)
	h.broker.onPublish = func(context.Context) error { return turn.ErrQueueFull }
	h.want(h.do("POST", "/v1/turns", message), http.StatusTooManyRequests, codeQueueFull)
	a := h.do("GET", "/metrics", "")
	h.want(a, http.StatusOK, "")
	for _, line := range []string{
		`turnpool_submits_total{code="accepted"} 2`, `turnpool_submits_total{code="queue_full"} 1`, `turnpool_viewers 0`,
	} {
		if !strings.Contains(string(a.body), line+"\n") {
			t.Errorf("no %s in\n%s", line, a.body)
		}
	}
}
