package ingress

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are the ingress's own.
type metrics struct {
	submits *prometheus.CounterVec
	viewers prometheus.Gauge
	dropped prometheus.Counter
	serve   http.Handler
}

func newMetrics(r *prometheus.Registry) *metrics {
	with := promauto.With(r)
	return &metrics{
		submits: with.NewCounterVec(prometheus.CounterOpts{
			Name: "turnpool_submits_total", Help: "Submitted turns, by what became of them: accepted, or the code of the problem."}, []string{"code"}),
		viewers: with.NewGauge(prometheus.GaugeOpts{
			Name: "turnpool_viewers", Help: "Open event streams."}),
		dropped: with.NewCounter(prometheus.CounterOpts{
			Name: "turnpool_viewers_dropped_total", Help: "Event streams that were cut because their viewer took too long."}),
		serve: promhttp.HandlerFor(r, promhttp.HandlerOpts{}),
	}
}

const submitAccepted = "accepted"

// serveMetrics answers in the text format of Prometheus.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) error {
	s.metrics.serve.ServeHTTP(w, r)
	return nil
}
