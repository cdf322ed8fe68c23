package e2e

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agenttest"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
	"github.com/turnpool/turnpool/worker"
)

func TestAnswerAndMemory(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var calls atomic.Int64
	s.worker(worker.PoolConfig{Agents: []*agent.Agent{echoAgent(&calls)}})
	in := s.ingress()
	first := in.ask("thread-42", "one")
	second := in.ask("session_thread-42", "two")
	if first.Output.Text != "re: one" || second.Output.Text != "re: two" {
		t.Errorf("answers: %q, %q", first.Output.Text, second.Output.Text)
	}
	if first.CommitStatus != session.Committed || second.Version != 2 {
		t.Errorf("first %s, second at version %d", first.CommitStatus, second.Version)
	}
	want := []string{"user: one", "assistant: re: one", "user: two", "assistant: re: two"}
	if got := said(in.ledger("thread-42")); !slices.Equal(got, want) {
		t.Errorf("ledger: %q", got)
	}
}

// 200 turns on 50 sessions, streamed by 50 clients at once through two ingresses
// and two workers: all answered once, numbered without holes; ledgers and
// versions add up.
func TestManyTurns(t *testing.T) {
	t.Parallel()
	const sessions, perSession = 50, 4
	s := setup(t)
	var calls atomic.Int64
	agents := []*agent.Agent{echoAgent(&calls)}
	s.worker(worker.PoolConfig{Agents: agents, Concurrency: 8})
	s.worker(worker.PoolConfig{Agents: agents, Concurrency: 8})
	ingresses := []*testIngress{s.ingress(), s.ingress()}
	var clients sync.WaitGroup
	for i := range sessions {
		clients.Go(func() {
			in := ingresses[i%2]
			id := "thread-" + strconv.Itoa(i)
			for n := range perSession {
				message := fmt.Sprintf("message %d of %s", n, id)
				frames := in.stream("POST", "/v1/turns", requestBody(id, message), nil)
				checkStream(t, frames, 0)
				if got := spoken(t, frames); got != "re: "+message {
					t.Errorf("heard %q", got)
				}
			}
		})
	}
	clients.Wait()
	if got := calls.Load(); got != sessions*perSession {
		t.Errorf("the model was called %d times, want %d", got, sessions*perSession)
	}
	for i := range sessions {
		id := "thread-" + strconv.Itoa(i)
		events := ingresses[0].ledger(id)
		if got := said(events); len(got) != 2*perSession {
			t.Errorf("%s: %q", id, got)
		}
		head, err := s.store.Head(s.ctx, turn.DefaultTenant, "session_"+id)
		if err != nil {
			t.Fatal(err)
		}
		if head.Version != perSession || head.EventCount != int64(len(events)) {
			t.Errorf("%s: version %d, %d events counted, %d read", id, head.Version, head.EventCount, len(events))
		}
	}
}

// A stream cut after any frame and resumed at another ingress is the same stream.
func TestStreamCutAnywhere(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var calls atomic.Int64
	s.worker(worker.PoolConfig{Agents: []*agent.Agent{echoAgent(&calls)}})
	here, there := s.ingress(), s.ingress()
	whole := here.stream("POST", "/v1/turns", requestBody("", "a message of some length, cut anywhere"), nil)
	checkStream(t, whole, 0)
	var result turn.Result
	mustDecode(t, whole[len(whole)-1].Data, &result)
	path := "/v1/turns/" + result.InvocationID + "/events"
	for cut := range len(whole) - 1 {
		rest := there.stream("GET", path, "", nil, "Last-Event-ID", strconv.Itoa(cut))
		if !reflect.DeepEqual(rest, whole[cut:]) {
			t.Fatalf("resumed after %d: %v, want %v", cut, rest, whole[cut:])
		}
	}
	status, _ := there.do("GET", path+"?after="+strconv.Itoa(len(whole)), "")
	if status != http.StatusNoContent {
		t.Errorf("resumed after the result: %d, want 204", status)
	}
}

