package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// unknownAgentDelay is how long a turn rests that this worker has no agent for,
// while a rolling update goes on.
const unknownAgentDelay = time.Second

// visit is one delivery of a turn in this worker's hands.
type visit struct {
	*Pool
	delivery turn.Delivery
	lease    *lease
	turn     *turn.Submission
	log      *slog.Logger
}

// errSettled says that the turn has been settled, or is another's: there is
// nothing more to do with this delivery.
var errSettled = errors.New("settled")

// serve brings one delivery to its end: the turn has an outcome and is
// acknowledged, or it was given back, or it belongs to another.
func (p *Pool) serve(d turn.Delivery, pulledAt time.Time) {
	lease := p.leases.hold(p.halted, d, pulledAt)
	defer p.leases.drop(lease)
	p.metrics.running.Inc()
	defer p.metrics.running.Dec()
	tenant, id := d.Address()
	v := &visit{Pool: p, delivery: d, lease: lease, log: p.cfg.Log.With("invocation", id, "tenant", tenant)}
	var err error
	if v.turn, err = d.Submission(); err != nil {
		v.unreadable(err)
		return
	}
	v.log = v.log.With("session", v.turn.Request.SessionID, "agent", v.turn.Request.Agent)
	if p.agents[v.turn.Request.Agent] == nil {
		v.log.Warn("this worker has no such agent, the turn goes back", "pool", p.cfg.Pool)
		v.giveBack(unknownAgentDelay)
		return
	}
	// The broker's word that this is the first delivery is only a hint: it is
	// forgotten with the consumer. If the log knows better, begin again.
	err = v.attempt(d.Redelivered())
	if errors.Is(err, turn.ErrTaken) {
		err = v.attempt(true)
	}
	if err != nil && !errors.Is(err, errSettled) {
		v.log.Warn("the turn is left to another attempt", "error", err)
	}
}

// attempt runs one attempt. again says that others may have gone before.
func (v *visit) attempt(again bool) error {
	j, last, err := v.prepare(again)
	if err != nil {
		return err
	}
	return v.work(j, last)
}

// work runs the agent, commits and announces.
func (v *visit) work(j *job, last turn.LogState) error {
	run, cancel := context.WithTimeoutCause(v.lease.run, j.Timeout(v.cfg.TurnTimeout), agent.ErrTimeout)
	defer cancel()
	run, lost := context.WithCancelCause(run)
	defer lost(nil)
	writer := v.deps.Log.Writer(v.lease.held, j.Tenant, j.InvocationID, j.attempt, last)
	go func() { // ends with the run
		select {
		case <-writer.Lost():
			lost(turn.ErrLost)
		case <-run.Done():
		}
	}()
	sink := &logSink{LogWriter: writer, deltas: j.streamsDeltas()}
	sink.first.observe = func() {
		v.metrics.firstDelta.WithLabelValues(j.Request.Agent).Observe(since(j.StoredAt, v.cfg.Now()))
	}
	if err := v.restart(run, j, last, sink); err != nil {
		return err
	}
	ended := j.run(run, environment{sink: sink, claim: v.claimCalls, now: v.cfg.Now, log: v.cfg.Log})
	return v.conclude(j, writer, ended)
}

// claimCalls claims calls that wait in the session, for as long as it takes.
func (v *visit) claimCalls(ctx context.Context, c session.CallClaim) (got session.ClaimedCalls, err error) {
	err = persist(ctx, func(err error) { v.log.Warn("calls not claimed yet", "error", err) }, func() (err error) {
		got, err = v.deps.Store.ClaimCalls(ctx, c)
		return err
	})
	return got, err
}

// restart opens an attempt that is not the first one, so that readers rewind. It
// is on record before anything runs: an attempt that kills its worker counts.
func (v *visit) restart(ctx context.Context, j *job, last turn.LogState, sink agent.Sink) error {
	if j.attempt == 1 {
		v.metrics.began(j, firstAttempt)
		return nil
	}
	reason := restartReason(last, j.attempt)
	v.metrics.began(j, string(reason))
	v.log.Info("turn goes on", "attempt", j.attempt, "failures", j.failures, "reason", reason, "kept", len(j.replay))
	sink.Emit(&turn.Restart{
		Attempt: j.attempt, Failures: j.failures, Reason: reason, RewindTo: j.rewindTo, CreatedAt: v.cfg.Now(), Base: j.base,
	})
	return sink.Flush(ctx)
}

