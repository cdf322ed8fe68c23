package ingress

import (
	"context"
	"fmt"
	"net/http"

	"github.com/turnpool/turnpool/turn"
)

// DeadLetters has the turns that were given up. Its methods may be called
// concurrently.
type DeadLetters interface {
	// DeadLetters returns up to limit letters of a tenant, the newest first, and a
	// cursor for those that follow, 0 if there are none. The zero cursor begins
	// with the newest.
	DeadLetters(ctx context.Context, tenant string, cursor uint64, limit int) ([]*turn.DeadLetter, uint64, error)
	// DeadLetter returns one letter, nil if there is none.
	DeadLetter(ctx context.Context, tenant, invocationID string) (*turn.DeadLetter, error)
	// DropDeadLetter removes one, and reports whether there was one.
	DropDeadLetter(ctx context.Context, tenant, invocationID string) (bool, error)
}

// deadView is a turn that was given up. Request is only in the answer to who asks
// for one.
type deadView struct {
	ID        string            `json:"id"`
	Agent     string            `json:"agent"`
	SessionID string            `json:"sessionId"`
	Lane      turn.Lane         `json:"lane"`
	Failures  int               `json:"failures"`
	Error     *turn.Error       `json:"error"`
	CreatedAt int64             `json:"createdAt"`
	FailedAt  int64             `json:"failedAt"`
	RedriveOf string            `json:"redriveOf,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	Request   *turn.Request     `json:"request,omitempty"`
}

func viewOfLetter(letter *turn.DeadLetter) deadView {
	s := letter.Submission
	return deadView{
		ID: s.InvocationID, Agent: s.Request.Agent, SessionID: s.Request.SessionID, Lane: s.Request.Lane,
		Failures: letter.Failures, Error: letter.Error, CreatedAt: letter.CreatedAt, FailedAt: letter.FailedAt,
		RedriveOf: s.RedriveOf, Metadata: s.Request.Metadata,
	}
}

// listDead serves a page of the turns that were given up, newest first.
func (s *Server) listDead(w http.ResponseWriter, r *http.Request) error {
	q, err := pageQuery(r)
	if err != nil {
		return err
	}
	letters, next, err := s.deps.Dead.DeadLetters(r.Context(), tenant(r), uint64(q.At), q.Limit-1)
	if err != nil {
		return brokerFault(err)
	}
	list := page[deadView]{Items: []deadView{}}
	for _, letter := range letters {
		list.Items = append(list.Items, viewOfLetter(letter))
	}
	if next > 0 {
		list.Next = encodeCursor(int64(next), "dead")
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// letter returns the letter that a path names.
func (s *Server) letter(r *http.Request) (*turn.DeadLetter, error) {
	id := r.PathValue("id")
	if !turn.ValidInvocationID(id) {
		return nil, unknownDead(id)
	}
	letter, err := s.deps.Dead.DeadLetter(r.Context(), tenant(r), id)
	switch {
	case err != nil:
		return nil, brokerFault(err)
	case letter == nil:
		return nil, unknownDead(id)
	}
	return letter, nil
}

func unknownDead(id string) error {
	return &fault{code: codeUnknownDead, detail: fmt.Sprintf("there is no dead letter of a turn %q", shorten(id, 80))}
}

// getDead serves one letter, with the request.
func (s *Server) getDead(w http.ResponseWriter, r *http.Request) error {
	letter, err := s.letter(r)
	if err != nil {
		return err
	}
	view := viewOfLetter(letter)
	view.Request = &letter.Submission.Request
	writeJSON(w, http.StatusOK, view)
	return nil
}

// dropDead removes a letter. The turn keeps its outcome.
func (s *Server) dropDead(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if !turn.ValidInvocationID(id) {
		return unknownDead(id)
	}
	dropped, err := s.deps.Dead.DropDeadLetter(r.Context(), tenant(r), id)
	switch {
	case err != nil:
		return brokerFault(err)
	case !dropped:
		return unknownDead(id)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// redrive makes a given-up turn again, as it was or as the body says: a new turn,
// whose id follows from the old one, so that asking twice makes one. It answers as
// a submit does; the letter goes once the turn is accepted.
func (s *Server) redrive(w http.ResponseWriter, r *http.Request) error {
	letter, err := s.letter(r)
	if err != nil {
		return err
	}
	request, err := s.redriven(w, r, letter.Submission.Request)
	if err != nil {
		return err
	}
	sub, err := s.accept(tenant(r), request)
	if err != nil {
		return err
	}
	old := letter.Submission.InvocationID
	sub.InvocationID, sub.RedriveOf = turn.RedriveID(old), old
	if err := s.take(w, r, sub); err != nil {
		return err
	}
	if _, err := s.deps.Dead.DropDeadLetter(context.WithoutCancel(r.Context()), sub.Tenant, old); err != nil {
		s.log.Warn("the letter of a redriven turn was not dropped", "invocation", sub.InvocationID, "redriveOf", old, "error", err)
	}
	return nil
}

// redriven is the request to make: the body's, whole, or, without a body, the old
// one.
func (s *Server) redriven(w http.ResponseWriter, r *http.Request, old turn.Request) (turn.Request, error) {
	body, err := s.readBody(w, r)
	if err != nil {
		return turn.Request{}, err
	}
	if len(body) > 0 {
		return decodeRequest(body)
	}
	if old.Input.Empty() {
		return turn.Request{}, &fault{code: codeEmptyInput, detail: "the letter has no input, which was too large to keep; give the whole request"}
	}
	return old, nil
}
