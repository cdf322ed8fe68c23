package worker

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// A failed attempt is made again after a time that doubles with each failure, with
// jitter, so that turns which failed together do not come back together. What the
// provider asks for counts if it is longer.
const (
	minRetryDelay = time.Second
	maxRetryDelay = time.Minute
)

// passes reports whether the same run may succeed later: the way to the model was
// cut, or it said 408, 409, 429 or 5xx, or something failed that is no answer to
// anybody.
func passes(ended agent.Outcome) bool {
	if ended.Status != session.StatusError || ended.Error == nil || !ended.Error.Retryable {
		return false
	}
	switch ended.Error.Code {
	case turn.CodeModelError, turn.CodeRateLimited, turn.CodeInternal:
		return true
	default:
		return false
	}
}

// failuresWith is the count with this run's failure: from 0 if the run finished
// something before.
func failuresWith(j *job, ended agent.Outcome) int {
	if ended.Progress {
		return 1
	}
	return j.failures + 1
}

// retry gives the turn back, to be delivered again after a while.
func (v *visit) retry(j *job, writer turn.LogWriter, ended agent.Outcome) error {
	delay := v.cfg.RetryDelay(j.failures, retryAfter(ended.Err))
	mark := &turn.Retried{Attempt: j.attempt, Failures: j.failures, CreatedAt: v.cfg.Now()}
	err := v.leave(j, writer, mark, delay)
	if errors.Is(err, errSettled) {
		v.metrics.retries.WithLabelValues(j.Request.Agent, ended.Error.Code).Inc()
		v.log.Warn("run failed, the turn is tried again", "attempt", j.attempt, "failures", j.failures,
			"delay", delay, "error", ended.Err)
	}
	return err
}

// retryDelay is the default of [PoolConfig].RetryDelay.
func retryDelay(failures int, asked time.Duration) time.Duration {
	delay := maxRetryDelay
	if shift := failures - 1; shift < 6 {
		delay = min(delay, minRetryDelay<<max(0, shift))
	}
	return max(delay/2+rand.N(delay/2+1), asked)
}

// retryAfter is how long the provider asks to wait.
func retryAfter(err error) time.Duration {
	var model *agent.ModelError
	if errors.As(err, &model) {
		return model.RetryAfter
	}
	return 0
}

// restartReason says why an attempt follows another.
func restartReason(last turn.LogState, attempt int) string {
	switch {
	case last.Attempt != attempt-1:
		return turn.RestartCrash
	case last.Retried:
		return turn.RestartRetry
	case last.Released:
		return turn.RestartHandoff
	default:
		return turn.RestartCrash
	}
}

// bury keeps the turn for people to look at, before its outcome is written: a turn
// that has one is not looked at again. Burying it twice is as good as once.
func (v *visit) bury(j *job, why *turn.Error, cause error) error {
	v.log.Error("turn given up", "attempt", j.attempt, "failures", j.failures, "code", why.Code)
	if why.Code == turn.CodeInternal && cause != nil { // whoever reads the letter may know
		why = &turn.Error{Code: why.Code, Message: cause.Error(), Retryable: why.Retryable}
	}
	letter := &turn.DeadLetter{
		Submission: j.Submission, Failures: j.failures, Error: why, FailedAt: v.cfg.Now(), CreatedAt: j.StoredAt,
	}
	j.dead = true
	err := v.persist("dead letter not stored yet", func() error {
		return v.deps.Dead.Bury(v.lease.held, letter)
	})
	if err == nil {
		v.metrics.dead.WithLabelValues(j.Request.Agent, why.Code).Inc()
	}
	return err
}
