package sqlite

import (
	"context"
	"errors"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/turnpool/turnpool/session"
)

// Commit implements [session.Store].
func (s *Store) Commit(ctx context.Context, slices []*session.Slice) ([]session.Outcome, error) {
	outcomes := make([]session.Outcome, len(slices))
	err := s.write(ctx, func(t tx) error {
		for i, slice := range slices {
			outcome, err := t.commit(slice)
			if errors.As(err, new(ownError)) {
				outcome, err = session.Outcome{Turn: slice.Turn, Err: wrap(err, "commit %s", slice.Turn.InvocationID)}, nil
			}
			if err != nil {
				return err
			}
			outcomes[i] = outcome
		}
		return nil
	})
	if err != nil {
		return nil, wrap(err, "commit of %d slices", len(slices))
	}
	return outcomes, nil
}

func (t tx) commit(slice *session.Slice) (session.Outcome, error) {
	facts, err := t.facts(slice.Turn.Tenant, slice.Turn.SessionID, slice.Turn.InvocationID)
	if err != nil {
		return session.Outcome{}, err
	}
	settled, err := session.Settle(facts, slice)
	if err != nil {
		return session.Outcome{}, ownError{err}
	}
	rows, err := encode(slice.Turn.Tenant, settled)
	if err != nil {
		return session.Outcome{}, ownError{err}
	}
	return settled.Outcome, t.apart(rows)
}

// facts reads what the rule needs to know. The transaction has the write lock,
// so they stay true until it ends.
func (t tx) facts(tenant, sessionID, invocationID string) (f session.Facts, err error) {
	if f.Head, err = optional(scanHead(t.row(selectHead, tenant, sessionID))); err != nil {
		return f, err
	}
	if f.Turn, err = optional(scanTurn(t.row(selectTurn, tenant, invocationID))); err != nil {
		return f, err
	}
	err = t.row(selectDeletedAt, tenant, sessionID).Scan(&f.DeletedAt)
	return f, err
}

var selectDeletedAt = statement(`
	SELECT coalesce((SELECT deleted_at FROM tombstones WHERE tenant = ? AND session_id = ?), 0)`)

// write is one statement with its values.
type write struct {
	query  query
	values []any
}

// encode turns a settlement into writes. What cannot be encoded fails here,
// before anything is written.
func encode(tenant string, settled session.Settlement) ([]write, error) {
	var writes []write
	if settled.WriteHead {
		head, err := headValues(tenant, settled.Outcome.Head)
		if err != nil {
			return nil, err
		}
		writes = append(writes, write{upsertHead, head})
	}
	if len(settled.Append) > 0 {
		data, err := session.EncodeAll(settled.Append)
		if err != nil {
			return nil, err
		}
		head, turn := settled.Outcome.Head, settled.Outcome.Turn
		writes = append(writes, write{insertSlice, []any{tenant, head.ID, settled.Outcome.FirstIndex,
			len(settled.Append), turn.InvocationID, string(data), head.UpdatedAt}})
	}
	if settled.WriteTurn {
		turn, err := turnValues(settled.Outcome.Turn)
		if err != nil {
			return nil, err
		}
		writes = append(writes, write{upsertTurn, turn})
	}
	for _, w := range settled.Scoped {
		if len(w.Value) == 0 {
			writes = append(writes, write{deleteScoped, []any{tenant, w.Scope, w.ScopeID, w.Key}})
		} else {
			writes = append(writes, write{upsertScoped, []any{tenant, w.Scope, w.ScopeID, w.Key, string(w.Value)}})
		}
	}
	return writes, nil
}

// A session's epoch, scopes and creation are set once.
var upsertHead = statement(`
	INSERT INTO sessions (tenant, ` + headColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
	ON CONFLICT (tenant, id) DO UPDATE SET version = excluded.version, event_count = excluded.event_count,
	  last_user_at = excluded.last_user_at, state = excluded.state, usage = excluded.usage,
	  pending = excluded.pending, updated_at = excluded.updated_at`)

var insertSlice = statement(`
	INSERT INTO slices (tenant, session_id, first_idx, count, invocation_id, data, created_at)
	VALUES (?, ?, ?, ?, ?, ?, ?)`)

var upsertTurn = statement(`
	INSERT INTO turns (` + turnColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
	ON CONFLICT (tenant, invocation_id) DO UPDATE SET session_id = excluded.session_id, agent = excluded.agent,
	  lane = excluded.lane, status = excluded.status, commit_status = excluded.commit_status,
	  version = excluded.version, attempt = excluded.attempt, failures = excluded.failures,
	  result = excluded.result, usage = excluded.usage, created_at = excluded.created_at,
	  started_at = excluded.started_at, finished_at = excluded.finished_at`)

var upsertScoped = statement(`
	INSERT INTO scoped_state (tenant, scope, scope_id, key, value) VALUES (?, ?, ?, ?, ?)
	ON CONFLICT (tenant, scope, scope_id, key) DO UPDATE SET value = excluded.value`)

var deleteScoped = statement(`
	DELETE FROM scoped_state WHERE tenant = ? AND scope = ? AND scope_id = ? AND key = ?`)

// apart writes one slice's rows, all or none. Rows that SQLite refuses for what
// they are (a constraint, a size) are this slice's fault alone; after any other
// error nothing is known of the transaction, so the whole of it fails.
func (t tx) apart(rows []write) error {
	if len(rows) == 0 {
		return nil
	}
	if _, err := t.exec(savepoint); err != nil {
		return err
	}
	err := t.all(rows)
	if c := code(err); c == sqlite3.SQLITE_CONSTRAINT || c == sqlite3.SQLITE_TOOBIG {
		if _, undo := t.exec(undoSavepoint); undo != nil {
			return errors.Join(err, undo)
		}
		err = ownError{err}
	}
	if _, done := t.exec(releaseSavepoint); done != nil {
		return errors.Join(err, done)
	}
	return err
}

var (
	savepoint        = statement(`SAVEPOINT slice`)
	undoSavepoint    = statement(`ROLLBACK TO slice`)
	releaseSavepoint = statement(`RELEASE slice`)
)

func (t tx) all(rows []write) error {
	for _, w := range rows {
		if _, err := t.exec(w.query, w.values...); err != nil {
			return err
		}
	}
	return nil
}
