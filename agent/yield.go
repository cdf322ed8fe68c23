package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// A tool with a schema for answers stops the turn: its calls wait in the session,
// in no process, until a later turn brings the answers. That turn claims the calls
// before it does anything (claim), leaves the answers in the ledger (openCalls),
// and, if the last answer is there now, runs the calls (resume) and goes on; else
// it says what is still open (yield).

// ClaimCalls claims calls that wait in the session, see [session.CallClaim]. An
// error ends the run.
type ClaimCalls func(ctx context.Context, answers []session.CallAnswer, supersede []string) (session.ClaimedCalls, error)

// superseded is what the model is told of a call that nobody answered.
const superseded = "superseded: a new message came instead of an answer"

// calls is what a run knows of the calls that wait in its session.
type calls struct {
	waiting []session.PendingCall // as the session was loaded
	claimed session.ClaimedCalls
	// yieldIndex counts the stops of one chain of turns, from 0: that of the
	// next stop.
	yieldIndex int
}

// claim claims the calls that the input answers, and those that its message
// closes. An error refuses the turn: nothing has been done then.
func (r *run) claim(ctx context.Context) error {
	var loaded session.Head
	loaded.Fold(r.Events)
	r.calls.waiting = loaded.Pending
	var answers []session.CallAnswer
	for _, given := range r.Input.Tools {
		if err := r.checkAnswer(given); err != nil {
			return err
		}
		if slices.ContainsFunc(answers, func(a session.CallAnswer) bool { return a.CallID == given.CallID }) {
			return refusal(turn.CodeAlreadyAnswered, "call %q is answered twice in one request", given.CallID)
		}
		answers = append(answers, session.CallAnswer{CallID: given.CallID, Input: given.Input})
	}
	var supersede []string
	for _, p := range r.calls.waiting {
		answered := slices.ContainsFunc(answers, func(a session.CallAnswer) bool { return a.CallID == p.CallID })
		if r.Input.Message != nil && !answered {
			supersede = append(supersede, p.CallID)
		}
	}
	if len(answers)+len(supersede) == 0 {
		r.calls.claimed.Open = loaded.Open()
		return nil
	}
	claimed, err := r.claimCalls(ctx, &loaded, answers, supersede)
	switch {
	case err != nil:
		return err
	case claimed.TooLate != "":
		return refusal(turn.CodeAlreadyAnswered, "call %q has been answered, or is about to be", claimed.TooLate)
	case claimed.Gone && len(answers) > 0:
		return refusal(turn.CodeUnknownCall, "no call %q waits for an answer: its session is gone", answers[0].CallID)
	}
	r.calls.claimed = claimed
	return nil
}

// claimCalls asks whoever knows of the turns of other processes. Without such a
// one there are none.
func (r *run) claimCalls(ctx context.Context, loaded *session.Head, answers []session.CallAnswer, supersede []string) (session.ClaimedCalls, error) {
	if r.ClaimCalls != nil {
		return r.ClaimCalls(ctx, answers, supersede)
	}
	_, claimed := session.CallClaim{InvocationID: r.InvocationID, Answers: answers, Supersede: supersede}.Settle(loaded)
	return claimed, nil
}

// checkAnswer says what is wrong with an answer, as far as the session that was
// loaded tells.
func (r *run) checkAnswer(given turn.ToolAnswer) error {
	p := r.calls.find(given.CallID)
	switch {
	case p == nil && r.asked(given.CallID), p != nil && p.AnsweredBy != "":
		return refusal(turn.CodeAlreadyAnswered, "call %q has been answered already", given.CallID)
	case p == nil:
		return refusal(turn.CodeUnknownCall, "no call %q waits for an answer in this session", given.CallID)
	}
	tool := r.tool(p.Name)
	if tool == nil || tool.Yields == nil {
		return refusal(turn.CodeUnknownTool, "agent %q has no tool %q that waits for answers", r.Agent.Name, p.Name)
	}
	if err := tool.checkAnswer(given.Input); err != nil {
		return refusal(turn.CodeInvalidAnswer, "call %q of %s: %v", given.CallID, p.Name, err)
	}
	return nil
}

