package sessiontest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/turnpool/turnpool/session"
)

// Model drives a store through random histories: many turns on few sessions that
// load, commit, repeat, get cancelled and claimed in any order, while the
// sessions are deleted and created again. After every step the store must hold
// what the model of this file says. The model knows the whole past and decides
// from that, not from the facts that the rule reads.
//
// All histories share one store, each as a tenant of its own.
func Model(t *testing.T, open func(t *testing.T) session.Store) {
	watch(t)
	store := open(t)
	histories, failing, began := 0, false, time.Now()
	rapid.Check(t, func(rt *rapid.T) {
		if time.Since(began) > guard/3 && !failing {
			return // as many as there is time for; a failing one is shrunk to its end
		}
		failing, histories = true, histories+1
		w := &world{
			T: rt, ctx: t.Context(), store: store, tenant: fmt.Sprintf("tenant_%d", histories),
			clock: 100, past: map[string]*past{}, rows: map[string]*rowModel{}, scoped: map[string]string{},
		}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			w.step()
		}
		w.checkAll()
		failing = false
	})
}

// world is one history, and what it must have come to.
type world struct {
	*rapid.T
	ctx    context.Context
	store  session.Store
	tenant string
	clock  int64

	past   map[string]*past     // by session id
	rows   map[string]*rowModel // by invocation id
	scoped map[string]string    // by scope id: who wrote last
	runs   []*run
}

// past is what happened to the sessions of one id.
type past struct {
	alive     bool
	life      int // counts creations
	epochs    []string
	deletedAt int64
	version   int64
	ledger    []session.Event // of this life
}

// rowModel is what a turn's row must say.
type rowModel struct {
	finished, scrubbed bool
	status             session.Status
	commit             session.CommitStatus
	version            int64
	attempt, failures  int
}

// run is a turn on its way.
type run struct {
	turn    session.Turn
	loaded  bool
	life    int   // of the session it loaded, 0 if there was none
	version int64 // likewise
	base    session.Base
	events  []session.Event
}

func (w *world) step() {
	actions := map[string]func(){
		"request": w.request, "load": w.loadRun, "commit": w.commitRuns, "claim": w.claimRun,
		"cancel": w.cancelRun, "delete": w.deleteSession, "create": w.createSession,
	}
	// Most of a history is turns that begin and commit.
	names := []string{"request", "request", "load", "load", "load", "commit", "commit", "commit", "claim", "cancel", "delete", "create"}
	actions[rapid.SampledFrom(names).Draw(w.T, "action")]()
}

// tick moves the clock, or leaves it where it is: times may be equal.
func (w *world) tick() int64 {
	w.clock += rapid.SampledFrom([]int64{0, 1, 1}).Draw(w.T, "tick")
	return w.clock
}

func (w *world) anySession() (string, *past) {
	id := rapid.SampledFrom([]string{"session_a", "session_b"}).Draw(w.T, "session")
	if w.past[id] == nil {
		w.past[id] = &past{}
	}
	return id, w.past[id]
}

