package session

import (
	"encoding/json"
	"slices"
)

// PendingCall is a call that stopped its turn to ask, and whose result is not in
// the ledger yet.
type PendingCall struct {
	CallID string          `json:"callId"`
	Name   string          `json:"name"`
	Args   json.RawMessage `json:"args"`
	// InvocationID and AgentName are the turn's that stopped.
	InvocationID string `json:"invocationId"`
	AgentName    string `json:"agentName,omitempty"`
	// AnsweredBy is the invocation whose answer the ledger holds, if any: the
	// call still waits for the others.
	AnsweredBy string `json:"answeredBy,omitempty"`
	// Hold says who is about to answer or close it.
	Hold Hold `json:"hold,omitzero"`
	// Closed: the result is in the ledger, and so is the answer of AnsweredBy,
	// whose own turn has not ended yet. The entry stays so that this turn can
	// leave its answer out.
	Closed bool `json:"closed,omitempty"`
}

// Hold is a turn's claim on a pending call. It is made before the turn does
// anything, so that of two turns that answer one call one does nothing, and of
// two that complete the answers together exactly one goes on; it ends with the
// turn.
type Hold struct {
	// Holder is the invocation that acts on the call, empty once its answer is in
	// the ledger and waits for the others.
	Holder string `json:"holder,omitempty"`
	// AnsweredBy is the invocation whose answer Input is. A turn that completes
	// the answers takes the calls of the others over.
	AnsweredBy string          `json:"answeredBy,omitempty"`
	Input      json.RawMessage `json:"input,omitempty"`
	// Resumes: the holder has all answers, and runs the calls.
	Resumes bool `json:"resumes,omitempty"`
	// Closes: the holder closes the call without an answer, because a new message
	// came.
	Closes bool `json:"closes,omitempty"`
}

// IsZero reports whether nobody has claimed or answered the call.
func (h Hold) IsZero() bool { return h.Holder == "" && h.AnsweredBy == "" }

// CallClaim is what a turn wants to do with the calls that wait in its session.
type CallClaim struct {
	Tenant       string
	SessionID    string
	InvocationID string
	// Epoch is that of the session that the turn loaded.
	Epoch   string
	Answers []CallAnswer
	// Supersede are calls to close without an answer.
	Supersede []string
}

// CallAnswer is the answer to one call.
type CallAnswer struct {
	CallID string
	Input  json.RawMessage
}

// ClaimedCalls is what a turn got.
type ClaimedCalls struct {
	// Gone: there is no such session any more. Nothing was claimed.
	Gone bool
	// TooLate is a call that another turn has answered or closed, or is about to.
	// Nothing was claimed.
	TooLate string
	// Resumes: every call that waits has an answer now, and this turn, and no
	// other, runs them.
	Resumes bool
	// Held are the calls that this turn acts on, oldest first: with Resumes all
	// of them, the answers of others among them; else those it answers or closes.
	Held []PendingCall
	// Open are the calls that nobody has answered.
	Open []PendingCall
}

// Settle decides a claim on the session as it is now, under the store's lock. It
// returns the head to write, nil if nothing changes, and changes none of its
// arguments. The same claim again has the same answer for as long as the turn
// has not ended.
func (c CallClaim) Settle(head *Head) (*Head, ClaimedCalls) {
	if head == nil || head.Epoch != c.Epoch {
		return nil, ClaimedCalls{Gone: true}
	}
	next := head.Clone()
	holder := validText(c.InvocationID)
	for _, a := range c.Answers {
		if !next.answer(holder, a) {
			return nil, ClaimedCalls{TooLate: a.CallID}
		}
	}
	for _, callID := range c.Supersede {
		next.supersede(holder, callID)
	}
	got := ClaimedCalls{Resumes: len(c.Answers) > 0 && next.resume(holder)}
	for _, p := range next.Pending {
		switch {
		case p.Closed:
		case p.Hold.Holder == holder:
			got.Held = append(got.Held, p)
		case p.AnsweredBy == "" && p.Hold.AnsweredBy == "":
			got.Open = append(got.Open, p)
		}
	}
	return next, got
}

