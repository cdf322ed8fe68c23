package sqlite

import (
	"context"
	"encoding/json"
	"math"
	"slices"

	"github.com/turnpool/turnpool/session"
)

// Load implements [session.Store].
func (s *Store) Load(ctx context.Context, q session.LoadQuery) (session.Loaded, error) {
	var loaded session.Loaded
	err := s.read(ctx, func(t tx) (err error) {
		loaded, err = t.load(q)
		return err
	})
	if err != nil {
		return session.Loaded{}, wrap(err, "load session %s", q.SessionID)
	}
	return loaded, nil
}

func (t tx) load(q session.LoadQuery) (session.Loaded, error) {
	facts, err := t.facts(q.Tenant, q.SessionID, q.InvocationID)
	if err != nil {
		return session.Loaded{}, err
	}
	loaded := session.Loaded{Head: facts.Head, Turn: facts.Turn, DeletedAt: facts.DeletedAt}
	count := facts.Head.Base().EventCount
	if q.UpTo != 0 {
		count = min(count, max(0, q.UpTo))
	}
	err = t.ledger(q.Tenant, q.SessionID, 0, count, func(_ int64, e session.Event) {
		loaded.Events = append(loaded.Events, e)
	})
	if err != nil {
		return session.Loaded{}, err
	}
	loaded.Scoped, err = t.scoped(q.Tenant, q.Bound(facts.Head))
	return loaded, err
}

// ledger hands out the events of the indexes [first, end), in order.
func (t tx) ledger(tenant, sessionID string, first, end int64, hand func(int64, session.Event)) error {
	if first >= end {
		return nil
	}
	return t.each(func(r row) error {
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
	}, selectSlices, tenant, sessionID, first, end)
}

// The first slice wanted is the last one that begins at or before ?3.
var selectSlices = statement(`
	SELECT first_idx, data FROM slices
	WHERE tenant = ?1 AND session_id = ?2 AND first_idx < ?4 AND first_idx >= (
	  SELECT max(first_idx) FROM slices WHERE tenant = ?1 AND session_id = ?2 AND first_idx <= ?3)
	ORDER BY first_idx`)

func (t tx) scoped(tenant string, scopes map[string]string) (map[string]session.State, error) {
	if len(scopes) == 0 {
		return nil, nil
	}
	states := map[string]session.State{}
	for scope, id := range scopes {
		state := session.State{}
		states[scope] = state
		err := t.each(func(r row) error {
			var key string
			var value []byte
			err := r.Scan(&key, &value)
			state[key] = json.RawMessage(value)
			return err
		}, selectScoped, tenant, scope, id)
		if err != nil {
			return nil, err
		}
	}
	return states, nil
}

var selectScoped = statement(`SELECT key, value FROM scoped_state WHERE tenant = ? AND scope = ? AND scope_id = ?`)

// Head implements [session.Store].
func (s *Store) Head(ctx context.Context, tenant, id string) (*session.Head, error) {
	var head *session.Head
	err := s.read(ctx, func(t tx) (err error) {
		head, err = required(scanHead(t.row(selectHead, tenant, id)))
		return err
	})
	return head, wrap(err, "head of session %s", id)
}

var selectHead = statement(`SELECT ` + headColumns + ` FROM sessions WHERE tenant = ? AND id = ?`)

// Events implements [session.Store].
func (s *Store) Events(ctx context.Context, q session.EventsQuery) ([]session.IndexedEvent, error) {
	page := []session.IndexedEvent{}
	err := s.read(ctx, func(t tx) error {
		head, err := required(scanHead(t.row(selectHead, q.Tenant, q.SessionID)))
		if err != nil {
			return err
		}
		first, end := q.Range(head.EventCount)
		return t.ledger(q.Tenant, q.SessionID, first, end, func(at int64, e session.Event) {
			page = append(page, session.IndexedEvent{Index: at, Event: e})
		})
	})
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
	err := s.read(ctx, func(t tx) error {
		at, id, limit := cursor(q)
		return t.each(func(r row) error {
			head, err := scanHead(r)
			heads = append(heads, head)
			return err
		}, selectSessions, q.Tenant, at, id, limit)
	})
	if err != nil {
		return nil, wrap(err, "list sessions")
	}
	return heads, nil
}

var selectSessions = statement(`
	SELECT ` + headColumns + ` FROM sessions WHERE tenant = ? AND (created_at, id) < (?, ?)
	ORDER BY created_at DESC, id DESC LIMIT ?`)

// Turn implements [session.Store].
func (s *Store) Turn(ctx context.Context, tenant, invocationID string) (*session.Turn, error) {
	var turn *session.Turn
	err := s.read(ctx, func(t tx) (err error) {
		turn, err = required(scanTurn(t.row(selectTurn, tenant, invocationID)))
		return err
	})
	return turn, wrap(err, "turn %s", invocationID)
}

var selectTurn = statement(`SELECT ` + turnColumns + ` FROM turns WHERE tenant = ? AND invocation_id = ?`)

// Turns implements [session.Store].
func (s *Store) Turns(ctx context.Context, sessionID string, q session.PageQuery) ([]*session.Turn, error) {
	var turns []*session.Turn
	err := s.read(ctx, func(t tx) error {
		at, id, limit := cursor(q)
		return t.each(func(r row) error {
			turn, err := scanTurn(r)
			turns = append(turns, turn)
			return err
		}, selectTurns, q.Tenant, sessionID, at, id, limit)
	})
	if err != nil {
		return nil, wrap(err, "list turns of session %s", sessionID)
	}
	return turns, nil
}

var selectTurns = statement(`
	SELECT ` + turnColumns + ` FROM turns WHERE tenant = ? AND session_id = ? AND (created_at, invocation_id) < (?, ?)
	ORDER BY created_at DESC, invocation_id DESC LIMIT ?`)

// cursor returns the entry that a page comes after, which for the first page is
// later than every time.
func cursor(q session.PageQuery) (at int64, id string, limit int) {
	if q.ID == "" {
		return math.MaxInt64, "", max(0, q.Limit)
	}
	return q.At, q.ID, max(0, q.Limit)
}
