package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/turnpool/turnpool/session"
)

// Commit implements [session.Store]. A slice that the database refuses is found
// by halving: each half is a transaction of its own then.
func (s *Store) Commit(ctx context.Context, batch []*session.Slice) ([]session.Outcome, error) {
	if len(batch) == 0 {
		return nil, ctx.Err()
	}
	outcomes, err := s.commit(ctx, batch)
	switch {
	case err == nil:
		return outcomes, nil
	case !own(err):
		return nil, wrap(err, "commit of %d slices", len(batch))
	case len(batch) == 1:
		turn := batch[0].Turn
		return []session.Outcome{{Turn: turn, Err: wrap(err, "commit %s", turn.InvocationID)}}, nil
	}
	half := len(batch) / 2
	first, err := s.Commit(ctx, batch[:half])
	if err != nil {
		return nil, err
	}
	// The first half stands: its fate must be told, so this one is not cut.
	second, err := s.Commit(context.WithoutCancel(ctx), batch[half:])
	return append(first, second...), err
}

// commit settles a batch in one transaction, all or none, except for the slices
// that are found to be bad before anything is written.
func (s *Store) commit(ctx context.Context, batch []*session.Slice) ([]session.Outcome, error) {
	var outcomes []session.Outcome
	var known *known
	err := s.write(ctx, locksOf(batch),
		func(read *pgx.Batch) {
			known = newKnown()
			known.read(read, batch)
		},
		func(write *pgx.Batch) error {
			rows := newRows()
			outcomes = make([]session.Outcome, len(batch))
			for i, slice := range batch {
				outcome, err := known.settle(slice, rows)
				if err != nil {
					outcome = session.Outcome{Turn: slice.Turn, Err: wrap(err, "commit %s", slice.Turn.InvocationID)}
				}
				outcomes[i] = outcome
			}
			return rows.queue(write)
		})
	return outcomes, err
}

func locksOf(batch []*session.Slice) locks {
	var l locks
	for _, slice := range batch {
		t := slice.Turn
		l.session(t.Tenant, t.SessionID)
		l.turn(t.Tenant, t.InvocationID)
		for _, writes := range [][]session.ScopedWrite{slice.Scoped, slice.InitialScoped} {
			for _, w := range writes {
				l.scope(t.Tenant, w.Scope, w.ScopeID)
			}
		}
	}
	return l
}

// key is a session or a turn of a tenant.
type key struct{ tenant, id string }

// known is what the database has of a batch's sessions and turns, and what the
// batch has made of it so far.
type known struct {
	heads   map[key]*session.Head
	turns   map[key]*session.Turn
	deleted map[key]int64
}

func newKnown() *known {
	return &known{map[key]*session.Head{}, map[key]*session.Turn{}, map[key]int64{}}
}

// keys are keys as two columns.
type keys struct{ tenants, ids []string }

func (k *keys) add(tenant, id string) {
	k.tenants = append(k.tenants, tenant)
	k.ids = append(k.ids, id)
}

func (k *known) read(read *pgx.Batch, batch []*session.Slice) {
	var sessions, turns keys
	for _, slice := range batch {
		sessions.add(slice.Turn.Tenant, slice.Turn.SessionID)
		turns.add(slice.Turn.Tenant, slice.Turn.InvocationID)
	}
	read.Queue(`SELECT tenant, `+headColumns+` FROM sessions WHERE (tenant, id) IN (SELECT * FROM unnest($1::text[], $2::text[]))`,
		sessions.tenants, sessions.ids).Query(each(func(r pgx.Rows) error {
		var tenant string
		head, err := scanHead(r, &tenant)
		if err == nil {
			k.heads[key{tenant, head.ID}] = head
		}
		return err
	}))
	read.Queue(`SELECT `+turnColumns+` FROM turns WHERE (tenant, invocation_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))`,
		turns.tenants, turns.ids).Query(each(func(r pgx.Rows) error {
		turn, err := scanTurn(r)
		if err == nil {
			k.turns[key{turn.Tenant, turn.InvocationID}] = turn
		}
		return err
	}))
	read.Queue(`SELECT tenant, session_id, deleted_at FROM tombstones WHERE (tenant, session_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))`,
		sessions.tenants, sessions.ids).Query(each(func(r pgx.Rows) error {
		var at key
		var deletedAt int64
		err := r.Scan(&at.tenant, &at.id, &deletedAt)
		k.deleted[at] = deletedAt
		return err
	}))
}

// each makes a handler of all rows of one of a row.
func each(scan func(pgx.Rows) error) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

