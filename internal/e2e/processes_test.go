package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/session/postgres/postgrestest"
	"github.com/turnpool/turnpool/turn"
)

// shortAckWait is how long a silent worker keeps its turns in these tests. A machine
// that stands still for longer takes turns from workers that are well; so they may
// lose a turn as often as that happens, and it is never given up.
const (
	shortAckWait = 10 * time.Second
	manyAttempts = 1000
)

// fleet is a system of real processes: a NATS server, PostgreSQL, ingresses and
// workers.
type fleet struct {
	t        *testing.T
	ctx      context.Context
	bin      string
	postgres *postgrestest.Server
	env      []string
	natsPort int
	nats     *process
	gate     string
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	bin, postgres := programs(t)
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	t.Cleanup(cancel)
	f := &fleet{t: t, ctx: ctx, bin: bin, postgres: postgres, natsPort: freePort(t), gate: t.TempDir()}
	f.env = []string{
		"NATS_URL=nats://127.0.0.1:" + strconv.Itoa(f.natsPort), "DATABASE_URL=" + postgres.Database(t),
		"INGRESS_WAIT=2m", "NATS_TIMEOUT=" + patience.String(),
		"WORKER_ACK_WAIT=" + shortAckWait.String(), "WORKER_MAX_ATTEMPTS=" + strconv.Itoa(manyAttempts), gateDir + "=",
	}
	store := t.TempDir()
	f.nats = f.process("nats-server", filepath.Join(bin, "nats-server"), "-js", "-sd", store, "-a", "127.0.0.1", "-p", strconv.Itoa(f.natsPort))
	f.nats.start()
	return f
}

func freePort(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// process is a program that can be started again after it ended.
type process struct {
	t    *testing.T
	name string
	path string
	args []string
	env  []string
	cmd  *exec.Cmd
	out  output
	url  string
}

// output is what a process has written so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (f *fleet) process(name, path string, args ...string) *process {
	p := &process{t: f.t, name: name, path: path, args: args, env: f.env}
	f.t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		p.wait()
		if f.t.Failed() {
			f.t.Logf("%s:\n%s", name, p.out.String())
		}
	})
	return p
}

func (p *process) start() {
	p.t.Helper()
	p.cmd = exec.Command(p.path, p.args...)
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	// It must not outlive a test process that is killed.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) signal(s syscall.Signal) {
	if p.cmd != nil {
		p.cmd.Process.Signal(s)
	}
}

// wait waits for the end and returns the exit code, -1 after a signal.
func (p *process) wait() int {
	if p.cmd == nil {
		return 0
	}
	p.cmd.Wait()
	code := p.cmd.ProcessState.ExitCode()
	p.cmd = nil
	return code
}

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	p.wait()
}

// ready waits until a process says that it is.
func (f *fleet) ready(p *process) {
	f.t.Helper()
	await(f.t, f.ctx, p.name+" is ready", func() bool {
		resp, err := http.Get(p.url + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode == http.StatusOK
	})
}

// worker starts a worker with the built-in agents.
func (f *fleet) worker(name string) *process {
	f.t.Helper()
	addr := "127.0.0.1:" + strconv.Itoa(freePort(f.t))
	p := f.process(name, filepath.Join(f.bin, "worker"))
	p.env = append(slices.Clone(f.env), "WORKER_ADDR="+addr)
	p.url = "http://" + addr
	p.start()
	f.ready(p)
	return p
}

// gatedWorker starts a worker with the gated agent.
func (f *fleet) gatedWorker(name string) *process {
	f.t.Helper()
	p := f.process(name, os.Args[0])
	p.env = append(slices.Clone(f.env), gateDir+"="+f.gate)
	p.start()
	await(f.t, f.ctx, name+" is ready", func() bool { return strings.Contains(p.out.String(), "ready\n") })
	return p
}

func (f *fleet) openGate() {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.gate, "open"), nil, 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// ingress starts an ingress, for which there must be a worker, with a default agent.
func (f *fleet) ingress(name, agent string) (*process, *testIngress) {
	f.t.Helper()
	addr := "127.0.0.1:" + strconv.Itoa(freePort(f.t))
	p := f.process(name, filepath.Join(f.bin, "ingress"))
	p.env = append(slices.Clone(f.env), "INGRESS_ADDR="+addr, "INGRESS_DEFAULT_AGENT="+agent)
	p.url = "http://" + addr
	p.start()
	f.ready(p)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	f.t.Cleanup(client.CloseIdleConnections)
	return p, &testIngress{t: f.t, ctx: f.ctx, url: p.url, http: client}
}

// persistently reads a turn's stream to its end, coming back after every cut with
// the number of the last event it has.
func (in *testIngress) persistently(id string, frames ...frame) []frame {
	for len(frames) == 0 || frames[len(frames)-1].Event != turn.TypeResult {
		req, err := http.NewRequestWithContext(in.ctx, "GET", in.url+"/v1/turns/"+id+"/events", nil)
		if err != nil {
			in.t.Error(err)
			return frames
		}
		if len(frames) > 0 {
			req.Header.Set("Last-Event-ID", strconv.Itoa(frames[len(frames)-1].ID))
		}
		resp, err := in.http.Do(req)
		if err == nil && resp.StatusCode == http.StatusOK {
			for _, f := range readFrames(resp.Body, nil) {
				if f.ID > 0 { // not a word about the connection
					frames = append(frames, f)
				}
			}
		}
		if err == nil {
			resp.Body.Close()
		}
		if in.ctx.Err() != nil {
			in.t.Errorf("the stream of %s does not end", id)
			return frames
		}
		if err != nil || resp.StatusCode != http.StatusOK {
			in.pause() // as a browser does before it comes back
		}
	}
	return frames
}

// accepted submits a message until it is taken, and returns the turn's id. After an
// answer that says that the turn may still run, it asks whether it does.
func (in *testIngress) accepted(sessionID, message string) string {
	for in.ctx.Err() == nil {
		var got struct{ InvocationID, Instance string }
		switch in.try("POST", "/v1/turns", requestBody(sessionID, message), &got) {
		case http.StatusAccepted:
			return got.InvocationID
		case http.StatusServiceUnavailable:
			if _, id, unsure := strings.Cut(got.Instance, "/v1/turns/"); unsure && in.exists(id) {
				return id
			}
		}
		in.pause() // as a client does before it tries again
	}
	in.t.Error("nobody takes a turn")
	return ""
}

// exists asks until it is known whether there is a turn.
func (in *testIngress) exists(id string) bool {
	for in.ctx.Err() == nil {
		switch in.try("GET", "/v1/turns/"+id, "", &struct{}{}) {
		case http.StatusOK:
			return true
		case http.StatusNotFound:
			return false
		}
		in.pause()
	}
	return false
}

// try returns the status of an answer, 0 if there is none.
func (in *testIngress) try(method, path, body string, into any) int {
	req, err := http.NewRequestWithContext(in.ctx, method, in.url+path, strings.NewReader(body))
	if err != nil {
		in.t.Error(err)
		return 0
	}
	req.Header.Set("Prefer", "respond-async")
	resp, err := in.http.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return 0
	}
	return resp.StatusCode
}

