package session

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
)

// Memory is a [Store] in the process's memory, for tests and for programs that
// need nothing to stay. Its zero value is not usable; see [NewMemory].
type Memory struct {
	mu         sync.RWMutex
	sessions   map[key]*memorySession
	tombstones map[key]int64
	turns      map[key]*Turn
	scoped     map[scopeKey]State
}

type key struct{ tenant, id string }

type scopeKey struct{ tenant, scope, id string }

// memorySession keeps the events in their wire form, so that nobody can change
// them and every text goes through the same encoding as on a disk.
type memorySession struct {
	head   *Head
	events [][]byte
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{
		sessions:   map[key]*memorySession{},
		tombstones: map[key]int64{},
		turns:      map[key]*Turn{},
		scoped:     map[scopeKey]State{},
	}
}

// Load implements [Store].
func (m *Memory) Load(ctx context.Context, q LoadQuery) (Loaded, error) {
	if err := ctx.Err(); err != nil {
		return Loaded{}, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	at := key{q.Tenant, q.SessionID}
	loaded := Loaded{DeletedAt: m.tombstones[at], Turn: m.turns[key{q.Tenant, q.InvocationID}].Clone()}
	if s := m.sessions[at]; s != nil {
		loaded.Head = s.head.Clone()
		for _, data := range q.cut(s.events) {
			e, err := Decode(data)
			if err != nil {
				return Loaded{}, err
			}
			loaded.Events = append(loaded.Events, e)
		}
	}
	for scope, id := range q.Bound(loaded.Head) {
		if loaded.Scoped == nil {
			loaded.Scoped = map[string]State{}
		}
		loaded.Scoped[scope] = m.scoped[scopeKey{q.Tenant, scope, id}].Clone()
	}
	return loaded, nil
}

func (q LoadQuery) cut(events [][]byte) [][]byte {
	if q.UpTo == 0 {
		return events
	}
	return events[:min(max(0, q.UpTo), int64(len(events)))]
}

// Commit implements [Store].
func (m *Memory) Commit(ctx context.Context, slices []*Slice) ([]Outcome, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	outcomes := make([]Outcome, len(slices))
	for i, s := range slices {
		outcome, err := m.commit(s)
		if err != nil {
			outcome = Outcome{Turn: s.Turn, Err: err}
		}
		outcomes[i] = outcome
	}
	return outcomes, nil
}

func (m *Memory) commit(s *Slice) (Outcome, error) {
	at := key{s.Turn.Tenant, s.Turn.SessionID}
	facts := Facts{DeletedAt: m.tombstones[at], Turn: m.turns[key{s.Turn.Tenant, s.Turn.InvocationID}]}
	if have := m.sessions[at]; have != nil {
		facts.Head = have.head
	}
	settled, err := Settle(facts, s)
	if err != nil {
		return Outcome{}, err
	}
	if err := m.append(at, settled); err != nil {
		return Outcome{}, err
	}
	if settled.WriteTurn {
		row := settled.Outcome.Turn.Clone()
		m.turns[key{row.Tenant, row.InvocationID}] = row
	}
	m.writeScoped(at.tenant, settled.Scoped)
	settled.Outcome.Head = settled.Outcome.Head.Clone()
	settled.Outcome.Turn = *settled.Outcome.Turn.Clone()
	return settled.Outcome, nil
}

func (m *Memory) append(at key, settled Settlement) error {
	if !settled.WriteHead {
		return nil
	}
	encoded := make([][]byte, len(settled.Append))
	for i, e := range settled.Append {
		data, err := Encode(e)
		if err != nil {
			return err
		}
		encoded[i] = data
	}
	have := m.sessions[at]
	if have == nil {
		have = &memorySession{}
		m.sessions[at] = have
	}
	have.head = settled.Outcome.Head
	have.events = append(have.events, encoded...)
	return nil
}

func (m *Memory) writeScoped(tenant string, writes []ScopedWrite) {
	for _, w := range writes {
		at := scopeKey{tenant, w.Scope, w.ScopeID}
		if m.scoped[at] == nil {
			m.scoped[at] = State{}
		}
		m.scoped[at].Apply([]Change{{Key: w.Key, NewValue: w.Value}})
	}
}

// Claim implements [Store].
func (m *Memory) Claim(ctx context.Context, turn Turn, was int) (Turn, bool, error) {
	if err := ctx.Err(); err != nil {
		return Turn{}, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at := key{turn.Tenant, turn.InvocationID}
	have := m.turns[at]
	stored := 0
	if have != nil {
		stored = have.Attempt
	}
	if have != nil && have.Status.Finished() || stored != was {
		if have == nil {
			return Turn{}, false, nil
		}
		return *have.Clone(), false, nil
	}
	turn.Status = StatusRunning
	m.turns[at] = turn.Clone()
	return turn, true, nil
}

// ClaimCalls implements [Store].
func (m *Memory) ClaimCalls(ctx context.Context, c CallClaim) (ClaimedCalls, error) {
	if err := ctx.Err(); err != nil {
		return ClaimedCalls{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	have := m.sessions[key{c.Tenant, c.SessionID}]
	if have == nil {
		_, got := c.Settle(nil)
		return got, nil
	}
	next, got := c.Settle(have.head)
	if next != nil {
		have.head = next
	}
	return got, nil
}

// Create implements [Store].
func (m *Memory) Create(ctx context.Context, n NewSession) (*Head, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at := key{n.Tenant, n.ID}
	if m.sessions[at] != nil {
		return nil, ErrExists
	}
	settled, err := n.Settle()
	if err != nil {
		return nil, err
	}
	if err := m.append(at, settled); err != nil {
		return nil, err
	}
	m.writeScoped(n.Tenant, settled.Scoped)
	return settled.Outcome.Head.Clone(), nil
}

// Delete implements [Store].
func (m *Memory) Delete(ctx context.Context, tenant, id string, deletedAt int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at := key{tenant, id}
	if m.sessions[at] == nil {
		return ErrNotFound
	}
	delete(m.sessions, at)
	m.tombstones[at] = max(m.tombstones[at], deletedAt)
	for _, t := range m.turns {
		if t.Tenant == tenant && t.SessionID == id {
			t.Result, t.Usage = nil, nil
		}
	}
	return nil
}

// Head implements [Store].
func (m *Memory) Head(ctx context.Context, tenant, id string) (*Head, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	s := m.sessions[key{tenant, id}]
	if s == nil {
		return nil, ErrNotFound
	}
	return s.head.Clone(), nil
}

// Sessions implements [Store].
func (m *Memory) Sessions(ctx context.Context, q PageQuery) ([]*Head, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	var heads []*Head
	for at, s := range m.sessions {
		if at.tenant == q.Tenant && q.includes(s.head.CreatedAt, s.head.ID) {
			heads = append(heads, s.head.Clone())
		}
	}
	return newest(heads, q.Limit, func(h *Head) (int64, string) { return h.CreatedAt, h.ID }), nil
}

// Events implements [Store].
func (m *Memory) Events(ctx context.Context, q EventsQuery) ([]IndexedEvent, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	s := m.sessions[key{q.Tenant, q.SessionID}]
	if s == nil {
		return nil, ErrNotFound
	}
	first, end := q.Range(int64(len(s.events)))
	page := make([]IndexedEvent, 0, max(0, end-first))
	for i := first; i < end; i++ {
		e, err := Decode(s.events[i])
		if err != nil {
			return nil, err
		}
		page = append(page, IndexedEvent{Index: i, Event: e})
	}
	if q.Desc {
		slices.Reverse(page)
	}
	return page, nil
}

// Range returns the indexes [first, end) of a ledger of count events that the
// page has.
func (q EventsQuery) Range(count int64) (first, end int64) {
	limit := int64(max(0, q.Limit))
	if !q.Desc {
		first = max(0, min(q.After, count-1)+1)
		return first, first + min(limit, count-first)
	}
	end = count
	if q.After >= 0 {
		end = min(count, q.After)
	}
	return max(0, end-limit), end
}

// Turn implements [Store].
func (m *Memory) Turn(ctx context.Context, tenant, invocationID string) (*Turn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	t := m.turns[key{tenant, invocationID}]
	if t == nil {
		return nil, ErrNotFound
	}
	return t.Clone(), nil
}

// Turns implements [Store].
func (m *Memory) Turns(ctx context.Context, sessionID string, q PageQuery) ([]*Turn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	var turns []*Turn
	for t := range maps.Values(m.turns) {
		if t.Tenant == q.Tenant && t.SessionID == sessionID && q.includes(t.CreatedAt, t.InvocationID) {
			turns = append(turns, t.Clone())
		}
	}
	return newest(turns, q.Limit, func(t *Turn) (int64, string) { return t.CreatedAt, t.InvocationID }), nil
}

// Ping implements [Store].
func (m *Memory) Ping(ctx context.Context) error { return ctx.Err() }

// Close implements [Store]. A memory store holds nothing that needs closing.
func (m *Memory) Close() error { return nil }

// includes reports whether an entry comes after the cursor in a list that has
// the newest first.
func (q PageQuery) includes(at int64, id string) bool {
	return q.ID == "" || at < q.At || at == q.At && id < q.ID
}

func newest[T any](list []T, limit int, order func(T) (int64, string)) []T {
	slices.SortFunc(list, func(a, b T) int {
		atA, idA := order(a)
		atB, idB := order(b)
		return cmp.Or(cmp.Compare(atB, atA), cmp.Compare(idB, idA))
	})
	return list[:min(max(0, limit), len(list))]
}
