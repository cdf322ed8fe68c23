package session

import (
	"maps"
	"slices"
)

// Head is what is known of a session without reading its ledger: the facts of
// the guard, and what the ledger folds to.
type Head struct {
	ID string `json:"sessionId"`
	// Epoch is random per created session, so that a session that was deleted
	// and created again is another one.
	Epoch string `json:"epoch"`
	// Version is 1 after creation or the first commit, and one more after each
	// commit.
	Version    int64 `json:"version"`
	EventCount int64 `json:"eventCount"`
	// LastUserAt is the time of the newest user event, 0 if there is none.
	LastUserAt int64 `json:"lastUserAt"`
	// State is the session scope.
	State State `json:"state"`
	// Scopes binds shared scopes to ids; it is set once, at creation.
	Scopes    map[string]string `json:"scopes,omitempty"`
	Usage     *Usage            `json:"usage,omitempty"`
	Pending   []PendingCall     `json:"pending,omitempty"`
	CreatedAt int64             `json:"createdAt"`
	UpdatedAt int64             `json:"updatedAt"`
}

// Base is what a turn remembers of the session that it loaded, to commit
// against. The zero Base says that there was no session.
type Base struct {
	Epoch      string `json:"epoch"`
	Version    int64  `json:"version"`
	EventCount int64  `json:"eventCount"`
}

// Base returns what a turn that loads this head commits against. A nil head
// gives the zero Base.
func (h *Head) Base() Base {
	if h == nil {
		return Base{}
	}
	return Base{Epoch: h.Epoch, Version: h.Version, EventCount: h.EventCount}
}

// Open returns the yielded calls that nobody has answered.
func (h *Head) Open() []PendingCall {
	var open []PendingCall
	for _, p := range h.Pending {
		if p.AnsweredBy == "" && !p.Closed {
			open = append(open, p)
		}
	}
	return open
}

// Clone returns a head that can be folded further without changing this one.
func (h *Head) Clone() *Head {
	if h == nil {
		return nil
	}
	out := *h
	out.State = h.State.Clone()
	out.Scopes = maps.Clone(h.Scopes)
	out.Usage = nil
	if h.Usage != nil {
		out.Usage = h.Usage.Clone()
	}
	out.Pending = slices.Clone(h.Pending)
	return &out
}

// Fold adds events to the facts: their count, the newest user message, the
// state and the pending calls. Version and usage are the commit's to change.
func (h *Head) Fold(events []Event) {
	if h.State == nil {
		h.State = State{}
	}
	for _, e := range events {
		h.EventCount++
		switch e := e.(type) {
		case *User:
			h.LastUserAt = max(h.LastUserAt, e.CreatedAt)
		case *StateChange:
			if e.Scope == ScopeSession {
				h.State.Apply(e.Changes)
			}
		case *ToolYield:
			h.Pending = append(h.Pending, PendingCall{
				CallID: validText(e.CallID), Name: validText(e.Name), Args: validJSON(e.Args),
				InvocationID: validText(e.InvocationID), AgentName: validText(e.AgentName),
			})
		case *ToolInput:
			if p := h.pending(e.CallID); p != nil {
				p.answered(e)
			}
		case *ToolResult:
			callID := validText(e.CallID)
			h.Pending = slices.DeleteFunc(h.Pending, func(p PendingCall) bool { return p.CallID == callID && !p.Closed })
		}
	}
}

// pending returns a call that waits for its result, or nil.
func (h *Head) pending(callID string) *PendingCall {
	if p := h.entry(callID); p != nil && !p.Closed {
		return p
	}
	return nil
}

func (h *Head) entry(callID string) *PendingCall {
	callID = validText(callID)
	for i := range h.Pending {
		if h.Pending[i].CallID == callID {
			return &h.Pending[i]
		}
	}
	return nil
}
