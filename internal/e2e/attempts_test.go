package e2e

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agenttest"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
	"github.com/turnpool/turnpool/worker"
)

// halfThenGate streams half of its answer, then waits at the gate; it counts its
// calls.
func halfThenGate(gate *agenttest.Gate, door string, calls *atomic.Int64) *agent.Agent {
	return &agent.Agent{Name: "agent", Model: modelFunc(func(ctx context.Context, req *agent.ModelRequest, emit func(agent.ModelDelta)) (*agent.ModelResponse, error) {
		calls.Add(1)
		emit(agent.ModelDelta{Kind: agent.ItemText, Text: "half "})
		if err := gate.Pass(ctx, door); err != nil {
			return nil, err
		}
		emit(agent.ModelDelta{Kind: agent.ItemText, Text: "and whole"})
		return agenttest.Text("half and whole"), nil
	})}
}

type modelFunc func(context.Context, *agent.ModelRequest, func(agent.ModelDelta)) (*agent.ModelResponse, error)

func (modelFunc) Name() string { return "test" }
func (f modelFunc) Generate(ctx context.Context, req *agent.ModelRequest, emit func(agent.ModelDelta)) (*agent.ModelResponse, error) {
	return f(ctx, req, emit)
}

// begun waits until something of a turn's text is stored: of an attempt that left no
// trace nobody would know.
func (in *testIngress) begun(id string) {
	in.t.Helper()
	in.stream("GET", "/v1/turns/"+id+"/events", "", func(f frame) bool { return f.Event == turn.TypeAssistantDelta })
}

// A worker that is cut off mid-answer loses the turn; another starts over. Who
// honours rewind reads one clean text, and the ledger has the turn once.
func TestWorkerLostMidTurn(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.ackWait = 2 * shortAckWait // the worker must not lose the turn before it is cut off
	gate := agenttest.NewGate()
	var first, second atomic.Int64
	lost := s.worker(worker.PoolConfig{MaxAttempts: manyAttempts, Agents: []*agent.Agent{halfThenGate(gate, "never", &first)}})
	in := s.ingress()
	id := in.submit("thread", "hello")
	arrived(t, s.ctx, gate, "never")
	in.begun(id)
	lost.client.Close()
	gate.Open("now")
	s.worker(worker.PoolConfig{MaxAttempts: manyAttempts, Agents: []*agent.Agent{halfThenGate(gate, "now", &second)}})
	frames := in.follow(id)
	checkStream(t, frames, 0)
	if got := spoken(t, frames); got != "half and whole" {
		t.Errorf("heard %q", got)
	}
	result := in.wait(id)
	if result.CommitStatus != session.Committed || result.Attempts < 2 {
		t.Errorf("%s after %d attempts", result.CommitStatus, result.Attempts)
	}
	restart := slices.IndexFunc(frames, func(f frame) bool { return f.Event == turn.TypeRestart })
	if restart < 0 {
		t.Fatalf("no restart in %v", frames)
	}
	var told turn.Restart
	mustDecode(t, frames[restart].Data, &told)
	if told.Attempt != 2 || told.Failures != 1 || told.Reason != turn.RestartCrash {
		t.Errorf("restart: %+v", told)
	}
	if got := said(in.ledger("thread")); !slices.Equal(got, []string{"user: hello", "assistant: half and whole"}) {
		t.Errorf("ledger: %q", got)
	}
}