func refusal(code, format string, args ...any) error {
	return &turn.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func (c *calls) find(callID string) *session.PendingCall {
	for i := range c.waiting {
		if c.waiting[i].CallID == callID {
			return &c.waiting[i]
		}
	}
	return nil
}

// asked reports whether the session has a call that once stopped a turn.
func (r *run) asked(callID string) bool {
	return slices.ContainsFunc(r.Events, func(e session.Event) bool {
		y, ok := e.(*session.ToolYield)
		return ok && y.CallID == callID
	})
}

// keepAnswers leaves in the ledger the input's answers, and those of other turns
// that this one takes over. They are not streamed.
func (r *run) keepAnswers() {
	for _, given := range r.Input.Tools {
		if p := r.calls.find(given.CallID); p != nil {
			r.keep(&session.ToolInput{EventBase: r.base(), CallID: given.CallID, Name: p.Name, Input: argsOf(given.Input)})
		}
	}
	for _, p := range r.calls.claimed.Held {
		others := p.AnsweredBy == "" && p.Hold.AnsweredBy != "" && p.Hold.AnsweredBy != r.InvocationID
		if !others || p.Hold.Closes {
			continue
		}
		base := r.base()
		base.InvocationID = p.Hold.AnsweredBy
		r.keep(&session.ToolInput{EventBase: base, CallID: p.CallID, Name: p.Name, Input: p.Hold.Input})
	}
}

// keepSuperseded closes the calls that the input's message supersedes. It returns
// the events, to stream once the turn has been opened.
func (r *run) keepSuperseded() (closed []session.Event) {
	for _, p := range r.calls.claimed.Held {
		if !p.Hold.Closes {
			continue
		}
		result := &session.ToolResult{EventBase: r.base(), CallID: p.CallID, Name: p.Name, Error: superseded}
		r.keep(result)
		closed = append(closed, result)
	}
	return closed
}

// waits reports whether the turn can only say what is still open: no model is
// called while calls wait.
func (r *run) waits() bool {
	return !r.calls.claimed.Resumes && r.Input.Message == nil &&
		len(r.Input.Tools)+len(r.calls.claimed.Open) > 0
}

// waitOn ends a turn that has answered some of the calls, or none.
func (r *run) waitOn() session.Status {
	open := r.calls.claimed.Open
	if len(open) > 0 {
		r.calls.yieldIndex = r.indexOf(open[0].InvocationID)
	} else if len(r.calls.waiting) > 0 {
		r.calls.yieldIndex = r.indexOf(r.calls.waiting[0].InvocationID)
	}
	r.stop(open)
	return session.StatusYieldedTool
}

// stop adds the event that closes a turn which stopped to ask.
func (r *run) stop(open []session.PendingCall) {
	end := &session.InvocationYield{EventBase: r.base(), YieldedToolIDs: []string{}, YieldIndex: r.calls.yieldIndex}
	for _, p := range open {
		end.YieldedToolIDs = append(end.YieldedToolIDs, p.CallID)
		r.yielded = append(r.yielded, turn.YieldedTool{CallID: p.CallID, Name: p.Name, Args: p.Args})
	}
	r.add(end)
}

// ask ends a step whose calls wait for answers.
func (r *run) ask(asking []*session.ToolCall) {
	var open []session.PendingCall
	for _, call := range asking {
		r.add(&session.ToolYield{EventBase: r.base(), CallID: call.CallID, Name: call.Name, Args: call.Args})
		open = append(open, session.PendingCall{CallID: call.CallID, Name: call.Name, Args: call.Args})
	}
	r.stop(open)
}

// indexOf is the yieldIndex with which a turn stopped.
func (r *run) indexOf(invocationID string) (index int) {
	for _, e := range r.Events {
		if y, ok := e.(*session.InvocationYield); ok && y.InvocationID == invocationID {
			index = y.YieldIndex
		}
	}
	return index
}

// resume runs the calls whose answers are there, each with its own.
func (r *run) resume(ctx context.Context) error {
	var jobs []callJob
	var resumed []string
	for _, e := range r.replay.resumed {
		if e, ok := e.(*session.InvocationResume); ok {
			resumed = append(resumed, e.Resumes)
			r.keep(e)
		}
	}
	for _, p := range r.calls.claimed.Held {
		index := r.indexOf(p.InvocationID)
		r.calls.yieldIndex = max(r.calls.yieldIndex, index+1)
		if !slices.Contains(resumed, p.InvocationID) {
			resumed = append(resumed, p.InvocationID)
			r.add(&session.InvocationResume{EventBase: r.base(), YieldIndex: index, Resumes: p.InvocationID})
		}
		if p.Hold.Closes {
			continue
		}
		call := &session.ToolCall{CallID: p.CallID, Name: p.Name, Args: p.Args}
		jobs = append(jobs, callJob{ToolCall: call, token: answerToken(p), answer: p.Hold.Input})
	}
	return r.runCalls(ctx, jobs)
}

// answerToken is the token of a call that was answered: the same however often,
// and by which turn, it is resumed with this answer.
func answerToken(p session.PendingCall) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", p.InvocationID, p.CallID, canonical(p.Hold.Input)))
	return "tok_" + hex.EncodeToString(sum[:16])
}

// asks reports whether a call stops the turn: its tool does so, and its arguments
// are such that a person can be asked.
func (r *run) asks(name string, args json.RawMessage) bool {
	tool := r.tool(name)
	return tool != nil && tool.Yields != nil && tool.check(args) == nil
}
