package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpool/turnpool/jetstream/embedded"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// wantLog checks the turn's log, and that its visible events are numbered
// without a hole.
func (k *kit) wantLog(id string, want ...string) {
	k.t.Helper()
	if diff := cmp.Diff(want, k.logged(id)); diff != "" {
		k.t.Errorf("log: -want +got\n%s", diff)
	}
	next := int64(1)
	for _, r := range k.records(id) {
		if r.seq != next {
			k.t.Errorf("message %d begins with %d, want %d", r.sequence, r.seq, next)
		}
		next = r.seq + r.visible()
	}
}

func TestWriter(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	if got := k.state(id); got != emptyLog {
		t.Errorf("state of an empty log: %+v", got)
	}
	w := k.write(id, note("a"), secret("s"), delta("m", "b"), note("c"))
	k.wantLog(id, "a", "-state_change", "b", "c")
	state := k.state(id)
	if state.Attempt != 1 || state.NextSeq != 4 || state.Released || state.Finished || state.WriterID == "" || state.Sequence == 0 {
		t.Errorf("state %+v", state)
	}
	k.emitEach(w, &turn.Released{Attempt: 1})
	if state := k.state(id); !state.Released || state.NextSeq != 4 {
		t.Errorf("state after a mark: %+v", state)
	}
	k.emitEach(w, result(id))
	if state := k.state(id); !state.Finished || state.NextSeq != 5 {
		t.Errorf("state after the result: %+v", state)
	}
	w.Emit(note("late"))
	k.must(w.Flush(k.ctx))
	k.must(w.Flush(k.ctx))
	k.wantLog(id, "a", "-state_change", "b", "c", "-released", "result")
}

func TestNothingWrittenIsNoMessage(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	k.must(k.write(id).Flush(k.ctx))
	k.emitEach(k.write(id), delta("m", ""), delta("m", "\xe2"))
	k.wantLog(id)
}