// conclude decides what the end of a run means, and acts on it. A run is committed
// once all that it streamed is stored: what is committed is not run again, so that
// readers would never get the rest.
func (v *visit) conclude(j *job, writer turn.LogWriter, ended agent.Outcome) error {
	handoff := ended.Status == session.StatusAborted && errors.Is(ended.Err, errHandoff)
	if !handoff {
		// Of its errors, all but an event that cannot be stored have taken the turn
		// away, which is seen below; that one must not keep it from its outcome.
		_ = writer.Flush(v.lease.held)
	}
	select {
	case <-writer.Lost():
		return v.yield(writer)
	default:
	}
	if !v.lease.good(time.Now()) {
		return errLeaseLost
	}
	if handoff {
		return v.handOff(j, writer)
	}
	if passes(ended) {
		if j.failures = failuresWith(j, ended); j.failures < v.cfg.MaxAttempts {
			return v.retry(j, writer, ended)
		}
		if err := v.bury(j, ended.Error, ended.Err); err != nil {
			return err
		}
	}
	row, err := v.commit(j, ended)
	if err != nil {
		return err
	}
	return v.announce(row, writer)
}

// yield finds out why the log was lost. If the turn has ended, it is
// acknowledged; else it is another attempt's.
func (v *visit) yield(writer turn.LogWriter) error {
	why := writer.Flush(v.lease.held)
	if errors.Is(why, turn.ErrTaken) {
		return why
	}
	var row *session.Turn
	err := v.persist("row not read", func() (err error) {
		row, err = v.deps.Store.Turn(v.lease.held, v.turn.Tenant, v.turn.InvocationID)
		if errors.Is(err, session.ErrNotFound) {
			row, err = &session.Turn{}, nil
		}
		return err
	})
	if err != nil {
		return err
	}
	if row.Status.Finished() {
		return v.acknowledge(row)
	}
	return why
}

// commit commits the run, for as long as it takes. A slice that the store cannot
// write ends the turn as failed.
func (v *visit) commit(j *job, ended agent.Outcome) (*session.Turn, error) {
	if ended.Status == session.StatusError {
		v.log.Warn("run failed", "attempt", j.attempt, "error", ended.Err)
	}
	out, err := v.commitSlice(j, ended)
	if err == nil && out.Err != nil {
		v.log.Error("turn cannot be written", "attempt", j.attempt, "error", out.Err)
		ended = failed(turn.CodeInternal, "the turn's events could not be stored")
		out, err = v.commitSlice(j, ended)
	}
	switch {
	case err != nil:
		return nil, err
	case out.Err != nil:
		return nil, fmt.Errorf("outcome not written: %w", out.Err)
	case out.Fenced:
		return nil, fmt.Errorf("%w: attempt %d commits no more", turn.ErrLost, j.attempt)
	}
	if !out.Repeat {
		v.metrics.ended(&out.Turn, ended)
	}
	return &out.Turn, nil
}

func (v *visit) commitSlice(j *job, ended agent.Outcome) (out session.Outcome, err error) {
	slice := j.slice(ended, v.cfg.Now())
	err = v.persist("turn not committed yet", func() (err error) {
		out, err = v.committer.commit(v.lease.held, slice)
		return err
	})
	return out, err
}

// failed is the end of a turn that did not run, or whose run cannot be kept.
func failed(code, message string) agent.Outcome {
	return agent.Outcome{
		Status: session.StatusError, Output: turn.Output{Items: session.Events{}},
		Error: &turn.Error{Code: code, Message: message, Retryable: true},
	}
}

// announce puts the outcome at the end of the log, and acknowledges the turn. A
// crash before or between the two is healed by the next delivery.
func (v *visit) announce(row *session.Turn, writer turn.LogWriter) error {
	result, err := turn.ResultOf(row)
	if err != nil {
		return err
	}
	if writer != nil {
		writer.Emit(result)
		if writer.Flush(v.lease.held) == nil {
			return v.acknowledge(row)
		}
	}
	// The writer is not the log's any more, or never was: the outcome stands
	// all the same, and whoever has the log must learn it.
	err = v.persist("result not announced yet", func() error {
		err := v.deps.Log.Finish(v.lease.held, row.Tenant, row.InvocationID, result)
		if errors.Is(err, turn.ErrTooLarge) {
			err = v.deps.Log.Finish(v.lease.held, row.Tenant, row.InvocationID, withoutOutput(result))
		}
		return err
	})
	if err != nil {
		return err
	}
	return v.acknowledge(row)
}

