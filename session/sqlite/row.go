package sqlite

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/turnpool/turnpool/session"
)

// row is a *sql.Row or *sql.Rows.
type row interface{ Scan(dest ...any) error }

// ownError is the fault of one slice or of the rows that it reads, not of the
// database: others can go on.
type ownError struct{ error }

func (e ownError) Unwrap() error { return e.error }

const headColumns = `id, epoch, version, event_count, last_user_at, state, scopes, usage, pending, created_at, updated_at`

func scanHead(r row) (*session.Head, error) {
	var h session.Head
	err := r.Scan(&h.ID, &h.Epoch, &h.Version, &h.EventCount, &h.LastUserAt, fromJSON{&h.State},
		fromJSON{&h.Scopes}, fromJSON{&h.Usage}, fromJSON{&h.Pending}, &h.CreatedAt, &h.UpdatedAt)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	return &h, nil
}

// headValues are the tenant and then the values of headColumns.
func headValues(tenant string, h *session.Head) ([]any, error) {
	state, errState := toJSON(h.State, false)
	scopes, errScopes := toJSON(h.Scopes, len(h.Scopes) == 0)
	usage, errUsage := toJSON(h.Usage, h.Usage == nil)
	pending, errPending := toJSON(h.Pending, len(h.Pending) == 0)
	if err := errors.Join(errState, errScopes, errUsage, errPending); err != nil {
		return nil, fmt.Errorf("encode session: %w", err)
	}
	return []any{tenant, h.ID, h.Epoch, h.Version, h.EventCount, h.LastUserAt, state,
		scopes, usage, pending, h.CreatedAt, h.UpdatedAt}, nil
}

const turnColumns = `tenant, invocation_id, session_id, agent, lane, status, commit_status, version,
	attempt, failures, result, usage, created_at, started_at, finished_at`

func scanTurn(r row) (*session.Turn, error) {
	var t session.Turn
	err := r.Scan(&t.Tenant, &t.InvocationID, &t.SessionID, &t.Agent, &t.Lane, &t.Status, &t.CommitStatus, &t.Version,
		&t.Attempt, &t.Failures, (*[]byte)(&t.Result), fromJSON{&t.Usage}, &t.CreatedAt, &t.StartedAt, &t.FinishedAt)
	if err != nil {
		return nil, fmt.Errorf("turn: %w", err)
	}
	return &t, nil
}

// turnValues are the values of turnColumns.
func turnValues(t session.Turn) ([]any, error) {
	usage, err := toJSON(t.Usage, t.Usage == nil)
	if err != nil {
		return nil, fmt.Errorf("encode turn: %w", err)
	}
	result := sql.NullString{String: string(t.Result), Valid: t.Result != nil}
	return []any{t.Tenant, t.InvocationID, t.SessionID, t.Agent, t.Lane, t.Status, t.CommitStatus, t.Version,
		t.Attempt, t.Failures, result, usage, t.CreatedAt, t.StartedAt, t.FinishedAt}, nil
}

// optional turns the absence of a row into nil.
func optional[T any](v *T, err error) (*T, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return v, err
}

// required turns the absence of a row into [session.ErrNotFound].
func required[T any](v *T, err error) (*T, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return nil, session.ErrNotFound
	}
	return v, err
}

// fromJSON scans a column of JSON text. NULL leaves the value alone.
type fromJSON struct{ into any }

// Scan implements [sql.Scanner].
func (f fromJSON) Scan(column any) error {
	if column == nil {
		return nil
	}
	text, ok := column.(string)
	if !ok {
		return ownError{fmt.Errorf("%T is no JSON text", column)}
	}
	if err := json.Unmarshal([]byte(text), f.into); err != nil {
		return ownError{err}
	}
	return nil
}

// toJSON returns a column of JSON text, NULL for an absent value.
func toJSON(v any, absent bool) (sql.NullString, error) {
	if absent {
		return sql.NullString{}, nil
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return sql.NullString{String: string(bytes.TrimRight(buf.Bytes(), "\n")), Valid: true}, err
}
