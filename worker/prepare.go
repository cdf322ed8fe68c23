package worker

import (
	"fmt"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// prepare loads all that an attempt needs, and claims the turn if others may have
// gone before. It returns [errSettled] if there is nothing to run: the turn has
// an outcome (which is announced again), has failed too often, or is another's.
func (v *visit) prepare(again bool) (*job, turn.LogState, error) {
	// The log is read before the row, so that an outcome which the log has
	// announced is in the row that is read.
	var last turn.LogState
	if again {
		err := v.persist("log not read", func() (err error) {
			last, err = v.deps.Log.State(v.lease.held, v.turn.Tenant, v.turn.InvocationID)
			return err
		})
		if err != nil {
			return nil, last, err
		}
	}
	loaded, err := v.load(0)
	if err != nil {
		return nil, last, err
	}
	if loaded.Turn != nil && loaded.Turn.Status.Finished() {
		return nil, last, settled(v.announce(loaded.Turn, nil))
	}
	j := &job{Submission: v.turn, agent: v.agents[v.turn.Request.Agent], attempt: 1, startedAt: v.cfg.Now()}
	if err := j.addFrontendTools(); err != nil {
		return nil, last, v.refuse(j, err)
	}
	if !again {
		j.on(loaded.Head.Base(), loaded)
		return j, last, nil
	}
	return j, last, v.prepareAgain(j, last, loaded)
}

// prepareAgain makes the job that of the next attempt, on the session that the
// first one loaded.
func (v *visit) prepareAgain(j *job, last turn.LogState, loaded session.Loaded) error {
	if last.Finished {
		v.log.Error("the log has a result that the store does not know; the turn is not run again")
		return settled(v.delivery.Ack())
	}
	past, err := v.past(last, loaded.Head.Base())
	if err != nil {
		return err
	}
	was := j.follow(loaded.Turn, last, past)
	if j.failures >= v.cfg.MaxAttempts {
		return v.giveUp(j)
	}
	if err := v.claim(j, was); err != nil {
		return err
	}
	if base := past.base; base.EventCount != loaded.Head.Base().EventCount && base.EventCount > 0 {
		if loaded, err = v.load(base.EventCount); err != nil {
			return err
		}
	}
	j.on(past.base, loaded)
	return nil
}

// follow numbers the attempt, and gives it what the earlier ones finished. It
// counts the failures before it: one more if the attempt before left no mark, but
// from 0 if that one had finished something. It returns the attempt of the stored
// row.
func (j *job) follow(row *session.Turn, last turn.LogState, past past) (was int) {
	if row != nil {
		was, j.failures = row.Attempt, row.Failures
		j.startedAt = row.StartedAt
	}
	if past.progress && !last.Retried { // a retry has counted already
		j.failures = 0
	}
	before := max(was, last.Attempt)
	j.attempt = before + 1
	if before > 0 && restartReason(last, j.attempt) == turn.RestartCrash {
		j.failures++
	}
	j.replay, j.rewindTo = past.finished, past.rewindTo
	return was
}

// claim writes the attempt into the turn's row, unless another was faster.
func (v *visit) claim(j *job, was int) error {
	var row session.Turn
	var won bool
	err := v.persist("turn not claimed yet", func() (err error) {
		row, won, err = v.deps.Store.Claim(v.lease.held, j.claim(), was)
		return err
	})
	switch {
	case err != nil:
		return err
	case won:
		j.claimed = true
		return nil
	case row.Status.Finished():
		return settled(v.announce(&row, nil))
	default:
		return fmt.Errorf("%w: attempt %d was claimed", turn.ErrLost, row.Attempt)
	}
}

// claim is the row of the running turn.
func (j *job) claim() session.Turn {
	return session.Turn{
		Tenant: j.Tenant, InvocationID: j.InvocationID, SessionID: j.Request.SessionID,
		Agent: j.Request.Agent, Lane: string(j.Request.Lane), Status: session.StatusRunning,
		Attempt: j.attempt, Failures: j.failures, CreatedAt: j.StoredAt, StartedAt: j.startedAt,
	}
}

// giveUp ends a turn whose workers have died too often.
func (v *visit) giveUp(j *job) error {
	j.attempt-- // the one that would be next did not run
	ended := failed(turn.CodeWorkerLost, fmt.Sprintf("the turn was given up after %d failed attempts", j.failures))
	if err := v.bury(j, ended.Error, nil); err != nil {
		return err
	}
	row, err := v.commit(j, ended)
	if err != nil {
		return err
	}
	return settled(v.announce(row, nil))
}

// refuse ends a turn that cannot run as it was asked for.
func (v *visit) refuse(j *job, why error) error {
	row, err := v.commit(j, agent.Outcome{
		Status: session.StatusError, Output: turn.Output{Items: session.Events{}}, Err: why,
		Error: &turn.Error{Code: codeInvalidField, Message: why.Error()},
	})
	if err != nil {
		return err
	}
	return settled(v.announce(row, nil))
}

func (v *visit) load(upTo int64) (loaded session.Loaded, err error) {
	err = v.persist("session not loaded yet", func() (err error) {
		loaded, err = v.deps.Store.Load(v.lease.held, loadQuery(v.turn, upTo))
		return err
	})
	return loaded, err
}

// settled turns success into [errSettled].
func settled(err error) error {
	if err == nil {
		return errSettled
	}
	return err
}