// withoutOutput is a result for the log of a turn whose own is too large for a
// message. The whole one is stored under the invocation id.
func withoutOutput(r *turn.Result) *turn.Result {
	short := *r
	short.Output = turn.Output{Items: session.Events{}}
	short.YieldedTools, short.Events, short.State, short.Metadata = nil, nil, nil, nil
	short.Warning = "the result is too large for the stream; GET /v1/turns/" + r.InvocationID + " has it"
	return &short
}

func (v *visit) acknowledge(row *session.Turn) error {
	if err := v.delivery.Ack(); err != nil {
		v.log.Warn("turn not acknowledged, it will be delivered again", "error", err)
		return errSettled
	}
	v.log.Info("turn finished", "attempt", row.Attempt, "status", row.Status, "commit", row.CommitStatus,
		"ms", row.FinishedAt-row.StartedAt)
	return nil
}

// handOff gives an unfinished turn to another worker.
func (v *visit) handOff(j *job, writer turn.LogWriter) error {
	err := v.leave(j, writer, &turn.Released{Attempt: j.attempt, CreatedAt: v.cfg.Now()}, 0)
	if errors.Is(err, errSettled) {
		v.log.Info("turn handed off", "attempt", j.attempt)
	}
	return err
}

// leave gives an unfinished turn back: first the mark in the log, then the row with
// its failures, then the delivery. Whoever loses the row does nothing more: the
// winner holds the message.
func (v *visit) leave(j *job, writer turn.LogWriter, mark turn.Event, delay time.Duration) error {
	ctx, cancel := context.WithTimeout(v.lease.held, handoffLimit/2)
	defer cancel()
	writer.Emit(mark)
	if err := writer.Flush(ctx); err != nil {
		return fmt.Errorf("leave the %s mark: %w", mark.Type(), err)
	}
	was := 0
	if j.claimed {
		was = j.attempt
	}
	row, won, err := v.deps.Store.Claim(ctx, j.claim(), was)
	switch {
	case err != nil:
		return fmt.Errorf("give the turn back: %w", err)
	case won:
		v.giveBack(delay)
		return errSettled
	case row.Status.Finished():
		return v.announce(&row, nil)
	default:
		return turn.ErrLost
	}
}

func (v *visit) giveBack(delay time.Duration) {
	if err := v.delivery.Nak(delay); err != nil {
		v.log.Warn("turn not given back, its lease runs out", "error", err)
	}
}

// unreadable ends a turn that no worker can read. Its id is in its address.
func (v *visit) unreadable(why error) {
	v.log.Error("turn cannot be read", "error", why)
	tenant, id := v.delivery.Address()
	v.turn = &turn.Submission{Tenant: tenant, InvocationID: id, StoredAt: v.cfg.Now()}
	v.turn.Request.SessionID = turn.NormalizeSessionID(id)
	j := &job{Submission: v.turn, startedAt: v.cfg.Now()}
	row, err := v.commit(j, failed(turn.CodeInternal, "the queued request could not be read"))
	if err == nil {
		err = v.announce(row, nil)
	}
	if err != nil {
		v.log.Error("unreadable turn not ended", "error", err)
	}
}

// persist repeats work until it succeeds or the turn is lost.
func (v *visit) persist(what string, work func() error) error {
	return persist(v.lease.held, func(err error) { v.log.Warn(what, "error", err) }, work)
}

// logSink is what a run streams into: the log, without deltas if nobody wants
// them.
type logSink struct {
	turn.LogWriter
	deltas bool
	first  firstDelta
}

// Emit implements [agent.Sink].
func (s *logSink) Emit(e turn.Event) {
	s.first.saw(e)
	if _, isDelta := e.(*turn.Delta); isDelta && !s.deltas {
		return
	}
	s.LogWriter.Emit(e)
}

// streamsDeltas: a turn of the batch lane does so only if it was asked to.
func (j *job) streamsDeltas() bool {
	return j.Request.Lane != turn.LaneBatch || j.Request.Response != nil && j.Request.Response.Deltas
}