// settle decides one slice on what is known, adds its rows, and what it changes to
// what is known. An error leaves both alone.
func (k *known) settle(slice *session.Slice, rows *rows) (session.Outcome, error) {
	t := slice.Turn
	ofSession, ofTurn := key{t.Tenant, t.SessionID}, key{t.Tenant, t.InvocationID}
	settled, err := session.Settle(session.Facts{
		Head: k.heads[ofSession], Turn: k.turns[ofTurn], DeletedAt: k.deleted[ofSession],
	}, slice)
	if err != nil {
		return session.Outcome{}, err
	}
	if err := rows.add(t.Tenant, settled); err != nil {
		return session.Outcome{}, err
	}
	out := settled.Outcome
	if settled.WriteHead {
		k.heads[ofSession] = out.Head
	}
	if settled.WriteTurn {
		k.turns[ofTurn] = out.Turn.Clone()
	}
	out.Head = out.Head.Clone() // the next slice of the session has the other
	out.Turn = *out.Turn.Clone()
	return out, nil
}

// rows is what a transaction writes: of each session, turn and scoped value the
// last state only.
type rows struct {
	heads  map[key]*session.Head
	turns  map[key]session.Turn
	slices []sliceRow
	scoped map[scopedKey]json.RawMessage // nil deletes
}

type sliceRow struct {
	tenant, sessionID, invocationID, data string
	first, count, createdAt               int64
}

type scopedKey struct{ tenant, scope, id, key string }

func newRows() *rows {
	return &rows{heads: map[key]*session.Head{}, turns: map[key]session.Turn{}, scoped: map[scopedKey]json.RawMessage{}}
}

// add adds what a settlement writes. Events that cannot be encoded fail it whole.
func (r *rows) add(tenant string, settled session.Settlement) error {
	head, turn := settled.Outcome.Head, settled.Outcome.Turn
	if len(settled.Append) > 0 {
		data, err := session.EncodeAll(settled.Append)
		if err != nil {
			return err
		}
		r.slices = append(r.slices, sliceRow{
			tenant: tenant, sessionID: head.ID, invocationID: turn.InvocationID, data: string(data),
			first: settled.Outcome.FirstIndex, count: int64(len(settled.Append)), createdAt: head.UpdatedAt,
		})
	}
	if settled.WriteHead {
		r.heads[key{tenant, head.ID}] = head
	}
	if settled.WriteTurn {
		r.turns[key{tenant, turn.InvocationID}] = turn
	}
	for _, w := range settled.Scoped {
		at := scopedKey{tenant, escapeName.Replace(w.Scope), escapeName.Replace(w.ScopeID), escapeName.Replace(w.Key)}
		r.scoped[at] = nil
		if len(w.Value) > 0 {
			r.scoped[at] = w.Value
		}
	}
	return nil
}

// queue queues one statement a table.
func (r *rows) queue(write *pgx.Batch) error {
	if err := r.queueHeads(write); err != nil {
		return err
	}
	if err := r.queueTurns(write); err != nil {
		return err
	}
	r.queueSlices(write)
	r.queueScoped(write)
	return nil
}

// A session's epoch, scopes and creation are set once.
func (r *rows) queueHeads(write *pgx.Batch) error {
	if len(r.heads) == 0 {
		return nil
	}
	var k keys
	var epochs []string
	var versions, counts, users, created, updated []int64
	var states, scopes, usages, pendings []*string
	for at, h := range r.heads {
		columns := make([]*string, 4)
		for i, c := range []struct {
			value  any
			absent bool
		}{{h.State, false}, {h.Scopes, len(h.Scopes) == 0}, {h.Usage, h.Usage == nil}, {h.Pending, len(h.Pending) == 0}} {
			var err error
			if columns[i], err = toJSON(c.value, c.absent); err != nil {
				return err
			}
		}
		k.add(at.tenant, at.id)
		epochs, versions, counts = append(epochs, h.Epoch), append(versions, h.Version), append(counts, h.EventCount)
		users, created, updated = append(users, h.LastUserAt), append(created, h.CreatedAt), append(updated, h.UpdatedAt)
		states, scopes = append(states, columns[0]), append(scopes, columns[1])
		usages, pendings = append(usages, columns[2]), append(pendings, columns[3])
	}
	write.Queue(`
		INSERT INTO sessions (tenant, `+headColumns+`)
		SELECT tenant, id, epoch, version, event_count, last_user_at,
		       state::json, scopes::json, usage::json, pending::json, created_at, updated_at
		FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[],
		            $7::text[], $8::text[], $9::text[], $10::text[], $11::bigint[], $12::bigint[])
		     AS new (tenant, `+headColumns+`)
		ON CONFLICT (tenant, id) DO UPDATE SET version = excluded.version, event_count = excluded.event_count,
		  last_user_at = excluded.last_user_at, state = excluded.state, usage = excluded.usage,
		  pending = excluded.pending, updated_at = excluded.updated_at`,
		k.tenants, k.ids, epochs, versions, counts, users, states, scopes, usages, pendings, created, updated)
	return nil
}

