package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// broker is a queue, a log, a control channel and a registry in memory. Any of
// its funcs, when set, goes before the real thing; an error of it is returned.
type broker struct {
	mu      sync.Mutex
	changed chan struct{} // closed and renewed at each change
	queued  map[string]*turn.Submission
	order   []string // of publishing
	taken   int
	logs    map[string]*turnLog
	holders map[string]context.CancelFunc
	known   []turn.AgentInfo
	trace   []string // what was called, in order
	removed []string
	cancels int
	letters []*turn.DeadLetter // the newest first
	keys    map[string]turn.KeyEntry

	onDead func() error
	onKey  func() error

	onPublish func(context.Context) error
	onWatch   func() error
	onFollow  func() error
	onState   func() error
	onLookup  func(id string) error
	onNext    func(ctx context.Context, id string) error
	onCheck   func(id string) error
	onFinish  func(context.Context) error
	onCancel  func(context.Context) error
	onNow     func() error
	onPing    func(context.Context) error
	onAgents  func()
}

type turnLog struct {
	frames  []turn.Frame
	state   turn.LogState
	dropped int64 // events up to this number are not kept any more
}

func newBroker() *broker {
	return &broker{
		changed: make(chan struct{}), queued: map[string]*turn.Submission{}, logs: map[string]*turnLog{},
		holders: map[string]context.CancelFunc{}, keys: map[string]turn.KeyEntry{},
		known: []turn.AgentInfo{
			{Name: "echo", Description: "Says it back", Pool: "default", LastSeenAt: now.UnixMilli() - 1000},
			{Name: "concierge", Pool: "desk", LastSeenAt: now.UnixMilli() - 3_600_000, Tools: []turn.ToolInfo{
				{Name: "lookup_stay"}, {Name: "ask_guest", InputSchema: json.RawMessage(`{"type":"object"}`)},
			}},
		},
	}
}

func (b *broker) change() { close(b.changed); b.changed = make(chan struct{}) }

func (b *broker) note(what string) { b.trace = append(b.trace, what) }

func (b *broker) log(id string) *turnLog {
	if b.logs[id] == nil {
		b.logs[id] = &turnLog{state: turn.LogState{NextSeq: 1}}
	}
	return b.logs[id]
}