// Live cuts: readers leave after each number of frames while the turn runs, and
// come back at the other ingress.
func TestStreamCutWhileRunning(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var calls atomic.Int64
	gate := agenttest.NewGate()
	s.worker(worker.PoolConfig{Agents: []*agent.Agent{gatedAgent(gate, &calls)}})
	ingresses := []*testIngress{s.ingress(), s.ingress()}
	id := ingresses[0].submit("", "hello over there")
	arrived(t, s.ctx, gate, "hello over there")
	var readers sync.WaitGroup
	for step := 1; step <= 4; step++ {
		readers.Go(func() {
			var got []frame
			for hop := 0; ; hop++ {
				n := 0
				part := ingresses[hop%2].stream("GET", "/v1/turns/"+id+"/events?after="+strconv.Itoa(len(got)), "",
					func(frame) bool { n++; return n == step })
				got = append(got, part...)
				if len(part) == 0 || part[len(part)-1].Event == turn.TypeResult {
					break
				}
			}
			checkStream(t, got, 0)
			if heard := spoken(t, got); heard != "re: hello over there" {
				t.Errorf("step %d heard %q", step, heard)
			}
		})
	}
	// The first events are there already; whoever wants more waits for the gate.
	gate.Open("hello over there")
	readers.Wait()
}

// Twenty posts with one key, at two ingresses at once, are one turn: everybody gets
// its answer, and the ledger has it once.
func TestOneKeyOneTurn(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var calls atomic.Int64
	s.worker(worker.PoolConfig{Agents: []*agent.Agent{echoAgent(&calls)}})
	ingresses := []*testIngress{s.ingress(), s.ingress()}
	results := make([]turn.Result, 20)
	var clients sync.WaitGroup
	for i := range results {
		clients.Go(func() {
			in := ingresses[i%2]
			results[i] = in.result(in.do("POST", "/v1/turns", requestBody("thread", "once"), "Idempotency-Key", "order-7"))
		})
	}
	clients.Wait()
	for _, r := range results {
		if r.InvocationID != results[0].InvocationID || r.Output.Text != "re: once" {
			t.Errorf("%+v", r)
		}
	}
	if got := said(ingresses[0].ledger("thread")); calls.Load() != 1 || !slices.Equal(got, []string{"user: once", "assistant: re: once"}) {
		t.Errorf("%d calls of the model, ledger %q", calls.Load(), got)
	}
	status, body := ingresses[1].do("POST", "/v1/turns", requestBody("thread", "twice"), "Idempotency-Key", "order-7")
	if status != http.StatusUnprocessableEntity {
		t.Errorf("another body: %d %s", status, body)
	}
}

// The races of the original, ordered by gates in the model.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var calls atomic.Int64
	gate := agenttest.NewGate()
	s.worker(worker.PoolConfig{Agents: []*agent.Agent{gatedAgent(gate, &calls)}})
	in := s.ingress()
	slow := in.submit("race", "first question")
	arrived(t, s.ctx, gate, "first question")
	in.tick(s)
	gate.Open("second question")
	fast := in.ask("race", "second question")
	gate.Open("first question")
	late := in.wait(slow)
	if fast.CommitStatus != session.Committed || late.CommitStatus != session.Skipped {
		t.Errorf("fast %s, slow %s", fast.CommitStatus, late.CommitStatus)
	}
	if late.Status != session.StatusCompleted || late.Output.Text != "re: first question" || late.Warning == "" {
		t.Errorf("the dropped turn's answer: %+v", late)
	}
	want := []string{"user: second question", "assistant: re: second question"}
	if got := said(in.ledger("race")); !slices.Equal(got, want) {
		t.Errorf("ledger: %q", got)
	}
}

func TestOlderCommitsFirst(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var calls atomic.Int64
	gate := agenttest.NewGate()
	s.worker(worker.PoolConfig{Agents: []*agent.Agent{gatedAgent(gate, &calls)}})
	in := s.ingress()
	older := in.submit("race", "first question")
	arrived(t, s.ctx, gate, "first question")
	in.tick(s)
	newer := in.submit("race", "second question")
	arrived(t, s.ctx, gate, "second question")
	gate.Open("first question")
	first := in.wait(older)
	gate.Open("second question")
	second := in.wait(newer)
	if first.CommitStatus != session.Committed || second.CommitStatus != session.Merged {
		t.Errorf("older %s, newer %s", first.CommitStatus, second.CommitStatus)
	}
	want := []string{
		"user: first question", "assistant: re: first question",
		"user: second question", "assistant: re: second question",
	}
	if got := said(in.ledger("race")); !slices.Equal(got, want) {
		t.Errorf("ledger: %q", got)
	}
}

// tick lets the broker's clock go on by a millisecond, so that a message sent
// after is newer than one sent before.
func (in *testIngress) tick(s *system) {
	in.t.Helper()
	client := s.connect()
	start, err := client.Now(s.ctx)
	if err != nil {
		in.t.Fatal(err)
	}
	in.await(func() bool {
		now, err := client.Now(s.ctx)
		return err == nil && now > start
	})
}
