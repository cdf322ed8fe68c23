package worker_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agenttest"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
	"github.com/turnpool/turnpool/worker"
)

func TestHandlerRest(t *testing.T) {
	onStores(t, func(t *testing.T, store session.Store) {
		h := newHouse(t, store)
		h.clock.Store(7)
		req := say("thread-42", "How long is my stay?")
		req.Metadata = map[string]string{"k": "v"}
		got := h.rest(t, req)
		endedAs(t, got, session.StatusCompleted, session.Committed, "")
		same(t, "result", []any{got.SessionID, got.Version, got.Output.Text, len(got.Output.Items), got.Agent, got.Lane, got.Attempts, got.Metadata},
			[]any{"session_thread-42", int64(1), "re: How long is my stay?", 1, "concierge", turn.LaneInteractive, 1, req.Metadata})
		same(t, "times", []int64{got.CreatedAt, got.StartedAt, got.FinishedAt}, []int64{7, 7, 7})
		if !turn.ValidInvocationID(got.InvocationID) {
			t.Errorf("invocation id %q", got.InvocationID)
		}
		if got.Usage != nil || got.TurnUsage != nil || got.State != nil || got.Events != nil {
			t.Errorf("the result has more than was asked for: %+v", got)
		}
		same(t, "ledger", h.ledger(t, "thread-42"), "How long is my stay?\nre: How long is my stay?")
		same(t, "result by id", h.stored(t, got.InvocationID), got)

		// The second turn sees the first, which nobody kept in memory.
		second := newHouse(t, store)
		second.clock.Store(8)
		got = second.rest(t, say("session_thread-42", "And the checkout time?"))
		endedAs(t, got, session.StatusCompleted, session.Committed, "")
		same(t, "version", got.Version, int64(2))
		same(t, "conversation", typesOf(second.model.Requests()[0].Conversation), "user assistant user")
		page, err := store.Events(t.Context(), session.EventsQuery{
			Tenant: turn.DefaultTenant, SessionID: "session_thread-42", After: -1, Limit: 100,
		})
		if err != nil {
			t.Fatal(err)
		}
		start := page[6+1].Event.(*session.InvocationStart)
		same(t, "base of the second", []int64{start.Version, start.EventCount}, []int64{1, 6})
	})
}

func TestHandlerTurn(t *testing.T) {
	onStores(t, func(t *testing.T, store session.Store) {
		h := newHouse(t, store)
		h.model.ChunkSize = 4
		stream := h.Turn(t.Context(), say("s", "hi"))
		events := slices.Collect(stream.Events())
		same(t, "stream", typesOf(events),
			"invocation_start model_start assistant_delta assistant_delta model_end assistant invocation_end")
		same(t, "accumulated", events[3].(*turn.Delta).Text, "re: hi")
		got := inTime(t, resultOf(stream))
		endedAs(t, got, session.StatusCompleted, session.Committed, "")
		same(t, "id", got.InvocationID, stream.InvocationID())
		same(t, "id in events", events[0].(session.Event).Base().InvocationID, stream.InvocationID())
	})
}

func TestHandlerTurnIsLazy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, session.NewMemory())
		stream := h.Turn(t.Context(), say("s", "hi"))
		events := stream.Events()
		synctest.Wait()
		same(t, "model calls", h.model.Calls(), 0)
		same(t, "ledger", h.ledger(t, "s"), "")
		for range events {
		}
		same(t, "model calls", h.model.Calls(), 1)
		stream.Result()
		same(t, "model calls", h.model.Calls(), 1)
	})
}

// Everybody who ranges over the events gets all of them, whenever they come.
func TestHandlerEventsForMany(t *testing.T) {
	onStores(t, func(t *testing.T, store session.Store) {
		h := newHouse(t, store)
		gate := h.gated()
		stream := h.Turn(t.Context(), say("s", "hi"))
		readers := make(chan []turn.Event)
		for range 5 {
			go func() { readers <- slices.Collect(stream.Events()) }()
		}
		inTime(t, gate.Arrived("hi"))
		go func() { readers <- slices.Collect(stream.Events()) }()
		gate.Open("hi")
		first := inTime(t, readers)
		same(t, "stream", typesOf(first), "invocation_start model_start assistant_delta model_end assistant invocation_end")
		for range 5 {
			same(t, "stream of another reader", inTime(t, readers), first)
		}
		same(t, "stream afterwards", slices.Collect(stream.Events()), first)
		same(t, "model calls", h.model.Calls(), 1)
	})
}

