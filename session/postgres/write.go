package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/turnpool/turnpool/session"
)

// Claim implements [session.Store]. When the connection is lost in the very moment
// of the commit the claim may stand although it is reported as another's: then
// nobody runs this attempt, and the next delivery claims a later one.
func (s *Store) Claim(ctx context.Context, turn session.Turn, was int) (now session.Turn, claimed bool, err error) {
	turn = *turn.Clone()
	turn.Status = session.StatusRunning
	var l locks
	l.turn(turn.Tenant, turn.InvocationID)
	var have *session.Turn
	err = s.write(ctx, l,
		func(read *pgx.Batch) {
			have = nil
			queueTurn(read, turn.Tenant, turn.InvocationID, &have)
		},
		func(write *pgx.Batch) error {
			now, claimed = session.Turn{}, false
			switch {
			case have == nil && was != 0:
				return nil
			case have != nil && (have.Status.Finished() || have.Attempt != was):
				now = *have
				return nil
			}
			now, claimed = turn, true
			rows := newRows()
			rows.turns[key{turn.Tenant, turn.InvocationID}] = turn
			return rows.queue(write)
		})
	if err != nil {
		return session.Turn{}, false, wrap(err, "claim %s for attempt %d", turn.InvocationID, turn.Attempt)
	}
	return now, claimed, nil
}

// ClaimCalls implements [session.Store].
func (s *Store) ClaimCalls(ctx context.Context, c session.CallClaim) (got session.ClaimedCalls, err error) {
	var l locks
	l.session(c.Tenant, c.SessionID)
	var have *session.Head
	err = s.write(ctx, l,
		func(read *pgx.Batch) {
			have = nil
			queueHead(read, c.Tenant, c.SessionID, &have)
		},
		func(write *pgx.Batch) error {
			var next *session.Head
			if next, got = c.Settle(have); next == nil {
				return nil
			}
			rows := newRows()
			rows.heads[key{c.Tenant, c.SessionID}] = next
			return rows.queue(write)
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
	rows := newRows()
	if err := rows.add(n.Tenant, settled); err != nil {
		return nil, wrap(err, "create session %s", n.ID)
	}
	head := settled.Outcome.Head
	var l locks
	l.session(n.Tenant, n.ID)
	for _, w := range n.Scoped {
		l.scope(n.Tenant, w.Scope, w.ScopeID)
	}
	var have *session.Head
	err = s.write(ctx, l,
		func(read *pgx.Batch) {
			have = nil
			queueHead(read, n.Tenant, n.ID, &have)
		},
		func(write *pgx.Batch) error {
			switch {
			case have == nil:
				return rows.queue(write)
			case have.Epoch == head.Epoch: // committed, and the answer was lost
				return nil
			default:
				return session.ErrExists
			}
		})
	if err != nil {
		return nil, wrap(err, "create session %s", n.ID)
	}
	return head.Clone(), nil
}

// Delete implements [session.Store].
func (s *Store) Delete(ctx context.Context, tenant, id string, at int64) error {
	var l locks
	l.session(tenant, id)
	var have *session.Head
	deleting := false
	err := s.write(ctx, l,
		func(read *pgx.Batch) {
			have = nil
			queueHead(read, tenant, id, &have)
		},
		func(write *pgx.Batch) error {
			switch {
			case have == nil && deleting: // committed, and the answer was lost
				return nil
			case have == nil:
				return session.ErrNotFound
			}
			deleting = true
			write.Queue(`DELETE FROM sessions WHERE tenant = $1 AND id = $2`, tenant, id)
			write.Queue(`DELETE FROM slices WHERE tenant = $1 AND session_id = $2`, tenant, id)
			// Deletions may arrive out of order; the last one by the broker's clock counts.
			write.Queue(`
				INSERT INTO tombstones (tenant, session_id, deleted_at) VALUES ($1, $2, $3)
				ON CONFLICT (tenant, session_id) DO UPDATE SET deleted_at = greatest(tombstones.deleted_at, excluded.deleted_at)`,
				tenant, id, at)
			write.Queue(`UPDATE turns SET result = NULL, usage = NULL WHERE tenant = $1 AND session_id = $2`, tenant, id)
			return nil
		})
	return wrap(err, "delete session %s", id)
}
