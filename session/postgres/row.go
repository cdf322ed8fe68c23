package postgres

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/turnpool/turnpool/session"
)

const headColumns = `id, epoch, version, event_count, last_user_at, state, scopes, usage, pending, created_at, updated_at`

// scanHead reads headColumns, after the columns of before.
func scanHead(r pgx.Row, before ...any) (*session.Head, error) {
	var h session.Head
	var state, scopes, usage, pending []byte
	err := r.Scan(append(before, &h.ID, &h.Epoch, &h.Version, &h.EventCount, &h.LastUserAt,
		&state, &scopes, &usage, &pending, &h.CreatedAt, &h.UpdatedAt)...)
	if err == nil {
		err = errors.Join(fromJSON(state, &h.State), fromJSON(scopes, &h.Scopes), fromJSON(usage, &h.Usage), fromJSON(pending, &h.Pending))
	}
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	return &h, nil
}

const turnColumns = `tenant, invocation_id, session_id, agent, lane, status, commit_status, version,
	attempt, failures, result, usage, created_at, started_at, finished_at`

func scanTurn(r pgx.Row) (*session.Turn, error) {
	var t session.Turn
	var result, usage []byte
	err := r.Scan(&t.Tenant, &t.InvocationID, &t.SessionID, &t.Agent, &t.Lane, &t.Status, &t.CommitStatus, &t.Version,
		&t.Attempt, &t.Failures, &result, &usage, &t.CreatedAt, &t.StartedAt, &t.FinishedAt)
	if err == nil {
		t.Result = result
		err = fromJSON(usage, &t.Usage)
	}
	if err != nil {
		return nil, fmt.Errorf("turn: %w", err)
	}
	return &t, nil
}

// fromJSON reads a column of JSON. NULL leaves the value alone.
func fromJSON(column []byte, into any) error {
	if column == nil {
		return nil
	}
	if err := json.Unmarshal(column, into); err != nil {
		return ownError{err}
	}
	return nil
}

// toJSON returns a column of JSON text, NULL for an absent value.
func toJSON(v any, absent bool) (*string, error) {
	if absent {
		return nil, nil
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, ownError{err}
	}
	text := strings.TrimSuffix(buf.String(), "\n")
	return &text, nil
}

// Names of scoped state may hold a NUL, which text may not.
var (
	escapeName   = strings.NewReplacer(`\`, `\\`, "\x00", `\0`)
	unescapeName = strings.NewReplacer(`\\`, `\`, `\0`, "\x00")
)