func TestHandlerLeavingTheLoopEarly(t *testing.T) {
	onStores(t, func(t *testing.T, store session.Store) {
		h := newHouse(t, store)
		stream := h.Turn(t.Context(), say("s", "hi"))
		for range stream.Events() {
			break
		}
		endedAs(t, inTime(t, resultOf(stream)), session.StatusCompleted, session.Committed, "")
	})
}

func TestHandlerAbort(t *testing.T) {
	onStores(t, func(t *testing.T, store session.Store) {
		h := newHouse(t, store)
		h.rest(t, say("s", "before"))
		gate := h.gated()
		check := func(stream *worker.Stream, wantStream string) {
			t.Helper()
			got := inTime(t, resultOf(stream))
			endedAs(t, got, session.StatusAborted, session.CommitNone, "")
			same(t, "stream", typesOf(slices.Collect(stream.Events())), wantStream)
			same(t, "result by id", h.stored(t, got.InvocationID), got)
			same(t, "ledger", h.ledger(t, "s"), "before\nre: before")
		}

		// Before it starts.
		stream := h.Turn(t.Context(), say("s", "early"))
		stream.Abort()
		stream.Abort()
		check(stream, "invocation_start invocation_end")

		// While it runs.
		stream = h.Turn(t.Context(), say("s", "mid"))
		result := resultOf(stream)
		inTime(t, gate.Arrived("mid"))
		stream.Abort()
		stream.Abort()
		inTime(t, result)
		check(stream, "invocation_start model_start model_end invocation_end")

		// Afterwards nothing changes.
		gate.Open("late")
		stream = h.Turn(t.Context(), say("s", "late"))
		inTime(t, resultOf(stream))
		stream.Abort()
		endedAs(t, inTime(t, resultOf(stream)), session.StatusCompleted, session.Committed, "")
		same(t, "ledger", h.ledger(t, "s"), "before\nre: before\nlate\nre: late")
	})
}

// Abort may come from the loop over the events.
func TestHandlerAbortFromTheLoop(t *testing.T) {
	t.Parallel()
	h := newHouse(t, session.NewMemory())
	h.gated()
	stream := h.Turn(t.Context(), say("s", "hi"))
	for e := range stream.Events() {
		if e.Type() == session.TypeModelStart {
			stream.Abort()
		}
	}
	endedAs(t, inTime(t, resultOf(stream)), session.StatusAborted, session.CommitNone, "")
}

func TestHandlerContextCancelled(t *testing.T) {
	onStores(t, func(t *testing.T, store session.Store) {
		h := newHouse(t, store)
		gate := h.gated()
		ctx, cancel := context.WithCancel(t.Context())
		result := resultOf(h.Turn(ctx, say("s", "hi")))
		inTime(t, gate.Arrived("hi"))
		cancel()
		got := inTime(t, result)
		endedAs(t, got, session.StatusAborted, session.CommitNone, "")
		same(t, "result by id", h.stored(t, got.InvocationID), got)

		got = inTime(t, resultOf(h.Turn(ctx, say("s", "cancelled before"))))
		endedAs(t, got, session.StatusAborted, session.CommitNone, "")
		same(t, "ledger", h.ledger(t, "s"), "")
		same(t, "model calls", h.model.Calls(), 1)
	})
}