// answer lets the holder answer a call, or reports that another does.
func (h *Head) answer(holder string, a CallAnswer) bool {
	p := h.entry(a.CallID)
	switch {
	case p == nil:
		return false
	case p.AnsweredBy != "":
		return p.AnsweredBy == holder
	case p.Hold.IsZero():
		p.Hold = Hold{Holder: holder, AnsweredBy: holder, Input: validJSON(a.Input)}
		return true
	default:
		return p.Hold.AnsweredBy == holder
	}
}

// supersede lets the holder close a call, unless its own answer or somebody's
// resumption is about to. It goes before an answer that nobody acts on yet, and
// before another message.
func (h *Head) supersede(holder, callID string) {
	p := h.pending(callID)
	if p == nil || p.Hold.Resumes || p.AnsweredBy == "" && p.Hold.AnsweredBy == holder {
		return
	}
	p.Hold.Holder, p.Hold.Closes = holder, true
}

// resume lets the holder run all calls that wait, if each has an answer, or is
// closed by the holder.
func (h *Head) resume(holder string) bool {
	for i := range h.Pending {
		if p := &h.Pending[i]; !p.Closed && p.Hold.Resumes {
			return p.Hold.Holder == holder
		}
	}
	answers := false
	for _, p := range h.Pending {
		closedByOther := p.Hold.Closes && p.Hold.Holder != holder
		if !p.Closed && (p.Hold.IsZero() || closedByOther) {
			return false
		}
		answers = answers || p.Hold.AnsweredBy == holder
	}
	if !answers { // its own have been taken over, and are in the ledger
		return false
	}
	for i := range h.Pending {
		if p := &h.Pending[i]; !p.Closed {
			p.Hold.Holder, p.Hold.Resumes = holder, true
		}
	}
	return true
}

// release ends all holds of an invocation that has ended. It reports whether there
// were any.
func (h *Head) release(invocation string) (changed bool) {
	invocation = validText(invocation)
	for i := range h.Pending {
		changed = h.Pending[i].release(invocation) || changed
	}
	before := len(h.Pending)
	h.Pending = slices.DeleteFunc(h.Pending, func(p PendingCall) bool { return p.Closed && p.AnsweredBy == invocation })
	return changed || len(h.Pending) < before
}

func (p *PendingCall) release(invocation string) bool {
	hold := &p.Hold
	switch {
	case p.Closed:
		return false
	case p.AnsweredBy == "" && hold.AnsweredBy == invocation:
		// Its answer goes, unless another acts on it already: then it is that one's.
		switch {
		case hold.Holder == "" || hold.Holder == invocation:
			*hold = Hold{}
		case hold.Closes:
			hold.AnsweredBy, hold.Input = "", nil
		default:
			hold.AnsweredBy = hold.Holder
		}
		return true
	case hold.Holder == invocation:
		// The call goes back to whose answer it is.
		hold.Resumes, hold.Closes = false, false
		hold.Holder = hold.AnsweredBy
		if p.AnsweredBy != "" {
			hold.Holder = ""
		}
		return true
	default:
		return false
	}
}

// answered adds that the ledger has the answer to a call.
func (p *PendingCall) answered(e *ToolInput) {
	p.AnsweredBy = validText(e.InvocationID)
	acting := p.Hold.Resumes || p.Hold.Closes
	if !acting {
		p.Hold = Hold{AnsweredBy: p.AnsweredBy, Input: validJSON(e.Input)}
	}
}

// keepClosed keeps the entries of calls that the slice of one turn closes with the
// answer of another, which that one wants to commit too.
func (h *Head) keepClosed(before *Head, invocation string, events []Event) {
	for _, e := range events {
		input, ok := e.(*ToolInput)
		if !ok || validText(input.InvocationID) == validText(invocation) || h.entry(input.CallID) != nil {
			continue
		}
		if p := before.pending(input.CallID); p != nil && p.AnsweredBy == "" {
			h.Pending = append(h.Pending, PendingCall{
				CallID: p.CallID, Name: p.Name, Args: p.Args, InvocationID: p.InvocationID, AgentName: p.AgentName,
				AnsweredBy: validText(input.InvocationID), Closed: true,
			})
		}
	}
}
