package session

// Status is where a turn stands.
type Status string

// A turn is queued, then running (between attempts too), then has one of the
// outcomes. A dropped turn keeps its run status.
const (
	StatusQueued      Status = "queued"
	StatusRunning     Status = "running"
	StatusCompleted   Status = "completed"
	StatusYieldedTool Status = "yielded_tool"
	StatusMaxSteps    Status = "max_steps"
	StatusMaxDuration Status = "max_duration"
	StatusError       Status = "error"
	StatusAborted     Status = "aborted"
)

// Finished reports whether the status is an outcome.
func (s Status) Finished() bool { return s != "" && s != StatusQueued && s != StatusRunning }

// Commits reports whether a turn that ended so is written to the ledger.
func (s Status) Commits() bool {
	return s.Finished() && s != StatusError && s != StatusAborted
}

// CommitStatus says what a turn left in the ledger.
type CommitStatus string

const (
	// CommitNone (absent on the wire): the turn was aborted or failed.
	CommitNone CommitStatus = ""
	// Committed: the version still matched; the turn's events and state are there.
	Committed CommitStatus = "committed"
	// Merged: the version had moved, and no newer user message had landed; the
	// turn's events follow the winner's.
	Merged CommitStatus = "merged"
	// Skipped: the version had moved, and the session holds a newer user
	// message; nothing of the turn is there.
	Skipped CommitStatus = "skipped"
	// Orphaned: the session was deleted meanwhile; nothing of the turn is there.
	Orphaned CommitStatus = "orphaned"
)

// Warning is the sentence that a caller gets beside a commit that was not a
// plain one.
func (c CommitStatus) Warning() string {
	switch c {
	case Merged:
		return "merged: another turn committed first"
	case Skipped:
		return "skipped: a newer message arrived; nothing of this turn was kept"
	case Orphaned:
		return "orphaned: the session was deleted; nothing was kept"
	default:
		return ""
	}
}

// CodeAlreadyAnswered is the error code of a turn whose answers came too late.
const CodeAlreadyAnswered = "already_answered"