func (r *rows) queueSlices(write *pgx.Batch) {
	if len(r.slices) == 0 {
		return
	}
	var k keys
	var first, count, created []int64
	var invocations, data []string
	for _, s := range r.slices {
		k.add(s.tenant, s.sessionID)
		first, count, created = append(first, s.first), append(count, s.count), append(created, s.createdAt)
		invocations, data = append(invocations, s.invocationID), append(data, s.data)
	}
	write.Queue(`
		INSERT INTO slices (tenant, session_id, first_idx, count, invocation_id, data, created_at)
		SELECT tenant, session_id, first_idx, count, invocation_id, data::json, created_at
		FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::bigint[])
		     AS new (tenant, session_id, first_idx, count, invocation_id, data, created_at)`,
		k.tenants, k.ids, first, count, invocations, data, created)
}

func (r *rows) queueTurns(write *pgx.Batch) error {
	if len(r.turns) == 0 {
		return nil
	}
	var k keys
	var sessions, agents, lanes, statuses, commits []string
	var versions, attempts, failures, created, started, finished []int64
	var results, usages []*string
	for at, t := range r.turns {
		usage, err := toJSON(t.Usage, t.Usage == nil)
		if err != nil {
			return err
		}
		var result *string
		if t.Result != nil {
			text := string(t.Result)
			result = &text
		}
		k.add(at.tenant, at.id)
		sessions, agents, lanes = append(sessions, t.SessionID), append(agents, t.Agent), append(lanes, t.Lane)
		statuses, commits = append(statuses, string(t.Status)), append(commits, string(t.CommitStatus))
		versions, attempts, failures = append(versions, t.Version), append(attempts, int64(t.Attempt)), append(failures, int64(t.Failures))
		results, usages = append(results, result), append(usages, usage)
		created, started, finished = append(created, t.CreatedAt), append(started, t.StartedAt), append(finished, t.FinishedAt)
	}
	write.Queue(`
		INSERT INTO turns (`+turnColumns+`)
		SELECT tenant, invocation_id, session_id, agent, lane, status, commit_status, version,
		       attempt, failures, result::json, usage::json, created_at, started_at, finished_at
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[],
		            $9::bigint[], $10::bigint[], $11::text[], $12::text[], $13::bigint[], $14::bigint[], $15::bigint[])
		     AS new (`+turnColumns+`)
		ON CONFLICT (tenant, invocation_id) DO UPDATE SET session_id = excluded.session_id, agent = excluded.agent,
		  lane = excluded.lane, status = excluded.status, commit_status = excluded.commit_status,
		  version = excluded.version, attempt = excluded.attempt, failures = excluded.failures,
		  result = excluded.result, usage = excluded.usage, created_at = excluded.created_at,
		  started_at = excluded.started_at, finished_at = excluded.finished_at`,
		k.tenants, k.ids, sessions, agents, lanes, statuses, commits, versions,
		attempts, failures, results, usages, created, started, finished)
	return nil
}

func (r *rows) queueScoped(write *pgx.Batch) {
	var put, deleted struct{ tenants, scopes, ids, keys, values []string }
	for _, at := range slices.SortedFunc(maps.Keys(r.scoped), compareScoped) {
		into := &deleted
		value := r.scoped[at]
		if value != nil {
			into = &put
			into.values = append(into.values, string(value))
		}
		into.tenants, into.scopes = append(into.tenants, at.tenant), append(into.scopes, at.scope)
		into.ids, into.keys = append(into.ids, at.id), append(into.keys, at.key)
	}
	if len(put.keys) > 0 {
		write.Queue(`
			INSERT INTO scoped_state (tenant, scope, scope_id, key, value)
			SELECT tenant, scope, scope_id, key, value::json
			FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) AS new (tenant, scope, scope_id, key, value)
			ON CONFLICT (tenant, scope, scope_id, key) DO UPDATE SET value = excluded.value`,
			put.tenants, put.scopes, put.ids, put.keys, put.values)
	}
	if len(deleted.keys) > 0 {
		write.Queue(`
			DELETE FROM scoped_state WHERE (tenant, scope, scope_id, key) IN
			  (SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]))`,
			deleted.tenants, deleted.scopes, deleted.ids, deleted.keys)
	}
}

func compareScoped(a, b scopedKey) int {
	return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.scope, b.scope), cmp.Compare(a.id, b.id), cmp.Compare(a.key, b.key))
}
