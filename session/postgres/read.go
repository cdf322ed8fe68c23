package postgres

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/turnpool/turnpool/session"
)

// Load implements [session.Store]. It takes one round trip, and one more if the
// session is bound to shared scopes.
func (s *Store) Load(ctx context.Context, q session.LoadQuery) (session.Loaded, error) {
	loaded, err := s.load(ctx, q, nil)
	for err == nil {
		bound := q.Bound(loaded.Head)
		if maps.Equal(bound, loadedScopes(loaded, bound)) {
			return loaded, nil
		}
		loaded, err = s.load(ctx, q, bound)
	}
	return session.Loaded{}, wrap(err, "load session %s", q.SessionID)
}

// loadedScopes returns the bound scopes whose state is there.
func loadedScopes(loaded session.Loaded, bound map[string]string) map[string]string {
	have := maps.Clone(bound)
	maps.DeleteFunc(have, func(scope, _ string) bool { return loaded.Scoped[scope] == nil })
	return have
}

// load reads everything at one point in time, with the state of the given scopes.
func (s *Store) load(ctx context.Context, q session.LoadQuery, scopes map[string]string) (session.Loaded, error) {
	var loaded session.Loaded
	end := int64(math.MaxInt64)
	if q.UpTo != 0 {
		end = max(0, q.UpTo)
	}
	err := s.read(ctx, func(read *pgx.Batch) {
		loaded = session.Loaded{}
		queueHead(read, q.Tenant, q.SessionID, &loaded.Head)
		queueTurn(read, q.Tenant, q.InvocationID, &loaded.Turn)
		read.Queue(`SELECT deleted_at FROM tombstones WHERE tenant = $1 AND session_id = $2`,
			q.Tenant, q.SessionID).Query(each(func(r pgx.Rows) error { return r.Scan(&loaded.DeletedAt) }))
		queueLedger(read, q.Tenant, q.SessionID, 0, end, func(_ int64, e session.Event) {
			loaded.Events = append(loaded.Events, e)
		})
		if len(scopes) > 0 {
			loaded.Scoped = map[string]session.State{}
			queueScoped(read, q.Tenant, scopes, loaded.Scoped)
		}
	})
	return loaded, err
}

// queueLedger reads the events of the indexes [first, end), in order. The first
// slice wanted is the last one that begins at or before first.
func queueLedger(read *pgx.Batch, tenant, sessionID string, first, end int64, hand func(int64, session.Event)) {
	read.Queue(`
		SELECT first_idx, data FROM slices
		WHERE tenant = $1 AND session_id = $2 AND first_idx < $4 AND first_idx >= (
		  SELECT max(first_idx) FROM slices WHERE tenant = $1 AND session_id = $2 AND first_idx <= $3)
		ORDER BY first_idx`, tenant, sessionID, first, end).Query(each(func(r pgx.Rows) error {
		var begin int64
		var data []byte
		if err := r.Scan(&begin, &data); err != nil {
			return err
		}
		events, err := session.DecodeAll(data)
		if err != nil {
			return err
		}
		for i, e := range events {
			if at := begin + int64(i); first <= at && at < end {
				hand(at, e)
			}
		}
		return nil
	}))
}

// queueScoped reads the state of scopes, by scope and id, into the states.
func queueScoped(read *pgx.Batch, tenant string, scopes map[string]string, into map[string]session.State) {
	var names, ids []string
	for scope, id := range scopes {
		names, ids = append(names, escapeName.Replace(scope)), append(ids, escapeName.Replace(id))
		into[scope] = session.State{}
	}
	read.Queue(`
		SELECT scope, key, value FROM scoped_state WHERE tenant = $1 AND (scope, scope_id) IN
		  (SELECT * FROM unnest($2::text[], $3::text[]))`, tenant, names, ids).Query(each(func(r pgx.Rows) error {
		var scope, key string
		var value []byte
		err := r.Scan(&scope, &key, &value)
		if err == nil {
			into[unescapeName.Replace(scope)][unescapeName.Replace(key)] = json.RawMessage(value)
		}
		return err
	}))
}

func queueHead(read *pgx.Batch, tenant, id string, into **session.Head) {
	read.Queue(`SELECT `+headColumns+` FROM sessions WHERE tenant = $1 AND id = $2`, tenant, id).
		Query(each(func(r pgx.Rows) (err error) {
			*into, err = scanHead(r)
			return err
		}))
}