func TestHandlerSessionIDs(t *testing.T) {
	t.Parallel()
	h := newHouse(t, session.NewMemory())
	long := strings.Repeat("ä", turn.MaxSessionID)
	for given, want := range map[string]string{
		"thread-42":                 "session_thread-42",
		"session_thread-42":         "session_thread-42",
		"session_session_x":         "session_session_x",
		"with space/and %":          "session_with space/and %",
		long:                        "session_" + long,
		"session_" + long:           "session_" + long,
		long + "x":                  "",
		"session_" + long + "x":     "",
		"a\nb":                      "",
		"a\x7f":                     "",
		"\xff":                      "",
		strings.Repeat("x", 10_000): "",
	} {
		got := h.rest(t, say(given, "hi"))
		if want == "" {
			endedAs(t, got, session.StatusError, session.CommitNone, "invalid_field")
			continue
		}
		same(t, "session id", got.SessionID, want)
		// What a result says is what a request may say.
		again := h.rest(t, say(got.SessionID, "again"))
		same(t, "session id again", again.SessionID, want)
		if again.Version <= got.Version {
			t.Errorf("%q: version %d after %d", given, again.Version, got.Version)
		}
	}
	one, two := h.rest(t, say("", "hi")), h.rest(t, say("", "hi"))
	if one.SessionID == two.SessionID || !strings.HasPrefix(one.SessionID, "session_") || one.Version != 1 {
		t.Errorf("minted %q, %q", one.SessionID, two.SessionID)
	}
}