// A worker is cut off in the middle of the second step. Another goes on: what was
// finished is not done again, readers keep what they have of it, and who comes
// late reads the same text.
func TestGoesOnMidTurn(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.ackWait = 2 * shortAckWait // the worker must not lose the turn before it is cut off
	gate := agenttest.NewGate()
	var firsts, tools atomic.Int64
	build := func(door string) *agent.Agent {
		return &agent.Agent{Name: "agent",
			Tools: []*agent.Tool{agent.NewTool("work", "works", func(context.Context, struct{}) (string, error) {
				tools.Add(1)
				return "worked", nil
			})},
			Model: modelFunc(func(ctx context.Context, req *agent.ModelRequest, emit func(agent.ModelDelta)) (*agent.ModelResponse, error) {
				if req.Step == 1 {
					firsts.Add(1)
					emit(agent.ModelDelta{Kind: agent.ItemText, Text: "first "})
					response := agenttest.Calls("work", `{}`)
					response.Items = append([]agent.Item{{Kind: agent.ItemText, Text: "first "}}, response.Items...)
					return response, nil
				}
				emit(agent.ModelDelta{Kind: agent.ItemText, Text: "sec"})
				if err := gate.Pass(ctx, door); err != nil {
					return nil, err
				}
				emit(agent.ModelDelta{Kind: agent.ItemText, Text: "ond"})
				return agenttest.Text("second"), nil
			}),
		}
	}
	lost := s.worker(worker.PoolConfig{MaxAttempts: manyAttempts, Agents: []*agent.Agent{build("never")}})
	in := s.ingress()
	id := in.submit("thread", "hello")
	arrived(t, s.ctx, gate, "never")
	in.begun(id)
	lost.client.Close()
	gate.Open("now")
	s.worker(worker.PoolConfig{MaxAttempts: manyAttempts, Agents: []*agent.Agent{build("now")}})
	frames := in.follow(id)
	checkStream(t, frames, 0)
	if got := spoken(t, frames); got != "first second" {
		t.Errorf("heard %q", got)
	}
	restart := slices.IndexFunc(frames, func(f frame) bool { return f.Event == turn.TypeRestart })
	if restart < 0 {
		t.Fatalf("no restart in %v", frames)
	}
	var told turn.Restart
	mustDecode(t, frames[restart].Data, &told)
	if told.RewindTo == 0 || frames[told.RewindTo-1].Event != session.TypeToolResult || told.Failures != 1 {
		t.Errorf("restart: %+v", told)
	}
	if firsts.Load() != 1 || tools.Load() != 1 {
		t.Errorf("the first step's model was called %d times and its tool %d times, want once each", firsts.Load(), tools.Load())
	}
	result := in.wait(id)
	if result.CommitStatus != session.Committed || result.Attempts < 2 || len(result.Output.Items) != 2 {
		t.Errorf("%+v", result)
	}
	if got := said(in.ledger("thread")); !slices.Equal(got, []string{"user: hello", "assistant: first ", "assistant: second"}) {
		t.Errorf("ledger: %q", got)
	}
}

// A turn that kills its worker again and again is given up, with one result.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.ackWait = 2 * shortAckWait // the worker must not lose the turn before it is cut off
	gate := agenttest.NewGate()
	var calls atomic.Int64
	in := (*testIngress)(nil)
	id := ""
	for attempt := 1; attempt <= 2; attempt++ {
		door := "attempt " + strconv.Itoa(attempt)
		w := s.worker(worker.PoolConfig{MaxAttempts: 2, Agents: []*agent.Agent{halfThenGate(gate, door, &calls)}})
		if in == nil {
			in = s.ingress()
			id = in.submit("thread", "hello")
		}
		arrived(t, s.ctx, gate, door)
		in.begun(id)
		w.client.Close()
	}
	s.worker(worker.PoolConfig{MaxAttempts: 2, Agents: []*agent.Agent{halfThenGate(gate, "third", &calls)}})
	frames := in.follow(id)
	checkStream(t, frames, 0)
	result := in.wait(id)
	if result.Status != session.StatusError || result.Error == nil || result.Error.Code != turn.CodeWorkerLost {
		t.Errorf("result: %+v", result)
	}
	if got := calls.Load(); got != 2 {
		t.Errorf("the model was called %d times, want 2", got)
	}
}

// soon is a RetryDelay that does not make a test wait, and notes what the provider
// asked for.
func soon(asked *atomic.Int64) func(int, time.Duration) time.Duration {
	return func(_ int, d time.Duration) time.Duration {
		asked.Add(int64(d))
		return time.Millisecond
	}
}

// A model that is overloaded is asked again later, up to its limit; what the turn
// had finished is not done again, and readers hear one clean text.
func TestRetried(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var calls, tools, asked atomic.Int64
	a := &agent.Agent{Name: "agent",
		Tools: []*agent.Tool{agent.NewTool("work", "works", func(context.Context, struct{}) (string, error) {
			tools.Add(1)
			return "worked", nil
		})},
		Model: modelFunc(func(ctx context.Context, req *agent.ModelRequest, emit func(agent.ModelDelta)) (*agent.ModelResponse, error) {
			n := calls.Add(1)
			switch {
			case n == 1 || n == 3: // the first call, and the first one after the tool
				emit(agent.ModelDelta{Kind: agent.ItemText, Text: "half "})
				return nil, &agent.ModelError{Status: 429, Message: "slow down", RetryAfter: 3 * time.Second}
			case req.Step == 1:
				return agenttest.Calls("work", `{}`), nil
			}
			emit(agent.ModelDelta{Kind: agent.ItemText, Text: "done"})
			return agenttest.Text("done"), nil
		}),
	}
	// Each attempt that finished something starts the count of failures anew.
	s.worker(worker.PoolConfig{Agents: []*agent.Agent{a}, MaxAttempts: 2, RetryDelay: soon(&asked)})
	in := s.ingress()
	id := in.submit("thread", "hello")
	frames := in.follow(id)
	checkStream(t, frames, 0)
	if got := spoken(t, frames); got != "done" {
		t.Errorf("heard %q", got)
	}
	var reasons []string
	for _, f := range frames {
		if f.Event == turn.TypeRestart {
			var told turn.Restart
			mustDecode(t, f.Data, &told)
			reasons = append(reasons, told.Reason+" "+strconv.Itoa(told.Failures))
		}
	}
	if !slices.Equal(reasons, []string{"retry 1", "retry 1"}) {
		t.Errorf("restarts: %q", reasons)
	}
	if result := in.wait(id); result.CommitStatus != session.Committed || result.Attempts != 3 || tools.Load() != 1 {
		t.Errorf("%d runs of the tool, %+v", tools.Load(), result)
	}
	if asked.Load() != int64(6*time.Second) {
		t.Errorf("the provider's Retry-After: %v", time.Duration(asked.Load()))
	}
}