func (w *world) anyRun(which func(*run) bool) *run {
	var some []*run
	for _, r := range w.runs {
		if which(r) {
			some = append(some, r)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return rapid.SampledFrom(some).Draw(w.T, "run")
}

func anyOf(*run) bool         { return true }
func isLoaded(r *run) bool    { return r.loaded }
func isRequested(r *run) bool { return !r.loaded }

func (w *world) request() {
	id, _ := w.anySession()
	turn := turnOf(fmt.Sprintf("inv_%d", len(w.runs)), w.tick())
	turn.Tenant, turn.SessionID = w.tenant, id
	w.runs = append(w.runs, &run{turn: turn})
}

// loadRun lets a turn load its session and make up its events from what it saw.
func (w *world) loadRun() {
	r := w.anyRun(isRequested)
	if r == nil {
		w.request()
		return
	}
	loaded, err := w.store.Load(w.ctx, session.LoadQuery{Tenant: w.tenant, SessionID: r.turn.SessionID})
	if err != nil {
		w.Fatalf("Load: %v", err)
	}
	r.loaded, r.base = true, loaded.Head.Base()
	if p := w.past[r.turn.SessionID]; p.alive {
		r.life, r.version = p.life, p.version
	}
	r.events = slice(r.turn.InvocationID, r.turn.CreatedAt, r.base, w.script(r, loaded.Head)...).Events
}

// script is what a turn does that finds the session like this.
func (w *world) script(r *run, head *session.Head) []session.Event {
	var waiting, open []session.PendingCall
	if head != nil {
		waiting, open = head.Pending, head.Open()
	}
	invocation := r.turn.InvocationID
	quiet := []session.Event{sets("last", fmt.Sprintf("%q", invocation)), says("done")}
	switch kind := rapid.SampledFrom([]string{"message", "message", "asks", "answers", "quiet"}).Draw(w.T, "kind"); {
	case kind == "quiet", kind == "answers" && len(open) == 0:
		return quiet
	case kind == "answers":
		return append(w.answer(waiting, open), quiet...)
	case kind == "asks":
		a, b := invocation+"_c1", invocation+"_c2"
		return append(message(waiting), calls(a), calls(b), yields(a), yields(b))
	default:
		return append(append(message(waiting), calls(invocation+"_c"), closes(invocation+"_c")), quiet...)
	}
}

// message is a new message, which closes the calls that wait.
func message(waiting []session.PendingCall) []session.Event {
	var events []session.Event
	for _, p := range waiting {
		events = append(events, supersedes(p.CallID))
	}
	return append(events, user("question"))
}

// answer answers some of the open calls, and closes all that wait if none is
// left open.
func (w *world) answer(waiting, open []session.PendingCall) []session.Event {
	n := rapid.IntRange(1, len(open)).Draw(w.T, "answers")
	var events []session.Event
	for _, p := range open[len(open)-n:] {
		events = append(events, answers(p.CallID))
	}
	if n == len(open) {
		for _, p := range waiting {
			events = append(events, closes(p.CallID))
		}
	}
	return events
}

// commitRuns commits one to three turns at once; the same one twice is allowed.
func (w *world) commitRuns() {
	var slices []*session.Slice
	for range rapid.IntRange(1, 3).Draw(w.T, "slices") {
		if r := w.anyRun(isLoaded); r != nil {
			slices = append(slices, w.sliceOf(r))
		}
	}
	if len(slices) == 0 {
		w.loadRun()
		return
	}
	outcomes, err := w.store.Commit(w.ctx, slices)
	if err != nil {
		w.Fatalf("Commit: %v", err)
	}
	for i, s := range slices {
		w.settled(s, outcomes[i])
	}
	w.checkAll()
}

func (w *world) sliceOf(r *run) *session.Slice {
	s := &session.Slice{Turn: r.turn, Base: r.base, Events: r.events, Result: report}
	s.Turn.Attempt = rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(w.T, "attempt")
	s.Turn.Status = rapid.SampledFrom([]session.Status{
		session.StatusCompleted, session.StatusCompleted, session.StatusCompleted, session.StatusYieldedTool, session.StatusError,
	}).Draw(w.T, "status")
	s.Policy = rapid.SampledFrom([]session.Policy{
		session.Resolve, session.Resolve, session.Resolve, session.Merge, session.Refuse,
	}).Draw(w.T, "policy")
	s.Initial = slice(r.turn.InvocationID+"_initial", r.turn.CreatedAt, r.base, sets("origin", `true`)).Events
	s.Scopes = map[string]string{"user": r.turn.SessionID}
	s.Scoped = []session.ScopedWrite{{
		Scope: "user", ScopeID: r.turn.SessionID, Key: "by", Value: json.RawMessage(fmt.Sprintf("%q", r.turn.InvocationID)),
	}}
	return s
}

func (w *world) runOf(invocation string) *run {
	for _, r := range w.runs {
		if r.turn.InvocationID == invocation {
			return r
		}
	}
	w.Fatalf("no run %s", invocation)
	return nil
}

// settled works out what must become of the slice, compares it with what did,
// and lets it happen.
func (w *world) settled(s *session.Slice, got session.Outcome) {
	if got.Err != nil {
		w.Fatalf("commit of %s: %v", s.Turn.InvocationID, got.Err)
	}
	r, p := w.runOf(s.Turn.InvocationID), w.past[s.Turn.SessionID]
	want, keep, tooLate := w.verdict(s, r, p)
	if kind(got) != want || got.TooLate != tooLate {
		w.Fatalf("commit of %s: got %s, want %q, too late %t", s.Turn.InvocationID, describe(got), want, tooLate)
	}
	if want == "repeat" || want == "fenced" || want == "conflict" {
		return
	}
	if want == "committed" || want == "merged" {
		if at := int64(len(p.ledger)); p.alive && got.FirstIndex != at || !p.alive && got.FirstIndex != 0 {
			w.Fatalf("first index %d of %s, with %d events before", got.FirstIndex, s.Turn.InvocationID, at)
		}
		w.happened(p, got.Head, keep)
		w.scoped[s.Turn.SessionID] = s.Turn.InvocationID
	}
	w.finish(s, session.CommitStatus(want), p, tooLate)
}

// verdict is the rule, told from the past: see the doc of the turn's semantics.
func (w *world) verdict(s *session.Slice, r *run, p *past) (status string, keep []session.Event, tooLate bool) {
	row := w.rows[s.Turn.InvocationID]
	switch {
	case row != nil && row.finished:
		return "repeat", nil, false
	case row != nil && s.Turn.Attempt != 0 && s.Turn.Attempt < row.attempt:
		return "fenced", nil, false
	case s.Turn.Status == session.StatusError || s.Turn.Status == session.StatusAborted:
		return "", nil, false
	case r.turn.CreatedAt < p.deletedAt:
		return "orphaned", nil, false
	case r.life != 0 && (!p.alive || r.life != p.life):
		return "orphaned", nil, false
	}
	moved := p.alive && (r.life == 0 || r.version != p.version)
	switch {
	case !moved && !p.alive:
		return "committed", append(append([]session.Event{}, s.Initial...), s.Events...), false
	case !moved:
		return "committed", s.Events, false
	case s.Policy == session.Refuse:
		return "conflict", nil, false
	case s.Policy == session.Resolve && newest(s.Events) != 0 && newest(p.ledger) > newest(s.Events):
		return "skipped", nil, false
	}
	if keep, tooLate = unanswered(s.Events, p.ledger); tooLate {
		return "", nil, true
	}
	return "merged", keep, false
}

func newest(events []session.Event) (at int64) {
	for _, e := range events {
		if u, ok := e.(*session.User); ok {
			at = max(at, u.CreatedAt)
		}
	}
	return at
}

// unanswered leaves out the results of calls that have one in the ledger, and
// finds that it is too late for a turn that answers a call which has an answer
// or a result there.
func unanswered(events, ledger []session.Event) (keep []session.Event, tooLate bool) {
	taken, closed := map[string]bool{}, map[string]bool{}
	for _, e := range ledger {
		switch e := e.(type) {
		case *session.ToolInput:
			taken[e.CallID] = true
		case *session.ToolResult:
			taken[e.CallID], closed[e.CallID] = true, true
		}
	}
	for _, e := range events {
		if input, ok := e.(*session.ToolInput); ok && taken[input.CallID] {
			return nil, true
		}
		if result, ok := e.(*session.ToolResult); ok && closed[result.CallID] {
			continue
		}
		keep = append(keep, e)
	}
	return keep, false
}

// happened appends to the past, of a new life if there is none.
func (w *world) happened(p *past, head *session.Head, events []session.Event) {
	if head == nil {
		w.Fatalf("a commit gave no head")
	}
	if !p.alive {
		for _, epoch := range p.epochs {
			if epoch == head.Epoch {
				w.Fatalf("epoch %s came back", epoch)
			}
		}
		p.alive, p.life, p.version, p.ledger = true, p.life+1, 0, nil
		p.epochs = append(p.epochs, head.Epoch)
	}
	p.version++
	p.ledger = append(p.ledger, events...)
}

// finish gives a turn its outcome.
func (w *world) finish(s *session.Slice, commit session.CommitStatus, p *past, tooLate bool) {
	row := &rowModel{finished: true, status: s.Turn.Status, commit: commit, attempt: s.Turn.Attempt, failures: s.Turn.Failures}
	if commit == session.Committed || commit == session.Merged {
		row.version = p.version
	}
	if tooLate {
		row.status = session.StatusError
	}
	if claim := w.rows[s.Turn.InvocationID]; claim != nil {
		row.attempt, row.failures = max(row.attempt, claim.attempt), max(row.failures, claim.failures)
	}
	w.rows[s.Turn.InvocationID] = row
}

func (w *world) cancelRun() {
	r := w.anyRun(anyOf)
	if r == nil {
		w.request()
		return
	}
	s := &session.Slice{Turn: r.turn, Result: report}
	s.Turn.Attempt, s.Turn.Status = 0, session.StatusAborted
	outcomes, err := w.store.Commit(w.ctx, []*session.Slice{s})
	if err != nil {
		w.Fatalf("Commit: %v", err)
	}
	w.settled(s, outcomes[0])
	w.checkAll()
}

func (w *world) claimRun() {
	r := w.anyRun(anyOf)
	if r == nil {
		w.request()
		return
	}
	turn := r.turn
	turn.Attempt = rapid.IntRange(1, 3).Draw(w.T, "claims attempt")
	turn.Failures = rapid.IntRange(0, 2).Draw(w.T, "failures")
	was := rapid.IntRange(0, 3).Draw(w.T, "was")
	_, claimed, err := w.store.Claim(w.ctx, turn, was)
	if err != nil {
		w.Fatalf("Claim: %v", err)
	}
	row, stored := w.rows[turn.InvocationID], 0
	if row != nil {
		stored = row.attempt
	}
	if want := (row == nil || !row.finished) && stored == was; claimed != want {
		w.Fatalf("claim of %s over attempt %d: %t, want %t", turn.InvocationID, was, claimed, want)
	}
	if claimed {
		w.rows[turn.InvocationID] = &rowModel{status: session.StatusRunning, attempt: turn.Attempt, failures: turn.Failures}
	}
	w.checkAll()
}

func (w *world) deleteSession() {
	id, p := w.anySession()
	at := w.tick()
	err := w.store.Delete(w.ctx, w.tenant, id, at)
	if p.alive && err != nil || !p.alive && !isNotFound(err) {
		w.Fatalf("Delete, with the session there %t: %v", p.alive, err)
	}
	if p.alive {
		p.alive, p.ledger, p.deletedAt = false, nil, max(p.deletedAt, at)
		for _, r := range w.runs {
			if row := w.rows[r.turn.InvocationID]; row != nil && r.turn.SessionID == id {
				row.scrubbed = true
			}
		}
	}
	w.checkAll()
}

func (w *world) createSession() {
	id, p := w.anySession()
	at := w.tick()
	made := slice(fmt.Sprintf("made_%d_%s", p.life, id), at, session.Base{}, user("hello"), sets("origin", `"form"`)).Events
	head, err := w.store.Create(w.ctx, session.NewSession{
		Tenant: w.tenant, ID: id, Events: made, CreatedAt: at, Scopes: map[string]string{"user": id},
	})
	if p.alive && !isExists(err) || !p.alive && err != nil {
		w.Fatalf("Create, with the session there %t: %v", p.alive, err)
	}
	if !p.alive {
		w.happened(p, head, made)
	}
	w.checkAll()
}

// checkAll compares the store with the model.
func (w *world) checkAll() {
	for id, p := range w.past {
		loaded, err := w.store.Load(w.ctx, session.LoadQuery{Tenant: w.tenant, SessionID: id})
		if err != nil {
			w.Fatalf("Load: %v", err)
		}
		w.checkSession(id, p, loaded)
		turns, err := w.store.Turns(w.ctx, id, session.PageQuery{Tenant: w.tenant, Limit: len(w.runs) + 1})
		if err != nil {
			w.Fatalf("Turns: %v", err)
		}
		rows := map[string]*session.Turn{}
		for _, t := range turns {
			rows[t.InvocationID] = t
		}
		for _, r := range w.runs {
			if r.turn.SessionID == id {
				w.checkRow(r.turn.InvocationID, rows[r.turn.InvocationID])
			}
		}
	}
}

func (w *world) checkSession(id string, p *past, loaded session.Loaded) {
	if loaded.DeletedAt != p.deletedAt {
		w.Fatalf("%s deleted at %d, want %d", id, loaded.DeletedAt, p.deletedAt)
	}
	if (loaded.Head != nil) != p.alive {
		w.Fatalf("%s is there: %t, want %t", id, loaded.Head != nil, p.alive)
	}
	// The same events in the same order: nothing lost, nothing twice, nothing torn.
	if diff := cmp.Diff(ids(p.ledger), ids(loaded.Events), equalities); diff != "" {
		w.Fatalf("ledger of %s (-want +got):\n%s", id, diff)
	}
	if !p.alive {
		return
	}
	h := loaded.Head
	if h.Version != p.version || h.EventCount != int64(len(p.ledger)) || h.LastUserAt != newest(p.ledger) || h.Epoch != p.epochs[len(p.epochs)-1] {
		w.Fatalf("head of %s: %+v; want version %d, %d events, newest message %d", id, h, p.version, len(p.ledger), newest(p.ledger))
	}
	if diff := cmp.Diff(folded(p.ledger), h.State, equalities); diff != "" {
		w.Fatalf("state of %s (-want +got):\n%s", id, diff)
	}
	if by := w.scoped[id]; by != "" && string(loaded.Scoped["user"]["by"]) != fmt.Sprintf("%q", by) {
		w.Fatalf("scoped state of %s is by %s, want %s", id, loaded.Scoped["user"]["by"], by)
	}
	w.checkCalls(loaded)
}

// folded is the state by the last writer of each key, found from the end.
func folded(ledger []session.Event) session.State {
	s := session.State{}
	for i := len(ledger) - 1; i >= 0; i-- {
		if change, ok := ledger[i].(*session.StateChange); ok {
			if _, later := s[change.Changes[0].Key]; !later {
				s[change.Changes[0].Key] = change.Changes[0].NewValue
			}
		}
	}
	return s
}

// checkCalls demands of a history what every provider does: a result follows its
// call, and a call has one result. What has none is pending, and says who has
// answered it.
func (w *world) checkCalls(loaded session.Loaded) {
	open, closed := map[string]bool{}, map[string]bool{}
	answeredBy := map[string]string{}
	for _, e := range loaded.Events {
		switch e := e.(type) {
		case *session.ToolCall:
			open[e.CallID] = true
		case *session.ToolInput:
			if answeredBy[e.CallID] != "" || !open[e.CallID] {
				w.Fatalf("answer %s comes twice, or for no open call", e.ID)
			}
			answeredBy[e.CallID] = e.InvocationID
		case *session.ToolResult:
			if !open[e.CallID] || closed[e.CallID] {
				w.Fatalf("result %s comes twice, or before its call", e.ID)
			}
			closed[e.CallID] = true
			delete(open, e.CallID)
		}
	}
	if len(open) != len(loaded.Head.Pending) {
		w.Fatalf("open calls %v, pending %+v", open, loaded.Head.Pending)
	}
	for _, p := range loaded.Head.Pending {
		if !open[p.CallID] || p.AnsweredBy != answeredBy[p.CallID] {
			w.Fatalf("pending %+v; open %t, answered by %q", p, open[p.CallID], answeredBy[p.CallID])
		}
	}
}

func (w *world) checkRow(invocation string, got *session.Turn) {
	want := w.rows[invocation]
	if (got != nil) != (want != nil) {
		w.Fatalf("row of %s: %+v, want %+v", invocation, got, want)
	}
	if want == nil {
		return
	}
	have := rowModel{
		finished: got.Status.Finished(), scrubbed: want.scrubbed, status: got.Status, commit: got.CommitStatus,
		version: got.Version, attempt: got.Attempt, failures: got.Failures,
	}
	if have != *want {
		w.Fatalf("row of %s: %+v, want %+v", invocation, have, *want)
	}
	if wantResult := want.finished && !want.scrubbed; (got.Result != nil) != wantResult {
		w.Fatalf("row of %s has the result %s, want one: %t", invocation, got.Result, wantResult)
	}
}
