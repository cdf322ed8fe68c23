package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/turnpool/turnpool/jetstream/embedded"
	"github.com/turnpool/turnpool/jetstream/natstest"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guard ends a test that hangs. Nothing is measured by it.
const guard = 2 * time.Minute

// kit is what a test starts with.
type kit struct {
	*Client
	t      testing.TB
	ctx    context.Context
	server *natstest.Server
}

// setup gives a test its own server, which has no port, and a client.
func setup(t testing.TB) *kit {
	t.Helper()
	return setupWith(t, embedded.Config{}, Config{})
}

func setupWith(t testing.TB, server embedded.Config, cfg Config) *kit {
	t.Helper()
	server.DontListen = true
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	t.Cleanup(cancel)
	k := &kit{t: t, ctx: ctx, server: natstest.RunConfig(t, server)}
	k.Client = k.connect(cfg)
	return k
}

// connect adds a client to the test's server.
func (k *kit) connect(cfg Config) *Client {
	k.t.Helper()
	cfg.Options = append(cfg.Options, k.server.ConnectOption(), nats.Timeout(guard))
	cfg.Logger = slog.New(slog.DiscardHandler)
	c, err := Connect(k.ctx, cfg)
	if err != nil {
		k.t.Fatal(err)
	}
	// On a machine that is busy an answer may take long; what no answer does is
	// tested with shorter waits.
	c.waits = waits{ack: guard, ask: guard, publish: guard, pull: guard}
	k.t.Cleanup(c.Close)
	return c
}

// restart stops the server and starts it again.
func (k *kit) restart() {
	k.t.Helper()
	reconnected := k.Reconnected()
	k.server.Stop()
	k.server.Start()
	k.receive(reconnected)
}

// receive waits until the channel is closed.
func (k *kit) receive(closed <-chan struct{}) {
	k.t.Helper()
	select {
	case <-closed:
	case <-k.ctx.Done():
		k.t.Fatal("waited in vain")
	}
}

// eventually waits until ok.
func (k *kit) eventually(what string, ok func() bool) {
	k.t.Helper()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for !ok() {
		select {
		case <-poll.C:
		case <-k.ctx.Done():
			k.t.Fatalf("waited in vain: %s", what)
		}
	}
}

func (k *kit) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

func wantError(t testing.TB, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("got error %v, want %v", got, want)
	}
}

// Turns.

const tenant = turn.DefaultTenant

func submission(lane turn.Lane) *turn.Submission {
	return &turn.Submission{
		Tenant:       tenant,
		InvocationID: turn.NewInvocationID(),
		Pool:         "default",
		Request: turn.Request{
			Agent:     "echo",
			SessionID: turn.NewSessionID(),
			Lane:      lane,
			Input:     turn.Input{Message: turn.Text("hello")},
		},
	}
}

// Events.

func note(text string) *session.Annotation {
	return &session.Annotation{EventBase: session.EventBase{ID: "event_" + text}, Kind: "log", Message: text}
}

func delta(messageID, text string) *turn.Delta {
	return &turn.Delta{Kind: turn.TypeAssistantDelta, MessageID: messageID, Delta: text}
}

func secret(text string) *session.StateChange {
	return &session.StateChange{Scope: "user", Source: "mutation", Changes: []session.Change{{Key: text}}}
}

func result(id string) *turn.Result {
	return &turn.Result{InvocationID: id, Status: session.StatusCompleted, Agent: "echo", Attempts: 1}
}

// newWriter is a writer of the test's own lifetime.
func (k *kit) newWriter(c *Client, id string, attempt int, last turn.LogState) turn.LogWriter {
	return c.Writer(k.ctx, tenant, id, attempt, last)
}

// write emits the events, one message each, as a first attempt would.
func (k *kit) write(id string, events ...turn.Event) turn.LogWriter {
	k.t.Helper()
	w := k.newWriter(k.Client, id, 1, turn.LogState{})
	k.emitEach(w, events...)
	return w
}

func (k *kit) emitEach(w turn.LogWriter, events ...turn.Event) {
	k.t.Helper()
	for _, e := range events {
		w.Emit(e)
		k.must(w.Flush(k.ctx))
	}
}

func (k *kit) state(id string) turn.LogState {
	k.t.Helper()
	s, err := k.State(k.ctx, tenant, id)
	k.must(err)
	return s
}

// records returns the turn's whole log.
func (k *kit) records(id string) (all []record) {
	k.t.Helper()
	for from, found := uint64(1), true; found; {
		var err error
		found, err = k.readBatch(k.ctx, k.cfg.logStream(), k.cfg.logSubject(tenant, id), from, func(m *storedMsg) {
			r, err := storedRecord(m)
			k.must(err)
			all, from = append(all, r), m.sequence+1
		})
		k.must(err)
	}
	return all
}

// logged returns what is in the turn's log, one short text an event, private
// ones included.
func (k *kit) logged(id string) (texts []string) {
	k.t.Helper()
	for _, r := range k.records(id) {
		lines := strings.Split(string(r.data), "\n")
		for i, t := range r.types {
			texts = append(texts, short(k.t, t, []byte(lines[i])))
		}
	}
	return texts
}

// short is the essence of an event in a test.
func short(t testing.TB, typ string, data []byte) string {
	t.Helper()
	var e struct{ Message, Delta, Type string }
	if err := json.Unmarshal(data, &e); err != nil {
		t.Fatalf("event %s: %v", data, err)
	}
	if e.Type != strings.TrimPrefix(typ, privateMark) {
		t.Fatalf("event %s was said to be of type %s", data, typ)
	}
	if text := e.Message + e.Delta; text != "" {
		return text
	}
	return typ
}

// Readers.

func (k *kit) watch(id string) turn.LogReader { return k.reader(k.Watch(k.ctx, tenant, id)) }

func (k *kit) follow(id string, after int64) turn.LogReader {
	return k.reader(k.Follow(k.ctx, tenant, id, after))
}

func (k *kit) reader(r turn.LogReader, err error) turn.LogReader {
	k.t.Helper()
	k.must(err)
	k.t.Cleanup(r.Close)
	return r
}

// readAll reads to the end of the turn.
func (k *kit) readAll(r turn.LogReader) (frames []turn.Frame) {
	k.t.Helper()
	for {
		more, err := r.Next(k.ctx)
		if errors.Is(err, io.EOF) {
			return frames
		}
		k.must(err)
		frames = append(frames, more...)
	}
}

// readN reads until it has n events, or more.
func (k *kit) readN(r turn.LogReader, n int) (frames []turn.Frame) {
	k.t.Helper()
	for len(frames) < n {
		more, err := r.Next(k.ctx)
		k.must(err)
		frames = append(frames, more...)
	}
	return frames
}

// texts checks that the frames are numbered one after another from the first
// number, and returns what they say.
func (k *kit) texts(frames []turn.Frame, first int64) (texts []string) {
	k.t.Helper()
	for i, f := range frames {
		if f.Seq != first+int64(i) {
			k.t.Fatalf("frame %d has number %d, want %d", i, f.Seq, first+int64(i))
		}
		texts = append(texts, short(k.t, f.Type, f.Data))
	}
	return texts
}

func numbered(n int) (events []turn.Event, texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprint("n", i+1))
		events = append(events, note(texts[i]))
	}
	return events, texts
}
