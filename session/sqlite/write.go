package sqlite

import (
	"context"

	"github.com/turnpool/turnpool/session"
)

// Claim implements [session.Store].
func (s *Store) Claim(ctx context.Context, turn session.Turn, was int) (now session.Turn, claimed bool, err error) {
	err = s.write(ctx, func(t tx) error {
		now, claimed, err = t.claim(turn, was)
		return err
	})
	if err != nil {
		return session.Turn{}, false, wrap(err, "claim %s for attempt %d", turn.InvocationID, turn.Attempt)
	}
	return now, claimed, nil
}

func (t tx) claim(turn session.Turn, was int) (session.Turn, bool, error) {
	have, err := optional(scanTurn(t.row(selectTurn, turn.Tenant, turn.InvocationID)))
	switch {
	case err != nil:
		return turn, false, err
	case have == nil && was != 0:
		return session.Turn{}, false, nil
	case have != nil && (have.Status.Finished() || have.Attempt != was):
		return *have, false, nil
	}
	turn.Status = session.StatusRunning
	values, err := turnValues(turn)
	if err != nil {
		return turn, false, err
	}
	_, err = t.exec(upsertTurn, values...)
	return turn, true, err
}

// ClaimCalls implements [session.Store].
func (s *Store) ClaimCalls(ctx context.Context, c session.CallClaim) (got session.ClaimedCalls, err error) {
	err = s.write(ctx, func(t tx) error {
		head, err := optional(scanHead(t.row(selectHead, c.Tenant, c.SessionID)))
		if err != nil {
			return err
		}
		var next *session.Head
		if next, got = c.Settle(head); next == nil {
			return nil
		}
		values, err := headValues(c.Tenant, next)
		if err != nil {
			return err
		}
		_, err = t.exec(upsertHead, values...)
		return err
	})
	if err != nil {
		return session.ClaimedCalls{}, wrap(err, "claim calls of session %s", c.SessionID)
	}
	return got, nil
}

// Create implements [session.Store].
func (s *Store) Create(ctx context.Context, n session.NewSession) (*session.Head, error) {
	settled, err := n.Settle()
	if err != nil {
		return nil, wrap(err, "create session")
	}
	rows, err := encode(n.Tenant, settled)
	if err != nil {
		return nil, wrap(err, "create session %s", n.ID)
	}
	err = s.write(ctx, func(t tx) error {
		have, err := optional(scanHead(t.row(selectHead, n.Tenant, n.ID)))
		if err != nil {
			return err
		}
		if have != nil {
			return session.ErrExists
		}
		return t.all(rows)
	})
	if err != nil {
		return nil, wrap(err, "create session %s", n.ID)
	}
	return settled.Outcome.Head, nil
}

// Delete implements [session.Store].
func (s *Store) Delete(ctx context.Context, tenant, id string, at int64) error {
	err := s.write(ctx, func(t tx) error {
		deleted, err := t.exec(deleteHead, tenant, id)
		if err != nil {
			return err
		}
		if deleted == 0 {
			return session.ErrNotFound
		}
		return t.all([]write{
			{deleteSlices, []any{tenant, id}},
			{upsertTombstone, []any{tenant, id, at}},
			{scrubTurns, []any{tenant, id}},
		})
	})
	return wrap(err, "delete session %s", id)
}

var deleteHead = statement(`DELETE FROM sessions WHERE tenant = ? AND id = ?`)

var deleteSlices = statement(`DELETE FROM slices WHERE tenant = ? AND session_id = ?`)

// Deletions may arrive out of order; the last one by the broker's clock counts.
var upsertTombstone = statement(`
	INSERT INTO tombstones (tenant, session_id, deleted_at) VALUES (?, ?, ?)
	ON CONFLICT (tenant, session_id) DO UPDATE SET deleted_at = max(deleted_at, excluded.deleted_at)`)

var scrubTurns = statement(`UPDATE turns SET result = NULL, usage = NULL WHERE tenant = ? AND session_id = ?`)