// A model that panics each time: one terminal error, a dead letter that says why,
// and a redrive that makes a new turn of it.
func TestDeadLetter(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var calls, asked atomic.Int64
	var fixed atomic.Bool
	a := &agent.Agent{Name: "agent", Model: &agenttest.Model{Answer: func(context.Context, *agent.ModelRequest) (*agent.ModelResponse, error) {
		calls.Add(1)
		if fixed.Load() {
			return agenttest.Text("well"), nil
		}
		panic("out of luck")
	}}}
	s.worker(worker.PoolConfig{Agents: []*agent.Agent{a}, MaxAttempts: 3, RetryDelay: soon(&asked)})
	in := s.ingress()
	id := in.submit("thread", "hello")
	frames := in.follow(id)
	checkStream(t, frames, 0)
	result := in.wait(id)
	if result.Status != session.StatusError || result.Error.Code != turn.CodeInternal || result.Failures != 3 || calls.Load() != 3 {
		t.Errorf("%d calls, %+v", calls.Load(), result)
	}
	var letter struct {
		ID       string
		Failures int
		Error    turn.Error
		Request  turn.Request
	}
	status, body := in.do("GET", "/v1/dead/"+id, "")
	mustDecode(t, string(body), &letter)
	if status != 200 || letter.Failures != 3 || letter.Error.Message != "panic: out of luck" || letter.Request.Input.Message.Text != "hello" {
		t.Errorf("dead letter: %d %s", status, body)
	}
	fixed.Store(true)
	if other := in.ask("thread", "are you there?"); other.Output.Text != "well" {
		t.Errorf("the session meanwhile: %+v", other)
	}
	again := in.result(in.do("POST", "/v1/dead/"+id+"/redrive", ""))
	if again.Output.Text != "well" || again.RedriveOf != id || again.InvocationID != turn.RedriveID(id) {
		t.Errorf("redriven: %+v", again)
	}
	if status, body := in.do("GET", "/v1/dead/"+id, ""); status != 404 {
		t.Errorf("the letter is still there: %d %s", status, body)
	}
}

// A worker that stops lets its turn end; one that may not wait hands it over at
// once, which is no failure.
func TestHandOff(t *testing.T) {
	t.Parallel()
	s := setup(t)
	gate := agenttest.NewGate()
	var calls atomic.Int64
	stopping := s.worker(worker.PoolConfig{Agents: []*agent.Agent{halfThenGate(gate, "never", &calls)}})
	in := s.ingress()
	id := in.submit("thread", "hello")
	arrived(t, s.ctx, gate, "never")
	stopNow, cancel := context.WithCancel(s.ctx)
	cancel()
	stopping.Stop(stopNow)
	gate.Open("now")
	s.worker(worker.PoolConfig{Agents: []*agent.Agent{halfThenGate(gate, "now", &calls)}})
	frames := in.follow(id)
	checkStream(t, frames, 0)
	restart := slices.IndexFunc(frames, func(f frame) bool { return f.Event == turn.TypeRestart })
	if restart < 0 {
		t.Fatalf("no restart in %v", frames)
	}
	var told turn.Restart
	mustDecode(t, frames[restart].Data, &told)
	if told.Failures != 0 || told.Reason != turn.RestartHandoff {
		t.Errorf("restart: %+v", told)
	}
	if got := spoken(t, frames); got != "half and whole" {
		t.Errorf("heard %q", got)
	}
}

// A soft stop ends with every turn ended, and none started after it.
func TestSoftStop(t *testing.T) {
	t.Parallel()
	s := setup(t)
	gate := agenttest.NewGate()
	var calls atomic.Int64
	w := s.worker(worker.PoolConfig{Grace: guard, Agents: []*agent.Agent{halfThenGate(gate, "go", &calls)}})
	in := s.ingress()
	id := in.submit("thread", "hello")
	arrived(t, s.ctx, gate, "go")
	stopped := make(chan struct{})
	go func() { w.Stop(s.ctx); close(stopped) }()
	in.await(func() bool { return w.Ready() != nil })
	gate.Open("go")
	<-stopped
	if result := in.wait(id); result.CommitStatus != session.Committed || result.Attempts != 1 {
		t.Errorf("%s after %d attempts", result.CommitStatus, result.Attempts)
	}
}