// A request that cannot be a turn is refused, and nothing is stored.
func TestHandlerRefusals(t *testing.T) {
	t.Parallel()
	bad := json.RawMessage(`{oops`)
	for name, c := range map[string]struct {
		req  turn.Request
		code string
		says string
	}{
		"unknown agent": {turn.Request{Agent: "nobody", Input: turn.Input{Message: turn.Text("hi")}}, "unknown_agent", `"nobody"`},
		"empty input":   {turn.Request{}, "empty_input", ""},
		"empty message": {turn.Request{Input: turn.Input{Message: turn.Text("")}}, "empty_input", ""},
		"only initial": {turn.Request{Input: turn.Input{InitialState: map[string]session.State{"session": {"a": bad[:0]}}}},
			"empty_input", ""},
		"state":         {turn.Request{Input: turn.Input{State: session.State{"k": bad}}}, "invalid_field", `state: the value of "k"`},
		"initial state": {initially("session", session.State{"k": bad}, nil), "invalid_field", `initialState: the value of "k"`},
		"unbound scope": {initially("user", session.State{"k": bad}, nil), "invalid_field", "which user"},
		"temp":          {initially("temp", session.State{"k": bad}, nil), "invalid_field", "which temp"},
		"scope session": {initially("session", nil, map[string]string{"session": "x"}), "invalid_field", `"session"`},
		"scope temp":    {initially("session", nil, map[string]string{"temp": "x"}), "invalid_field", `"temp"`},
		"scope name":    {initially("session", nil, map[string]string{"a b": "x"}), "invalid_field", `"a b"`},
		"scope id":      {initially("session", nil, map[string]string{"user": ""}), "invalid_field", `"user"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, session.NewMemory())
			c.req.SessionID = "s"
			stream := h.Turn(t.Context(), c.req)
			got := inTime(t, resultOf(stream))
			endedAs(t, got, session.StatusError, session.CommitNone, c.code)
			if !strings.Contains(got.Error.Message, c.says) || got.Error.Retryable {
				t.Errorf("error %+v, want one with %q", got.Error, c.says)
			}
			if got.SessionID != "session_s" || got.Output.Items == nil || got.Attempts != 1 {
				t.Errorf("result %+v", got)
			}
			same(t, "events", len(slices.Collect(stream.Events())), 0)
			same(t, "model calls", h.model.Calls(), 0)
			if h.stored(t, got.InvocationID) != nil {
				t.Error("it was stored")
			}
		})
	}
}

// initially is a request with a message and the first state of one scope.
func initially(scope string, state session.State, scopes map[string]string) turn.Request {
	return turn.Request{Scopes: scopes, Input: turn.Input{
		Message: turn.Text("hi"), InitialState: map[string]session.State{scope: state},
	}}
}

func TestHandlerAgents(t *testing.T) {
	t.Parallel()
	named := func(name string) *agent.Agent {
		return &agent.Agent{Name: name, Model: agenttest.NewModel(agenttest.Text("I am " + name))}
	}
	h := newHouse(t, session.NewMemory(), func(cfg *worker.HandlerConfig) {
		cfg.Agents = []*agent.Agent{named("first"), named("second")}
	})
	for asked, want := range map[string]string{"": "first", "first": "first", "second": "second"} {
		req := say("s", "hi")
		req.Agent = asked
		got := h.rest(t, req)
		same(t, "agent", []string{got.Agent, got.Output.Text}, []string{want, "I am " + want})
	}
}

func TestHandlerResponse(t *testing.T) {
	onStores(t, func(t *testing.T, store session.Store) {
		h := newHouse(t, store)
		all := &turn.Response{Events: true, Usage: true, State: true}
		first := say("s", "one")
		first.Response = all
		got := h.rest(t, first)
		same(t, "events", typesOf(got.Events), "user invocation_start model_start model_end assistant invocation_end")
		same(t, "state", got.State, session.State{})
		same(t, "usage", got.Usage, used(1))
		same(t, "turn usage", got.TurnUsage, used(1))
		if wire, err := json.Marshal(got); err != nil || !strings.Contains(string(wire), `"state":{}`) {
			t.Errorf("%v: %s", err, wire)
		}

		second := say("s", "two")
		second.Input.State = session.State{"channel": json.RawMessage(`"sms"`)}
		second.Response = all
		got = h.rest(t, second)
		same(t, "events", typesOf(got.Events), "user invocation_start state_change model_start model_end assistant invocation_end")
		same(t, "state", got.State, session.State{"channel": json.RawMessage(`"sms"`)})
		same(t, "usage", got.Usage, used(2))
		same(t, "turn usage", got.TurnUsage, used(1))

		third := say("s", "three")
		third.Response = &turn.Response{State: true}
		got = h.rest(t, third)
		if got.Events != nil || got.Usage != nil || got.TurnUsage != nil || len(got.State) != 1 {
			t.Errorf("only state was asked for: %+v", got)
		}
	})
}

// used is the roll-up of n calls of the test's model.
func used(n int64) *session.Usage {
	return &session.Usage{ModelCalls: n, TotalInputTokens: 10 * n, TotalOutputTokens: 5 * n, Models: []session.UsageOfModel{
		{ModelName: "agenttest", Calls: n, ModelUsage: session.ModelUsage{InputTokens: 10 * n, OutputTokens: 5 * n}},
	}}
}

// The deployment says what results carry, unless the request does.
func TestHandlerResponseByDefault(t *testing.T) {
	t.Parallel()
	h := newHouse(t, session.NewMemory(), func(cfg *worker.HandlerConfig) { cfg.Response.Usage = true })
	same(t, "usage", h.rest(t, say("s", "hi")).Usage, used(1))
	req := say("s", "hi")
	req.Response = &turn.Response{}
	if got := h.rest(t, req); got.Usage != nil {
		t.Errorf("usage %+v", got.Usage)
	}
}

// What was asked for is there although nothing of the turn is.
func TestHandlerResponseOfAnAbortedTurn(t *testing.T) {
	t.Parallel()
	h := newHouse(t, session.NewMemory())
	req := say("s", "hi")
	req.Response = &turn.Response{Events: true, Usage: true, State: true}
	stream := h.Turn(t.Context(), req)
	stream.Abort()
	got := inTime(t, resultOf(stream))
	same(t, "state", got.State, session.State{})
	same(t, "usage", []any{got.Usage, got.TurnUsage}, []any{&session.Usage{Models: []session.UsageOfModel{}}, &session.Usage{Models: []session.UsageOfModel{}}})
	same(t, "events", typesOf(got.Events), "user invocation_start invocation_end")
}

func TestHandlerInitialState(t *testing.T) {
	onStores(t, func(t *testing.T, store session.Store) {
		h := newHouse(t, store)
		req := say("s", "one")
		req.Scopes = map[string]string{"user": "u-1", "org": "o-1"}
		req.Input.InitialState = map[string]session.State{
			"session": {"tone": json.RawMessage(`"warm"`), "none": nil},
			"user":    {"name": json.RawMessage(`"Ada"`)},
		}
		req.Input.State = session.State{"channel": json.RawMessage(`"sms"`)}
		req.Response = &turn.Response{State: true, Events: true}
		got := h.rest(t, req)
		endedAs(t, got, session.StatusCompleted, session.Committed, "")
		same(t, "state", got.State, session.State{"tone": json.RawMessage(`"warm"`), "channel": json.RawMessage(`"sms"`)})
		// The user's state is in the ledger, and does not leave it.
		same(t, "events", typesOf(got.Events),
			"state_change user invocation_start state_change model_start model_end assistant invocation_end")
		same(t, "first change", got.Events[0].(*session.StateChange).Changes, []session.Change{{Key: "tone", NewValue: json.RawMessage(`"warm"`)}})
		same(t, "event count", h.head(t, "s").EventCount, int64(9))
		same(t, "scopes", h.head(t, "s").Scopes, req.Scopes)
		same(t, "scoped", h.scoped(t, "s"), map[string]session.State{"user": {"name": json.RawMessage(`"Ada"`)}, "org": {}})

		// A session that is there keeps its state, and its scopes.
		req.Input.InitialState = map[string]session.State{
			"session": {"tone": json.RawMessage(`"cold"`)}, "user": {"name": json.RawMessage(`"Eve"`)},
		}
		req.Scopes = map[string]string{"user": "u-2"}
		req.Input.Message = turn.Text("two")
		got = h.rest(t, req)
		same(t, "state", got.State["tone"], json.RawMessage(`"warm"`))
		same(t, "events", typesOf(got.Events), "user invocation_start model_start model_end assistant invocation_end")
		same(t, "scopes", h.head(t, "s").Scopes, map[string]string{"user": "u-1", "org": "o-1"})
		same(t, "scoped", h.scoped(t, "s")["user"], session.State{"name": json.RawMessage(`"Ada"`)})
	})
}

// scoped is the state of the scopes that a session is bound to.
func (h *house) scoped(t *testing.T, sessionID string) map[string]session.State {
	t.Helper()
	loaded, err := h.store.Load(t.Context(), session.LoadQuery{
		Tenant: turn.DefaultTenant, SessionID: turn.NormalizeSessionID(sessionID), UpTo: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return loaded.Scoped
}

// A turn that meant to begin a session, and found it begun, leaves its first
// state out.
func TestHandlerInitialStateOfAMerge(t *testing.T) {
	onStores(t, func(t *testing.T, store session.Store) {
		h := newHouse(t, store)
		gate := h.gated()
		begin := func(text, tone string) <-chan *turn.Result {
			req := say("s", text)
			req.Scopes = map[string]string{"user": text}
			req.Input.InitialState = map[string]session.State{
				"session": {"tone": json.RawMessage(tone)}, "user": {"tone": json.RawMessage(tone)},
			}
			req.Response = &turn.Response{State: true, Events: true}
			return h.begin(t, gate, 5, req)
		}
		a, b := begin("a", `"warm"`), begin("b", `"cold"`)
		gate.Open("a")
		endedAs(t, inTime(t, a), session.StatusCompleted, session.Committed, "")
		gate.Open("b")
		got := inTime(t, b)
		endedAs(t, got, session.StatusCompleted, session.Merged, "")
		same(t, "state", got.State, session.State{"tone": json.RawMessage(`"warm"`)})
		same(t, "events", typesOf(got.Events), "user invocation_start model_start model_end assistant invocation_end")
		same(t, "scopes", h.head(t, "s").Scopes, map[string]string{"user": "a"})
		same(t, "scoped", h.scoped(t, "s"), map[string]session.State{"user": {"tone": json.RawMessage(`"warm"`)}})
	})
}

// The request's timeout counts, within the deployment's.
func TestHandlerTimeout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit time.Duration
		asked int64
		want  time.Duration
	}{
		"by default":       {0, 0, worker.DefaultTurnTimeout},
		"the deployment's": {time.Second, 0, time.Second},
		"the request's":    {time.Second, 50, 50 * time.Millisecond},
		"capped":           {time.Second, 1 << 60, time.Second},
		"negative":         {time.Second, -1, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, session.NewMemory(), func(cfg *worker.HandlerConfig) { cfg.Timeout = c.limit })
				h.gated()
				req := say("s", "hi")
				req.Timeout = c.asked
				begin := time.Now()
				got := h.Rest(t.Context(), req)
				same(t, "time", time.Since(begin), c.want)
				endedAs(t, got, session.StatusError, session.CommitNone, turn.CodeTimeout)
				same(t, "result by id", h.stored(t, got.InvocationID), got)
				same(t, "ledger", h.ledger(t, "s"), "")
			})
		})
	}
}

// A turn whose model fails ends in error, and its session stays as it was.
func TestHandlerModelFails(t *testing.T) {
	onStores(t, func(t *testing.T, store session.Store) {
		h := newHouse(t, store)
		h.rest(t, say("s", "before"))
		h.model.Answer = func(context.Context, *agent.ModelRequest) (*agent.ModelResponse, error) {
			return nil, &agent.ModelError{Status: 429, Message: "slow down"}
		}
		got := h.rest(t, say("s", "hi"))
		endedAs(t, got, session.StatusError, session.CommitNone, turn.CodeRateLimited)
		same(t, "result by id", h.stored(t, got.InvocationID), got)
		same(t, "ledger", h.ledger(t, "s"), "before\nre: before")
		same(t, "version", h.head(t, "s").Version, int64(1))
		if log := h.log.String(); strings.Count(log, "turn failed") != 1 || !strings.Contains(log, "invocation="+got.InvocationID) {
			t.Errorf("log: %s", log)
		}
	})
}

func TestHandlerStateOnly(t *testing.T) {
	t.Parallel()
	h := newHouse(t, session.NewMemory())
	req := turn.Request{SessionID: "s", Input: turn.Input{State: session.State{"k": json.RawMessage(`1`)}}}
	endedAs(t, h.rest(t, req), session.StatusCompleted, session.Committed, "")
	same(t, "state", h.head(t, "s").State, req.Input.State)
}

func TestHandlerAnswersToNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t, session.NewMemory())
	got := h.rest(t, turn.Request{SessionID: "s", Input: turn.Input{
		Tools: []turn.ToolAnswer{{CallID: "call_1", Input: json.RawMessage(`1`)}},
	}})
	endedAs(t, got, session.StatusError, session.CommitNone, turn.CodeUnknownCall)
}

func TestNewHandlerErrors(t *testing.T) {
	t.Parallel()
	fine := func() *agent.Agent { return &agent.Agent{Name: "a", Model: agenttest.NewModel()} }
	for name, c := range map[string]struct {
		cfg  worker.HandlerConfig
		says string
	}{
		"no store":  {worker.HandlerConfig{Agents: []*agent.Agent{fine()}}, "needs a store"},
		"no agents": {worker.HandlerConfig{Store: session.NewMemory()}, "at least one agent"},
		"nil agent": {worker.HandlerConfig{Store: session.NewMemory(), Agents: []*agent.Agent{nil}}, "nil"},
		"bad agent": {worker.HandlerConfig{Store: session.NewMemory(), Agents: []*agent.Agent{{Name: "a"}}}, `agent "a": it has no model`},
		"twice":     {worker.HandlerConfig{Store: session.NewMemory(), Agents: []*agent.Agent{fine(), fine()}}, "twice"},
		"timeout":   {worker.HandlerConfig{Store: session.NewMemory(), Agents: []*agent.Agent{fine()}, Timeout: -1}, "negative"},
		"tenant":    {worker.HandlerConfig{Store: session.NewMemory(), Agents: []*agent.Agent{fine()}, Tenant: "a.b"}, `"a.b"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := worker.NewHandler(c.cfg); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one with %q", err, c.says)
			}
		})
	}
	if _, err := worker.NewHandler(worker.HandlerConfig{Store: session.NewMemory(), Agents: []*agent.Agent{fine()}}); err != nil {
		t.Error(err)
	}
}

// Tenants do not see each other's sessions.
func TestHandlerTenants(t *testing.T) {
	t.Parallel()
	store := session.NewMemory()
	h := newHouse(t, store)
	other := newHouse(t, store, func(cfg *worker.HandlerConfig) { cfg.Tenant = "other" })
	h.rest(t, say("s", "mine"))
	got := other.rest(t, say("s", "theirs"))
	same(t, "version", got.Version, int64(1))
	same(t, "ledger", h.ledger(t, "s"), "mine\nre: mine")
}