func TestJudge(t *testing.T) {
	t.Parallel()
	at := func(seq uint64, attempt int, writer string) turn.LogState {
		return turn.LogState{Sequence: seq, Attempt: attempt, WriterID: writer}
	}
	finished := at(9, 1, "other")
	finished.Finished = true
	// The writer is "me", of attempt 2.
	tests := []struct {
		name         string
		first, wrote bool
		tail         uint64
		last         turn.LogState
		want         verdict
	}{
		{"still empty", true, false, 0, emptyLog, verdictAgain},
		{"still the same", false, false, 5, at(5, 1, "other"), verdictAgain},
		{"still my own", false, true, 5, at(5, 2, "me"), verdictAgain},
		{"mine", true, false, 0, at(5, 2, "me"), verdictStored},
		{"mine after others", false, false, 5, at(6, 2, "me"), verdictStored},
		{"a result", false, true, 5, finished, verdictLost},
		{"a result, knowing nothing", true, false, 0, finished, verdictLost},
		{"a later attempt", false, true, 5, at(9, 3, "other"), verdictLost},
		{"a later attempt, knowing nothing", true, false, 0, at(9, 3, "other"), verdictLost},
		{"the same attempt", false, false, 5, at(9, 2, "other"), verdictLost},
		{"the same attempt after mine", true, true, 5, at(9, 2, "other"), verdictLost},
		{"the same attempt, knowing nothing", true, false, 0, at(9, 2, "other"), verdictTaken},
		{"an earlier attempt, knowing nothing", true, false, 0, at(9, 1, "other"), verdictTaken},
		{"an earlier attempt", false, false, 5, at(9, 1, "other"), verdictMoved},
		{"an earlier attempt between mine", true, true, 5, at(9, 1, "other"), verdictMoved},
		{"emptied", false, true, 5, emptyLog, verdictMoved},
	}
	for _, test := range tests {
		w := &writer{id: "me", attempt: 2, first: test.first, wrote: test.wrote, tail: position{sequence: test.tail}}
		if got := w.judge(test.last); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// wantRefused emits an event, which must be refused for good.
func (k *kit) wantRefused(w turn.LogWriter, want error) {
	k.t.Helper()
	w.Emit(note("refused"))
	wantError(k.t, w.Flush(k.ctx), want)
	k.receive(w.Lost())
	w.Emit(note("refused again"))
	wantError(k.t, w.Flush(k.ctx), want)
}

func TestLaterAttemptFencesTheEarlier(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	zombie := k.write(id, note("a"))
	next := k.newWriter(k.Client, id, 2, k.state(id))
	k.emitEach(next, note("b"))
	k.wantRefused(zombie, turn.ErrLost)
	k.emitEach(next, note("c"))
	k.wantLog(id, "a", "b", "c")
}

func TestEarlierAttemptWritesLate(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	zombie := k.write(id, note("a"))
	next := k.newWriter(k.Client, id, 2, k.state(id))
	k.emitEach(zombie, note("late"), secret("late"))
	k.emitEach(next, note("b"))
	k.wantRefused(zombie, turn.ErrLost)
	k.emitEach(next, note("c"))
	k.wantLog(id, "a", "late", "-state_change", "b", "c")
}

func TestTwoFirstAttempts(t *testing.T) {
	t.Parallel()
	k := setup(t)
	for _, attempt := range []int{1, 2} {
		id := turn.NewInvocationID()
		one := k.write(id, note("a"))
		other := k.newWriter(k.Client, id, attempt, turn.LogState{})
		k.wantRefused(other, turn.ErrTaken)
		k.emitEach(one, note("b"))
		k.wantLog(id, "a", "b")
	}
}

func TestTwoSecondAttempts(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	k.write(id, note("a"))
	one := k.newWriter(k.Client, id, 2, k.state(id))
	other := k.newWriter(k.Client, id, 2, k.state(id))
	k.emitEach(one, note("b"))
	k.wantRefused(other, turn.ErrLost)
	k.emitEach(one, note("c"))
	k.wantLog(id, "a", "b", "c")
}

func TestFinishedLogTakesNothing(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	w := k.write(id, note("a"))
	late := k.newWriter(k.Client, id, 3, k.state(id))
	k.must(k.Finish(k.ctx, tenant, id, result(id)))
	k.wantRefused(w, turn.ErrLost)
	k.wantRefused(late, turn.ErrLost)
	k.wantRefused(k.newWriter(k.Client, id, 1, turn.LogState{}), turn.ErrLost)
	k.wantRefused(k.newWriter(k.Client, id, 4, k.state(id)), turn.ErrLost)
	k.wantLog(id, "a", "result")
}

func TestFinish(t *testing.T) {
	t.Parallel()
	k := setup(t)
	empty, begun := turn.NewInvocationID(), turn.NewInvocationID()
	k.write(begun, note("a"))
	k.emitEach(k.newWriter(k.Client, begun, 4, k.state(begun)), note("b"), secret("s"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, id := range []string{empty, begun} {
				if err := k.Finish(k.ctx, tenant, id, result(id)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	k.wantLog(empty, "result")
	k.wantLog(begun, "a", "b", "-state_change", "result")
	if s := k.state(begun); !s.Finished || s.Attempt != 4 || s.NextSeq != 4 {
		t.Errorf("state %+v", s)
	}
	if s := k.state(empty); s.Attempt != 1 {
		t.Errorf("state %+v", s)
	}
}

func TestFinishAgainstAWriter(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	w := k.newWriter(k.Client, id, 1, turn.LogState{})
	finished := make(chan error, 1)
	go func() { finished <- k.Finish(k.ctx, tenant, id, result(id)) }()
	for lost := false; !lost; {
		w.Emit(note("x"))
		err := w.Flush(k.ctx)
		if lost = err != nil; lost && !errors.Is(err, turn.ErrLost) {
			t.Fatal(err)
		}
	}
	k.must(<-finished)
	log := k.logged(id)
	if n := len(log); log[n-1] != "result" || strings.Count(strings.Join(log, " "), "result") != 1 {
		t.Errorf("log ends in %v", log[max(0, n-3):])
	}
}

func TestFinishFails(t *testing.T) {
	t.Parallel()
	k := setupWith(t, embedded.Config{MaxPayload: 64 << 10}, Config{})
	id := turn.NewInvocationID()
	big := result(id)
	big.Output.Text = strings.Repeat("x", 64<<10)
	wantError(t, k.Finish(k.ctx, tenant, id, big), turn.ErrTooLarge)
	bad := result(id)
	bad.Output.Value = json.RawMessage("{")
	if err := k.Finish(k.ctx, tenant, id, bad); err == nil {
		t.Error("a result that is no JSON was stored")
	}
	k.server.Stop()
	ctx, cancel := context.WithCancel(k.ctx)
	cancel()
	wantError(t, k.Finish(ctx, tenant, id, result(id)), turn.ErrUnavailable)
}

func TestWriterAcrossRestart(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	events, texts := numbered(60)
	w := k.write(id, events[:20]...)
	k.server.Stop()
	for _, e := range events[20:40] {
		w.Emit(e)
	}
	ended, cancel := context.WithCancel(k.ctx)
	cancel()
	if err := w.Flush(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("flush without a broker: %v", err)
	}
	k.server.Start()
	for _, e := range events[40:] {
		w.Emit(e)
	}
	k.must(w.Flush(k.ctx))
	k.wantLog(id, texts...)
}

// Acknowledgements that come too late, and connections that break, leave the
// writer not knowing what is stored.
func TestWriterWhoseAcksAreLost(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	c := k.connect(Config{})
	c.waits.ack = 100 * time.Microsecond
	w := k.newWriter(c, id, 1, turn.LogState{})
	events, texts := numbered(90)
	for i, e := range events {
		w.Emit(e)
		if i == 30 || i == 60 {
			k.must(c.nc.ForceReconnect())
		}
		if rand.IntN(6) == 0 {
			k.must(w.Flush(k.ctx))
		}
	}
	k.must(w.Flush(k.ctx))
	k.wantLog(id, texts...)
}

func TestDeltasOfAnAbsentBrokerTravelTogether(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	w := k.write(id, delta("m", "first "))
	k.server.Stop()
	var want strings.Builder
	for i := range 1000 {
		text := fmt.Sprint(i, " ")
		want.WriteString(text)
		w.Emit(delta("m", text))
	}
	k.server.Start()
	k.must(w.Flush(k.ctx))
	log := k.logged(id)
	if got := strings.Join(log, ""); got != "first "+want.String() {
		t.Errorf("got %s", got)
	}
	if len(log) > 3 { // one was in flight when the broker went
		t.Errorf("%d deltas", len(log))
	}
}

func TestOversizeEvent(t *testing.T) {
	t.Parallel()
	k := setupWith(t, embedded.Config{MaxPayload: 1 << 20}, Config{})
	id := turn.NewInvocationID()
	w := k.write(id, note("a"))
	w.Emit(note("b"))
	w.Emit(note(strings.Repeat("x", 1<<20)))
	w.Emit(note("c"))
	wantError(t, w.Flush(k.ctx), turn.ErrTooLarge)
	select {
	case <-w.Lost():
		t.Error("the log is not lost")
	default:
	}
	k.must(k.Finish(k.ctx, tenant, id, result(id)))
	k.wantLog(id, "a", "b", "result")
}

func TestEventTheStreamRefuses(t *testing.T) {
	t.Parallel()
	k := setup(t)
	stream, err := k.js.Stream(k.ctx, k.cfg.logStream())
	k.must(err)
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgSize = 1000
	_, err = k.js.UpdateStream(k.ctx, cfg)
	k.must(err)
	id := turn.NewInvocationID()
	w := k.write(id, note("a"))
	w.Emit(note(strings.Repeat("x", 1000)))
	wantError(t, w.Flush(k.ctx), turn.ErrTooLarge)
	w.Emit(note("b"))
	wantError(t, w.Flush(k.ctx), turn.ErrTooLarge)
	k.wantLog(id, "a")
}

func TestLargeEventsAndTexts(t *testing.T) {
	t.Parallel()
	k := setupWith(t, embedded.Config{MaxPayload: 1 << 20}, Config{})
	id := turn.NewInvocationID()
	text := strings.Repeat("é\x00\"<", 300_000) // 1.5 MB, more as JSON
	tool := &session.ToolResult{CallID: "c", Name: "n", Error: strings.Repeat("x", 900<<10)}
	w := k.write(id, note("a"))
	w.Emit(delta("m", text))
	w.Emit(tool)
	w.Emit(note("b"))
	k.must(w.Flush(k.ctx))
	log := k.logged(id)
	n := len(log)
	if got := strings.Join(log[1:n-2], ""); got != text {
		t.Errorf("text of %d bytes came out as %d", len(text), len(got))
	}
	if log[n-2] != session.TypeToolResult || log[n-1] != "b" {
		t.Errorf("log ends in %v", log[n-2:])
	}
}

func TestWriterEndsWithItsContext(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	cause := errors.New("the turn is over")
	ctx, cancel := context.WithCancelCause(k.ctx)
	w := k.Writer(ctx, tenant, id, 1, turn.LogState{})
	k.emitEach(w, note("a"))
	k.server.Stop()
	w.Emit(note("b"))
	cancel(cause)
	wantError(t, w.Flush(k.ctx), cause)
	w.Emit(note("c"))
	wantError(t, w.Flush(k.ctx), cause)

	idle := k.Writer(ctx, tenant, id, 1, turn.LogState{})
	k.must(idle.Flush(k.ctx))
	idle.Emit(note("d"))
	wantError(t, idle.Flush(k.ctx), cause)
}

// When the stream drops the oldest events while a turn runs, the turn goes on.
func TestLogIsCutOffBehindTheWriter(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	w := k.write(id, note("a"), note("b"))
	stream, err := k.js.Stream(k.ctx, k.cfg.logStream())
	k.must(err)
	k.must(stream.Purge(k.ctx, jetstream.WithPurgeSubject(k.cfg.logSubject(tenant, id))))
	k.emitEach(w, note("c"))
	if diff := cmp.Diff([]string{"c"}, k.logged(id)); diff != "" {
		t.Error(diff)
	}
	if s := k.state(id); s.NextSeq != 4 {
		t.Errorf("state %+v", s)
	}
}

func TestWritersOfManyGoroutines(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	w := k.newWriter(k.Client, id, 1, turn.LogState{})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				w.Emit(note(fmt.Sprintf("%d.%d", g, i)))
				if err := w.Flush(k.ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	log := k.logged(id)
	next := map[string]int{}
	for _, text := range log {
		g, i, _ := strings.Cut(text, ".")
		if i != fmt.Sprint(next[g]) {
			t.Errorf("goroutine %s: %s comes after %d events", g, i, next[g])
		}
		next[g]++
	}
	if len(log) != 8*50 {
		t.Errorf("%d events", len(log))
	}
}