// A turn whose agent this worker does not have goes to one that has it.
func TestAgentElsewhere(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var calls atomic.Int64
	other := echoAgent(&calls)
	other.Name = "other"
	s.worker(worker.PoolConfig{Agents: []*agent.Agent{other}})
	s.worker(worker.PoolConfig{Agents: []*agent.Agent{echoAgent(&calls)}})
	in := s.ingress()
	in.await(func() bool { status, body := in.do("GET", "/v1/agents", ""); return status == 200 && len(body) > 0 })
	for range 4 {
		if result := in.ask("", "hi"); result.Output.Text != "re: hi" || result.Error != nil {
			t.Errorf("%+v", result)
		}
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	s := setup(t)
	gate := agenttest.NewGate()
	var calls atomic.Int64
	none := 0
	s.worker(worker.PoolConfig{Concurrency: 1, Reserved: &none, Agents: []*agent.Agent{halfThenGate(gate, "never", &calls)}})
	here, there := s.ingress(), s.ingress()
	running := here.submit("thread", "running")
	arrived(t, s.ctx, gate, "never")
	queued := here.submit("thread", "queued")
	for _, id := range []string{queued, running, running} {
		status, body := there.do("POST", "/v1/turns/"+id+"/cancel", "")
		if status != 200 {
			t.Errorf("cancel: %d %s", status, body)
		}
	}
	for _, id := range []string{queued, running} {
		if result := here.wait(id); result.Status != session.StatusAborted || result.CommitStatus != "" {
			t.Errorf("%+v", result)
		}
		checkStream(t, there.follow(id), 0)
	}
	if got := calls.Load(); got != 1 {
		t.Errorf("the model was called %d times, want 1", got)
	}
	if _, err := s.store.Head(s.ctx, turn.DefaultTenant, "session_thread"); err == nil {
		t.Error("cancelled turns left a session")
	}
}

// The broker goes away and comes back while turns run: none is lost.
func TestBrokerRestart(t *testing.T) {
	t.Parallel()
	s := setup(t)
	gate := agenttest.NewGate()
	var calls atomic.Int64
	s.worker(worker.PoolConfig{Agents: []*agent.Agent{halfThenGate(gate, "go", &calls)}})
	in := s.ingress()
	var ids []string
	for range 10 {
		ids = append(ids, in.submit("", "hello"))
	}
	arrived(t, s.ctx, gate, "go")
	s.nats.Stop()
	gate.Open("go")
	s.nats.Start()
	for _, id := range ids {
		if result := in.wait(id); result.Output.Text != "half and whole" || result.CommitStatus != session.Committed {
			t.Errorf("%+v", result)
		}
		frames := in.persistently(id) // the ingress may not have the broker back yet
		checkStream(t, frames, 0)
		if got := spoken(t, frames); got != "half and whole" {
			t.Errorf("heard %q", got)
		}
	}
}

// streamedFirst is a store that looks, at each commit, at what of the turn has been
// stored for its readers.
type streamedFirst struct {
	session.Store
	log  func(id string) []turn.Frame
	last chan string
}

func (s *streamedFirst) Commit(ctx context.Context, slices []*session.Slice) ([]session.Outcome, error) {
	for _, slice := range slices {
		frames := s.log(slice.Turn.InvocationID)
		s.last <- frames[len(frames)-1].Type
	}
	return s.Store.Commit(ctx, slices)
}

// A turn is committed when all of it is stored for its readers, for it is not run
// again: a worker that is cut off between the two would keep them from the rest.
func TestStreamedBeforeCommitted(t *testing.T) {
	t.Parallel()
	s := setup(t)
	client := s.connect()
	s.store = &streamedFirst{Store: s.store, last: make(chan string, 1), log: func(id string) (frames []turn.Frame) {
		state, err := client.State(s.ctx, turn.DefaultTenant, id)
		if err != nil {
			t.Error(err)
		}
		reader, err := client.Follow(s.ctx, turn.DefaultTenant, id, 0)
		if err != nil {
			t.Error(err)
			return []turn.Frame{{}}
		}
		defer reader.Close()
		for int64(len(frames)) < state.NextSeq-1 {
			more, err := reader.Next(s.ctx)
			if err != nil {
				t.Error(err)
				break
			}
			frames = append(frames, more...)
		}
		return append([]turn.Frame{{}}, frames...)
	}}
	var calls atomic.Int64
	s.worker(worker.PoolConfig{Agents: []*agent.Agent{echoAgent(&calls)}})
	in := s.ingress()
	for range 10 {
		in.ask("", "a message of some length, in many pieces")
		if last := <-s.store.(*streamedFirst).last; last != session.TypeInvocationEnd {
			t.Errorf("committed after %s", last)
		}
	}
}
