package process

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/turnpool/turnpool/jetstream"
	"github.com/turnpool/turnpool/turn"
)

// newMetrics returns a registry with what is known of any process.
func newMetrics() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// queueMetrics asks the broker, at each scrape, for the depth of every pool that
// has announced an agent. What is not known has no value, rather than a wrong one.
type queueMetrics struct {
	client   *jetstream.Client
	registry *jetstream.Registry
	log      *slog.Logger
}

// depthTimeout bounds what a scrape waits for.
const depthTimeout = 2 * time.Second

var (
	queueDepth = prometheus.NewDesc("turnpool_queue_depth",
		"Turns without an outcome: waiting, and in a worker's hands.", []string{"lane", "pool"}, nil)
	queueOldest = prometheus.NewDesc("turnpool_queue_oldest_seconds",
		"Age of the oldest turn without an outcome; 0 if there is none.", []string{"lane", "pool"}, nil)
)

// Describe implements [prometheus.Collector].
func (q queueMetrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- queueDepth
	descs <- queueOldest
}

// Collect implements [prometheus.Collector].
func (q queueMetrics) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), depthTimeout)
	defer cancel()
	pools := map[string]bool{}
	for _, a := range q.registry.Agents() {
		pools[a.Pool] = true
	}
	for pool := range pools {
		for _, lane := range []turn.Lane{turn.LaneInteractive, turn.LaneBatch} {
			depth, known, err := q.client.Depth(ctx, lane, pool)
			if err != nil {
				q.log.Warn("queue depth not known", "lane", lane, "pool", pool, "error", err)
			}
			if !known {
				continue
			}
			age := 0.0
			if !depth.Oldest.IsZero() {
				age = max(0, time.Since(depth.Oldest).Seconds())
			}
			metrics <- prometheus.MustNewConstMetric(queueDepth, prometheus.GaugeValue, float64(depth.Waiting+depth.InFlight), string(lane), pool)
			metrics <- prometheus.MustNewConstMetric(queueOldest, prometheus.GaugeValue, age, string(lane), pool)
		}
	}
}