func queueTurn(read *pgx.Batch, tenant, invocationID string, into **session.Turn) {
	read.Queue(`SELECT `+turnColumns+` FROM turns WHERE tenant = $1 AND invocation_id = $2`, tenant, invocationID).
		Query(each(func(r pgx.Rows) (err error) {
			*into, err = scanTurn(r)
			return err
		}))
}

// Head implements [session.Store].
func (s *Store) Head(ctx context.Context, tenant, id string) (*session.Head, error) {
	var head *session.Head
	err := s.read(ctx, func(read *pgx.Batch) { queueHead(read, tenant, id, &head) })
	if err == nil && head == nil {
		err = session.ErrNotFound
	}
	return head, wrap(err, "head of session %s", id)
}

// Events implements [session.Store]. The page is known once the session's length
// is, so it takes two round trips; a ledger only grows, and a session that was
// deleted in between has none.
func (s *Store) Events(ctx context.Context, q session.EventsQuery) ([]session.IndexedEvent, error) {
	head, err := s.Head(ctx, q.Tenant, q.SessionID)
	if err != nil {
		return nil, err
	}
	first, end := q.Range(head.EventCount)
	page := []session.IndexedEvent{}
	if first >= end {
		return page, nil
	}
	var now *session.Head
	err = s.read(ctx, func(read *pgx.Batch) {
		page = page[:0]
		queueHead(read, q.Tenant, q.SessionID, &now)
		queueLedger(read, q.Tenant, q.SessionID, first, end, func(at int64, e session.Event) {
			page = append(page, session.IndexedEvent{Index: at, Event: e})
		})
	})
	if err == nil && (now == nil || now.Epoch != head.Epoch) {
		err = session.ErrNotFound
	}
	if err != nil {
		return nil, wrap(err, "events of session %s", q.SessionID)
	}
	if q.Desc {
		slices.Reverse(page)
	}
	return page, nil
}

// Sessions implements [session.Store].
func (s *Store) Sessions(ctx context.Context, q session.PageQuery) ([]*session.Head, error) {
	var heads []*session.Head
	err := s.read(ctx, func(read *pgx.Batch) {
		heads = nil
		at, id, limit := cursor(q)
		read.Queue(`SELECT `+headColumns+` FROM sessions WHERE tenant = $1 AND (created_at, id) < ($2, $3)
			ORDER BY created_at DESC, id DESC LIMIT $4`, q.Tenant, at, id, limit).
			Query(each(func(r pgx.Rows) error {
				head, err := scanHead(r)
				heads = append(heads, head)
				return err
			}))
	})
	if err != nil {
		return nil, wrap(err, "list sessions")
	}
	return heads, nil
}

// Turn implements [session.Store].
func (s *Store) Turn(ctx context.Context, tenant, invocationID string) (*session.Turn, error) {
	var turn *session.Turn
	err := s.read(ctx, func(read *pgx.Batch) { queueTurn(read, tenant, invocationID, &turn) })
	if err == nil && turn == nil {
		err = session.ErrNotFound
	}
	return turn, wrap(err, "turn %s", invocationID)
}

// Turns implements [session.Store].
func (s *Store) Turns(ctx context.Context, sessionID string, q session.PageQuery) ([]*session.Turn, error) {
	var turns []*session.Turn
	err := s.read(ctx, func(read *pgx.Batch) {
		turns = nil
		at, id, limit := cursor(q)
		read.Queue(`SELECT `+turnColumns+` FROM turns WHERE tenant = $1 AND session_id = $2 AND (created_at, invocation_id) < ($3, $4)
			ORDER BY created_at DESC, invocation_id DESC LIMIT $5`, q.Tenant, sessionID, at, id, limit).
			Query(each(func(r pgx.Rows) error {
				turn, err := scanTurn(r)
				turns = append(turns, turn)
				return err
			}))
	})
	if err != nil {
		return nil, wrap(err, "list turns of session %s", sessionID)
	}
	return turns, nil
}

// cursor returns the entry that a page comes after, which for the first page is
// later than every time.
func cursor(q session.PageQuery) (at int64, id string, limit int) {
	if q.ID == "" {
		return math.MaxInt64, "", max(0, q.Limit)
	}
	return q.At, q.ID, max(0, q.Limit)
}