// await blocks until the condition holds; it is called with the lock held.
func (b *broker) await(ctx context.Context, holds func() bool) error {
	for {
		b.mu.Lock()
		ok, changed := holds(), b.changed
		b.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *broker) Publish(ctx context.Context, s *turn.Submission) error {
	if b.onPublish != nil {
		if err := b.onPublish(ctx); err != nil {
			return err
		}
	}
	encoded, err := s.Encode()
	if err != nil {
		return err
	}
	stored, err := turn.DecodeSubmission(encoded)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note("publish")
	stored.StoredAt = now.UnixMilli()
	b.queued[s.InvocationID] = stored
	b.order = append(b.order, s.InvocationID)
	b.change()
	return nil
}

func (b *broker) Lookup(_ context.Context, _, id string) (*turn.Submission, error) {
	if b.onLookup != nil {
		if err := b.onLookup(id); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queued[id], nil
}

func (b *broker) Remove(_ context.Context, _, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.queued, id)
	b.removed = append(b.removed, id)
	b.change()
	return nil
}

func (b *broker) Now(context.Context) (int64, error) {
	if b.onNow != nil {
		if err := b.onNow(); err != nil {
			return 0, err
		}
	}
	return now.UnixMilli(), nil
}

func (b *broker) Ping(ctx context.Context) error {
	if b.onPing != nil {
		return b.onPing(ctx)
	}
	return nil
}

func (b *broker) Watch(_ context.Context, _, id string) (turn.LogReader, error) {
	if b.onWatch != nil {
		if err := b.onWatch(); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note("watch")
	return &reader{b: b, id: id}, nil
}

func (b *broker) Follow(_ context.Context, _, id string, after int64) (turn.LogReader, error) {
	if b.onFollow != nil {
		if err := b.onFollow(); err != nil {
			return nil, err
		}
	}
	return &reader{b: b, id: id, after: after}, nil
}

func (b *broker) State(_ context.Context, _, id string) (turn.LogState, error) {
	if b.onState != nil {
		if err := b.onState(); err != nil {
			return turn.LogState{}, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log(id).state, nil
}

func (b *broker) Finish(ctx context.Context, _, id string, r *turn.Result) error {
	if b.onFinish != nil {
		if err := b.onFinish(ctx); err != nil {
			return err
		}
	}
	data, err := turn.EncodeEvent(r)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note("finish")
	if log := b.log(id); !log.state.Finished {
		b.append(id, turn.TypeResult, data)
	}
	return nil
}

// append is called with the lock held.
func (b *broker) append(id, typeName string, data json.RawMessage) {
	log := b.log(id)
	log.frames = append(log.frames, turn.Frame{Seq: log.state.NextSeq, Type: typeName, Data: data})
	log.state.NextSeq++
	log.state.Sequence++
	log.state.Attempt = max(log.state.Attempt, 1)
	log.state.Finished = typeName == turn.TypeResult
	b.change()
}

// emit appends events to a turn's log.
func (b *broker) emit(t testing.TB, id string, events ...turn.Event) {
	t.Helper()
	for _, e := range events {
		data := mustEncode(t, e)
		b.mu.Lock()
		if !b.log(id).state.Finished {
			b.append(id, e.Type(), data)
		}
		b.mu.Unlock()
	}
}

// expire drops the events up to a number, or all, as the broker does with age.
func (b *broker) expire(id string, upTo int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	log := b.log(id)
	if upTo >= log.state.NextSeq-1 {
		b.logs[id] = nil
		return
	}
	log.dropped = upTo
}

func (b *broker) Cancel(ctx context.Context, id string) (bool, error) {
	if b.onCancel != nil {
		if err := b.onCancel(ctx); err != nil {
			return false, err
		}
	}
	b.mu.Lock()
	b.note("cancel")
	b.cancels++
	stop := b.holders[id]
	b.change()
	b.mu.Unlock()
	if stop == nil {
		<-ctx.Done()
		return false, nil
	}
	stop()
	return true, nil
}

func (b *broker) Agents() []turn.AgentInfo {
	if b.onAgents != nil {
		b.onAgents()
	}
	return b.known
}

func (b *broker) Agent(name string) (turn.AgentInfo, bool) {
	i := slices.IndexFunc(b.known, func(a turn.AgentInfo) bool { return a.Name == name })
	if i < 0 {
		return turn.AgentInfo{}, false
	}
	return b.known[i], true
}

func (b *broker) Any() bool { return len(b.known) > 0 }

// reader reads a log in memory.
type reader struct {
	b      *broker
	id     string
	after  int64
	ended  bool
	closed bool
}

func (r *reader) Next(ctx context.Context) ([]turn.Frame, error) {
	if r.b.onNext != nil {
		if err := r.b.onNext(ctx, r.id); err != nil {
			return nil, err
		}
	}
	var frames []turn.Frame
	var expired bool
	err := r.b.await(ctx, func() bool {
		log := r.b.log(r.id)
		expired = r.after < log.dropped
		for _, f := range log.frames {
			if f.Seq > r.after {
				frames = append(frames, f)
			}
		}
		r.ended = log.state.Finished
		return expired || len(frames) > 0 || r.ended
	})
	switch {
	case err != nil:
		return nil, err
	case expired:
		return nil, turn.ErrExpired
	case len(frames) == 0:
		return nil, io.EOF
	}
	r.after = frames[len(frames)-1].Seq
	return frames, nil
}

func (r *reader) Check(context.Context) error {
	if r.b.onCheck != nil {
		return r.b.onCheck(r.id)
	}
	return nil
}

func (r *reader) Close() {
	if !r.closed {
		r.closed = true
		r.b.mu.Lock()
		defer r.b.mu.Unlock()
		r.b.note("close")
		r.b.change()
	}
}

// take returns the next turn that was published, as a worker that receives it.
func (b *broker) take(t testing.TB) *turn.Submission {
	t.Helper()
	var sub *turn.Submission
	err := b.await(t.Context(), func() bool {
		if b.taken == len(b.order) {
			return false
		}
		sub = b.queued[b.order[b.taken]]
		b.taken++
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

// finish ends a turn as a worker does: commit, announce, ack.
func (h *harness) finish(sub *turn.Submission, status session.Status, change ...func(*turn.Result)) *turn.Result {
	h.t.Helper()
	r := h.commit(sub, status, change...)
	h.broker.emit(h.t, sub.InvocationID, r)
	h.ack(sub)
	return r
}

func (h *harness) ack(sub *turn.Submission) {
	h.broker.mu.Lock()
	defer h.broker.mu.Unlock()
	delete(h.broker.queued, sub.InvocationID)
}

// commit writes a turn's outcome, and returns the result that is then true.
func (h *harness) commit(sub *turn.Submission, status session.Status, change ...func(*turn.Result)) *turn.Result {
	h.t.Helper()
	ctx := h.t.Context()
	req, id := sub.Request, sub.InvocationID
	loaded, err := h.store.Load(ctx, session.LoadQuery{Tenant: sub.Tenant, SessionID: req.SessionID, InvocationID: id})
	if err != nil {
		h.t.Fatal(err)
	}
	base := session.EventBase{CreatedAt: sub.StoredAt, InvocationID: id, AgentName: req.Agent}
	text := ""
	if req.Input.Message != nil {
		text = req.Input.Message.Text
	}
	user := &session.User{EventBase: base, Text: text}
	user.ID = turn.UserEventID(id)
	said := &session.Assistant{EventBase: base, Text: "You said " + text}
	said.ID = "event_assistant"
	r := resultOf(session.Turn{
		SessionID: req.SessionID, InvocationID: id, Status: status, Agent: req.Agent, Lane: string(req.Lane),
		Attempt: 1, CreatedAt: sub.StoredAt, StartedAt: sub.StoredAt, FinishedAt: sub.StoredAt + 5,
	}, req.Metadata)
	if status.Commits() {
		r.Output = turn.Output{Text: said.Text, Items: session.Events{said}}
	}
	for _, f := range change {
		f(r)
	}
	outcomes, err := h.store.Commit(ctx, []*session.Slice{{
		Turn: session.Turn{
			Tenant: sub.Tenant, InvocationID: id, SessionID: req.SessionID, Agent: req.Agent, Lane: string(req.Lane),
			Status: status, Attempt: 1, CreatedAt: sub.StoredAt, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
		},
		Base: loaded.Head.Base(), Events: []session.Event{user, said},
		Result: func(o session.Outcome) (json.RawMessage, error) {
			r.CommitStatus, r.Version = o.Turn.CommitStatus, o.Turn.Version
			return encodeJSON(r)
		},
	}})
	if err == nil {
		err = outcomes[0].Err
	}
	if err != nil {
		h.t.Error(err)
		return r
	}
	if outcomes[0].Repeat {
		r = new(turn.Result)
		if err := json.Unmarshal(outcomes[0].Turn.Result, r); err != nil {
			h.t.Error(err)
		}
	}
	return r
}

// echo runs every turn that is published until the test ends: the message comes
// back in pieces of one letter.
func (h *harness) echo() {
	ctx, stop := context.WithCancel(h.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			var sub *turn.Submission
			err := h.broker.await(ctx, func() bool {
				if i == len(h.broker.order) {
					return false
				}
				sub = h.broker.queued[h.broker.order[i]]
				return true
			})
			if err != nil {
				return
			}
			if sub != nil {
				h.emitEcho(sub)
				h.finish(sub, session.StatusCompleted)
			}
		}
	}()
	h.t.Cleanup(func() { stop(); <-done })
}

func (h *harness) emitEcho(sub *turn.Submission) {
	base := session.EventBase{ID: "event_1", CreatedAt: sub.StoredAt, InvocationID: sub.InvocationID, AgentName: sub.Request.Agent}
	h.broker.emit(h.t, sub.InvocationID, &session.InvocationStart{EventBase: base, Kind: "message", SessionID: sub.Request.SessionID, Attempt: 1})
	for letter := range strings.SplitSeq(sub.Request.Input.Message.Text, "") {
		h.broker.emit(h.t, sub.InvocationID, &turn.Delta{Kind: turn.TypeAssistantDelta, MessageID: "event_assistant", Delta: letter})
	}
	said := &session.Assistant{EventBase: base, Text: sub.Request.Input.Message.Text}
	said.ID = "event_assistant"
	h.broker.emit(h.t, sub.InvocationID, said)
}

// store is a memory store that can be made to fail.
type store struct {
	session.Store
	mu       sync.Mutex
	fail     error
	onCommit func()
}

var errStore = errors.New("dial tcp 10.0.0.7:5432: connection refused")

func (s *store) break_(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

func (s *store) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fail
}

func (s *store) Turn(ctx context.Context, tenant, id string) (*session.Turn, error) {
	if err := s.err(); err != nil {
		return nil, err
	}
	return s.Store.Turn(ctx, tenant, id)
}

func (s *store) Commit(ctx context.Context, slices []*session.Slice) ([]session.Outcome, error) {
	if s.onCommit != nil {
		s.onCommit()
	}
	if err := s.err(); err != nil {
		return nil, err
	}
	return s.Store.Commit(ctx, slices)
}

func (s *store) Head(ctx context.Context, tenant, id string) (*session.Head, error) {
	if err := s.err(); err != nil {
		return nil, err
	}
	return s.Store.Head(ctx, tenant, id)
}

func (s *store) Ping(ctx context.Context) error {
	if err := s.err(); err != nil {
		return err
	}
	return s.Store.Ping(ctx)
}

func (b *broker) DeadLetters(_ context.Context, tenant string, cursor uint64, limit int) ([]*turn.DeadLetter, uint64, error) {
	if b.onDead != nil {
		return nil, 0, b.onDead()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []*turn.DeadLetter
	for i := int(cursor); i < len(b.letters); i++ {
		if len(found) == limit {
			return found, uint64(i), nil
		}
		if b.letters[i].Submission.Tenant == tenant {
			found = append(found, b.letters[i])
		}
	}
	return found, 0, nil
}

func (b *broker) DeadLetter(_ context.Context, tenant, id string) (*turn.DeadLetter, error) {
	if b.onDead != nil {
		return nil, b.onDead()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, letter := range b.letters {
		if letter.Submission.Tenant == tenant && letter.Submission.InvocationID == id {
			return letter, nil
		}
	}
	return nil, nil
}

func (b *broker) DropDeadLetter(_ context.Context, tenant, id string) (bool, error) {
	if b.onDead != nil {
		return false, b.onDead()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	before := len(b.letters)
	b.letters = slices.DeleteFunc(b.letters, func(l *turn.DeadLetter) bool {
		return l.Submission.Tenant == tenant && l.Submission.InvocationID == id
	})
	b.change()
	return len(b.letters) < before, nil
}

func (b *broker) ClaimKey(_ context.Context, tenant, key string, e turn.KeyEntry) (turn.KeyEntry, bool, error) {
	if b.onKey != nil {
		return turn.KeyEntry{}, false, b.onKey()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if have, ok := b.keys[tenant+"."+key]; ok {
		return have, false, nil
	}
	b.keys[tenant+"."+key] = e
	return e, true, nil
}

func (b *broker) ReleaseKey(_ context.Context, tenant, key string, e turn.KeyEntry) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.keys[tenant+"."+key] == e {
		delete(b.keys, tenant+"."+key)
	}
	return nil
}
