package ingress

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"

	"github.com/turnpool/turnpool/turn"
)

// Keys remembers the submits that came with an Idempotency-Key. Its methods may be
// called concurrently.
type Keys interface {
	// ClaimKey keeps the entry under the key, or returns the one that is there;
	// mine says which.
	ClaimKey(ctx context.Context, tenant, key string, e turn.KeyEntry) (have turn.KeyEntry, mine bool, err error)
	// ReleaseKey forgets the key, if its entry is this one.
	ReleaseKey(ctx context.Context, tenant, key string, e turn.KeyEntry) error
}

const (
	headerKey      = "Idempotency-Key"
	headerReplayed = "Idempotency-Replayed"
	maxKey         = 255
)

// submitOnce takes a turn that came with a key: the first submit under it, or
// another one with the same body, which gets the first one's answer. Of submits
// that come at once one is the first. A submit that is refused frees its key.
func (s *Server) submitOnce(w http.ResponseWriter, r *http.Request, sub *turn.Submission, body []byte) error {
	given := r.Header.Get(headerKey)
	if len(given) > maxKey {
		return &fault{code: codeInvalidField, detail: fmt.Sprintf("%s: expected at most %d bytes", headerKey, maxKey)}
	}
	key := digest([]byte(given))
	entry := turn.KeyEntry{Body: digest(body), InvocationID: sub.InvocationID, SessionID: sub.Request.SessionID}
	have, mine, err := s.deps.Keys.ClaimKey(r.Context(), sub.Tenant, key, entry)
	switch {
	case err != nil:
		return brokerFault(err)
	case have.Body != entry.Body:
		return &fault{code: codeKeyMismatch, detail: "a submit under this " + headerKey + " had another body, and made the turn " + have.InvocationID}
	case !mine:
		w.Header().Set(headerReplayed, "true")
		sub.InvocationID, sub.Request.SessionID = have.InvocationID, have.SessionID
		return s.replay(w, r, sub)
	}
	err = s.take(w, r, sub)
	if errors.Is(err, turn.ErrQueueFull) || errors.Is(err, turn.ErrTooLarge) {
		if err := s.deps.Keys.ReleaseKey(context.WithoutCancel(r.Context()), sub.Tenant, key, entry); err != nil {
			s.log.Warn("the key of a refused submit was not freed", "invocation", sub.InvocationID, "error", err)
		}
	}
	return err
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// replay answers for a turn that was submitted before. One that is nowhere was
// never accepted: whoever claimed its key has gone. It is published then.
func (s *Server) replay(w http.ResponseWriter, r *http.Request, sub *turn.Submission) error {
	stand, err := s.where(r.Context(), sub.Tenant, sub.InvocationID)
	if err != nil && faultOf(err).code == codeUnknownTurn {
		return s.take(w, r, sub)
	}
	if err != nil {
		return err
	}
	want := s.wantedBy(r.Header)
	if want.stream {
		r.SetPathValue("id", sub.InvocationID)
		return s.streamTurn(w, r)
	}
	if !stand.finished() && want.wait > 0 {
		result, err := s.awaitStored(r.Context(), sub.Tenant, sub.InvocationID, stand, want.wait)
		if err != nil {
			return err
		}
		if result != nil {
			writeOutcome(w, untag(result))
			return nil
		}
		if stand, err = s.where(r.Context(), sub.Tenant, sub.InvocationID); err != nil {
			return err
		}
	}
	if stand.finished() {
		return writeRowOutcome(w, stand.row)
	}
	writeAccepted(w, sub, want, stand.summary())
	return nil
}