const conciergeSays = "Booking B-42 is for 3 nights; you check out on Friday."

// checkTurn fails unless the stream is whole and says what the concierge says.
func checkTurn(t *testing.T, frames []frame) (restarts int) {
	t.Helper()
	checkStream(t, frames, 0)
	if got := spoken(t, frames); got != conciergeSays {
		t.Errorf("heard %q", got)
	}
	var result turn.Result
	mustDecode(t, frames[len(frames)-1].Data, &result)
	if result.Status != session.StatusCompleted || result.CommitStatus != session.Committed || result.Output.Text != conciergeSays {
		t.Errorf("result: %s", frames[len(frames)-1].Data)
	}
	for _, f := range frames {
		if f.Event == turn.TypeRestart {
			restarts++
		}
	}
	return restarts
}

// checkSession fails unless the ledger has n exchanges, each once.
func (in *testIngress) checkSession(id string, n int) {
	in.t.Helper()
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf("user: message %d", i), "assistant: "+conciergeSays)
	}
	if got := said(in.ledger(id)); !slices.Equal(got, want) {
		in.t.Errorf("ledger of %s: %q", id, got)
	}
}

// load has clients who each talk to the concierge in a session of their own, one
// turn after another, over the stream. Reached is called after each turn.
func load(in *testIngress, clients, perClient int, reached func(done int64)) (restarts int64) {
	var done, restarted atomic.Int64
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for n := range perClient {
				id := in.accepted("load-"+strconv.Itoa(c), "message "+strconv.Itoa(n))
				frames := in.persistently(id)
				if len(frames) == 0 {
					return
				}
				restarted.Add(int64(checkTurn(in.t, frames)))
				reached(done.Add(1))
			}
		})
	}
	all.Wait()
	if want := int64(clients * perClient); done.Load() != want {
		in.t.Errorf("%d turns done, want %d", done.Load(), want)
	}
	for c := range clients {
		in.checkSession("load-"+strconv.Itoa(c), perClient)
	}
	return restarted.Load()
}

// One of two workers is killed mid-way through 200 streamed turns, while it surely
// has one of them in its hands.
func TestWorkerProcessKilled(t *testing.T) {
	f := newFleet(t)
	victim := f.gatedWorker("worker 1")
	_, in := f.ingress("ingress", "talker")
	held := in.submitTo("gated", "held", "hello")
	in.stream("GET", "/v1/turns/"+held+"/events", "", func(f frame) bool { return f.Event == turn.TypeAssistantDelta })
	f.gatedWorker("worker 2")
	var once sync.Once
	load(in, 50, 4, func(done int64) {
		if done >= 40 {
			once.Do(victim.kill)
		}
	})
	f.openGate()
	frames := in.persistently(held)
	checkStream(t, frames, 0)
	if got := spoken(t, frames); got != "half and whole" {
		t.Errorf("heard %q", got)
	}
	if !slices.ContainsFunc(frames, func(f frame) bool { return f.Event == turn.TypeRestart }) {
		t.Error("the turn that the killed worker had was not started over")
	}
	if got := said(in.ledger("held")); !slices.Equal(got, []string{"user: hello", "assistant: half and whole"}) {
		t.Errorf("ledger: %q", got)
	}
}

