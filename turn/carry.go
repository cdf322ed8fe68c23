package turn

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Meanings of failures between the processes that carry a turn.
var (
	// ErrQueueFull: the lane takes no more turns now; nothing was queued.
	ErrQueueFull = errors.New("queue full")
	// ErrUnavailable: the broker did not answer; whether it acted is unknown.
	ErrUnavailable = errors.New("broker unavailable")
	// ErrLost: the turn belongs to another attempt, or has ended. Whoever gets
	// this stops and sends nothing more.
	ErrLost = errors.New("turn lost to another attempt")
	// ErrTaken: the log has events of an attempt that this one knew nothing of.
	ErrTaken = errors.New("turn was started before")
	// ErrExpired: the events after the cursor are not kept any more.
	ErrExpired = errors.New("events expired")
	// ErrTooLarge: the message is above the broker's limit.
	ErrTooLarge = errors.New("message too large")
)

// Delivery is a queued turn in the hands of one worker, until it is settled by
// exactly one of Ack, Nak and Term. A worker that does none of them and stops
// its heartbeat loses the turn to another.
type Delivery interface {
	// Submission decodes the turn. An error says that it cannot be read, which
	// no other worker will change.
	Submission() (*Submission, error)
	// Address is the turn's tenant and id, readable even if nothing else is.
	Address() (tenant, invocationID string)
	// Redelivered reports whether another delivery went before, as far as the
	// broker remembers.
	Redelivered() bool
	// Ack says that the turn has an outcome.
	Ack() error
	// Nak gives the turn back, to be delivered again after the delay.
	Nak(delay time.Duration) error
	// Term gives up on the turn, without an outcome.
	Term() error
}

// Pull is one request for queued turns. Deliveries come on C, which is closed
// when the pull has ended; then Err says whether the broker answered.
type Pull interface {
	C() <-chan Delivery
	Err() error
}

// LogState is what the last message of a turn's log says.
type LogState struct {
	// Sequence is the broker's number of that message, 0 for an empty log.
	Sequence uint64
	// Attempt wrote it, as the log's writer with this WriterID.
	Attempt  int
	WriterID string
	// NextSeq is the number of the next visible event, from 1.
	NextSeq int64
	// Released, Retried and Finished say that the message ends in such a mark, or
	// in the turn's result.
	Released bool
	Retried  bool
	Finished bool
}

// LogWriter appends one attempt's events to the turn's log. It has one message
// in flight; what is emitted meanwhile rides in the next one.
type LogWriter interface {
	// Emit takes an event, and never waits. After the log was lost it does
	// nothing. Events of one goroutine keep their order.
	Emit(e Event)
	// Flush waits until all that was emitted is stored. [ErrLost] and
	// [ErrTaken] are final.
	Flush(ctx context.Context) error
	// Lost is closed when the log was lost; Flush then says why.
	Lost() <-chan struct{}
}

// Frame is one event of a turn as a reader gets it.
type Frame struct {
	// Seq counts the turn's visible events, from 1.
	Seq  int64
	Type string
	Data json.RawMessage
}

// LogReader follows a turn's log. It is used by one goroutine at a time.
type LogReader interface {
	// Next waits for events after the last one returned, and returns all that
	// are there: in order, none twice, none left out. After the result it
	// returns [io.EOF]. [ErrExpired] if what comes next is not kept any more.
	Next(ctx context.Context) ([]Frame, error)
	// Check looks up the log's last message, and makes Next read back what this
	// reader missed. It is for the reader's heartbeat.
	Check(ctx context.Context) error
	// Close ends the subscription. It may be called twice.
	Close()
}

// DeadLetter is a turn that was given up: its request, and why.
type DeadLetter struct {
	Submission *Submission `json:"submission"`
	Failures   int         `json:"failures"`
	Error      *Error      `json:"error"`
	// FailedAt is when it was given up, CreatedAt when it was stored, in
	// milliseconds.
	FailedAt  int64 `json:"failedAt"`
	CreatedAt int64 `json:"createdAt"`
}

// KeyEntry is what an idempotency key stands for: the turn that was made under it,
// and the digest of the request's body.
type KeyEntry struct {
	Body         string `json:"body"`
	InvocationID string `json:"invocationId"`
	SessionID    string `json:"sessionId"`
}

// AgentInfo is what workers announce of an agent.
type AgentInfo struct {
	Name        string     `json:"name"`
	Description string     `json:"description,omitempty"`
	Pool        string     `json:"pool"`
	Tools       []ToolInfo `json:"tools"`
	// LastSeenAt is when a worker last announced it, in milliseconds.
	LastSeenAt int64 `json:"lastSeenAt"`
}

// ToolInfo is a tool of an agent. InputSchema is the schema of the answer that
// a tool which stops to ask waits for.
type ToolInfo struct {
	Name        string          `json:"name"`
	InputSchema json.RawMessage `json:"inputSchema,omitempty"`
}
