package worker

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// metrics are a pool's. Times that begin with the request are between two clocks,
// the broker's and this machine's.
type metrics struct {
	running    prometheus.Gauge
	attempts   *prometheus.CounterVec
	failed     *prometheus.CounterVec
	retries    *prometheus.CounterVec
	dead       *prometheus.CounterVec
	queueWait  *prometheus.HistogramVec
	firstDelta *prometheus.HistogramVec
	duration   *prometheus.HistogramVec
	batch      prometheus.Histogram
	commit     prometheus.Histogram
	late       prometheus.Counter
}

// newMetrics registers the metrics, or with nil only makes them.
func newMetrics(r prometheus.Registerer) *metrics {
	with := promauto.With(r)
	seconds := prometheus.ExponentialBuckets(0.005, 2.5, 12) // 5 ms to 2 minutes
	return &metrics{
		running: with.NewGauge(prometheus.GaugeOpts{
			Name: "turnpool_turns_running", Help: "Turns in this worker's hands."}),
		attempts: with.NewCounterVec(prometheus.CounterOpts{
			Name: "turnpool_attempts_total", Help: "Attempts begun, by why: first, crash, retry, handoff."}, []string{"agent", "reason"}),
		failed: with.NewCounterVec(prometheus.CounterOpts{
			Name: "turnpool_turn_errors_total", Help: "Turns that ended in error, by error code."}, []string{"agent", "code"}),
		retries: with.NewCounterVec(prometheus.CounterOpts{
			Name: "turnpool_retries_total", Help: "Attempts that failed and are made again, by error code."}, []string{"agent", "code"}),
		dead: with.NewCounterVec(prometheus.CounterOpts{
			Name: "turnpool_dead_letters_total", Help: "Turns given up, by error code."}, []string{"agent", "code"}),
		queueWait: with.NewHistogramVec(prometheus.HistogramOpts{
			Name: "turnpool_queue_wait_seconds", Help: "From a request's storing to its first attempt.", Buckets: seconds}, []string{"lane"}),
		firstDelta: with.NewHistogramVec(prometheus.HistogramOpts{
			Name: "turnpool_first_delta_seconds", Help: "From a request's storing to the first delta of its answer.", Buckets: seconds}, []string{"agent"}),
		duration: with.NewHistogramVec(prometheus.HistogramOpts{
			Name: "turnpool_turn_duration_seconds", Help: "Running time of the attempt that ended the turn.", Buckets: seconds}, []string{"agent", "status", "commit_status"}),
		batch: with.NewHistogram(prometheus.HistogramOpts{
			Name: "turnpool_commit_batch_size", Help: "Turns that shared a transaction.", Buckets: []float64{1, 2, 4, 8, 16, 32, 64}}),
		commit: with.NewHistogram(prometheus.HistogramOpts{
			Name: "turnpool_commit_duration_seconds", Help: "Time of a commit's transaction.", Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12)}),
		late: with.NewCounter(prometheus.CounterOpts{
			Name: "turnpool_heartbeats_late_total", Help: "Heartbeats that the broker did not confirm in time."}),
	}
}

// began counts an attempt.
func (m *metrics) began(j *job, reason string) {
	m.attempts.WithLabelValues(j.Request.Agent, reason).Inc()
	if reason == firstAttempt {
		m.queueWait.WithLabelValues(string(j.Request.Lane)).Observe(since(j.StoredAt, j.startedAt))
	}
}

const firstAttempt = "first"

// ended counts a turn that this worker gave its outcome.
func (m *metrics) ended(row *session.Turn, ended agent.Outcome) {
	m.duration.WithLabelValues(row.Agent, string(row.Status), string(row.CommitStatus)).Observe(since(row.StartedAt, row.FinishedAt))
	if ended.Error != nil {
		m.failed.WithLabelValues(row.Agent, ended.Error.Code).Inc()
	}
}

// since is in seconds; clocks that disagree give 0.
func since(from, to int64) float64 { return max(0, float64(to-from)/1000) }

func (m *metrics) committed(slices int, took time.Duration) {
	m.batch.Observe(float64(slices))
	m.commit.Observe(took.Seconds())
}

// firstDelta observes the first delta of a run.
type firstDelta struct {
	seen    atomic.Bool
	observe func()
}

func (f *firstDelta) saw(e turn.Event) {
	if _, isDelta := e.(*turn.Delta); isDelta && !f.seen.Swap(true) {
		f.observe()
	}
}