// A worker that stands still past the ack wait has lost its turn: what it does when
// it wakes is seen by nobody.
func TestWorkerProcessFrozen(t *testing.T) {
	f := newFleet(t)
	frozen := f.gatedWorker("worker 1")
	_, in := f.ingress("ingress", "gated")
	id := in.submit("thread", "hello")
	in.stream("GET", "/v1/turns/"+id+"/events", "", func(f frame) bool { return f.Event == turn.TypeAssistantDelta })
	frozen.signal(syscall.SIGSTOP)
	second := f.gatedWorker("worker 2")
	in.stream("GET", "/v1/turns/"+id+"/events", "", func(f frame) bool { return f.Event == turn.TypeRestart })
	f.openGate()
	frames := in.persistently(id)
	frozen.signal(syscall.SIGCONT)
	await(t, f.ctx, "worker 1 knows that it lost the turn", func() bool { return strings.Contains(frozen.out.String(), "left to another attempt") })
	checkStream(t, frames, 0)
	if got := spoken(t, frames); got != "half and whole" {
		t.Errorf("heard %q", got)
	}
	if again := in.persistently(id); !slices.Equal(again, frames) {
		t.Errorf("the stream has changed: %v, was %v", again, frames)
	}
	result := in.wait(id)
	if result.CommitStatus != session.Committed || result.Attempts != 2 {
		t.Errorf("%s after %d attempts", result.CommitStatus, result.Attempts)
	}
	if got := said(in.ledger("thread")); !slices.Equal(got, []string{"user: hello", "assistant: half and whole"}) {
		t.Errorf("ledger: %q", got)
	}
	for _, p := range []*process{frozen, second} {
		p.signal(syscall.SIGTERM)
		if code := p.wait(); code != 0 {
			t.Errorf("%s: exit code %d", p.name, code)
		}
	}
}

// An ingress is killed and started again under open streams, which are the same
// streams afterwards.
func TestIngressProcessKilled(t *testing.T) {
	const streams = 20
	f := newFleet(t)
	f.gatedWorker("worker")
	p, in := f.ingress("ingress", "gated")
	heard := make([][]frame, streams)
	ids := make([]string, streams)
	var begun, ended sync.WaitGroup
	begun.Add(streams)
	for i := range streams {
		ended.Go(func() {
			ids[i] = in.submit("", "hello")
			half := false
			frames := in.stream("GET", "/v1/turns/"+ids[i]+"/events", "", func(f frame) bool {
				if f.Event == turn.TypeAssistantDelta && !half {
					half = true
					begun.Done()
				}
				return false // until it is cut
			})
			heard[i] = in.persistently(ids[i], frames...)
		})
	}
	begun.Wait()
	p.kill()
	p.start()
	f.ready(p)
	f.openGate()
	ended.Wait()
	for i, frames := range heard {
		checkStream(t, frames, 0)
		if got := spoken(t, frames); got != "half and whole" {
			t.Errorf("heard %q", got)
		}
		if whole := in.persistently(ids[i]); !slices.Equal(whole, frames) {
			t.Errorf("resumed: %v, whole: %v", frames, whole)
		}
	}
}

// A worker that is told to stop fails no turn and repeats none.
func TestWorkerProcessStopped(t *testing.T) {
	f := newFleet(t)
	stopping := f.worker("worker 1")
	f.worker("worker 2")
	_, in := f.ingress("ingress", "concierge")
	var once sync.Once
	restarts := load(in, 20, 3, func(done int64) {
		if done >= 20 {
			once.Do(func() {
				stopping.signal(syscall.SIGTERM)
				if code := stopping.wait(); code != 0 {
					t.Errorf("exit code %d", code)
				}
			})
		}
	})
	if restarts != 0 {
		t.Errorf("%d turns were started over", restarts)
	}
}

// The broker and the database are killed and started again under load.
func TestOutages(t *testing.T) {
	f := newFleet(t)
	if !f.postgres.Own() {
		t.Log("TEST_DATABASE_URL: the database is not killed")
	}
	f.worker("worker 1")
	f.worker("worker 2")
	_, in := f.ingress("ingress", "concierge")
	var broker, database sync.Once
	load(in, 12, 5, func(done int64) {
		if done >= 12 {
			broker.Do(func() {
				f.nats.kill()
				f.nats.start()
			})
		}
		if done >= 30 && f.postgres.Own() {
			database.Do(func() {
				f.postgres.Kill()
				if err := f.postgres.Restart(); err != nil {
					t.Error(err)
				}
			})
		}
	})
}
