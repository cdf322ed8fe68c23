package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpool/turnpool/turn"
)

// ended is a context that has ended: Next then returns what is there.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func TestWatch(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	r := k.watch(id)
	if frames, err := r.Next(ended); frames != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("nothing is there: %v, %v", frames, err)
	}
	w := k.write(id, note("a"), secret("s"))
	got := k.texts(k.readN(r, 1), 1)
	k.emitEach(w, delta("m", "b"), &turn.Released{}, result(id))
	frames := k.readAll(r)
	got = append(got, k.texts(frames, 2)...)
	if diff := cmp.Diff([]string{"a", "b", "result"}, got); diff != "" {
		t.Error(diff)
	}
	var end turn.Result
	k.must(json.Unmarshal(frames[len(frames)-1].Data, &end))
	if end.InvocationID != id {
		t.Errorf("the result is %+v", end)
	}
	for range 2 {
		if _, err := r.Next(k.ctx); err != io.EOF && !errors.Is(err, io.EOF) {
			t.Errorf("after the end: %v", err)
		}
	}
}

// Cut anywhere and taken up again, a turn's stream is the same.
func TestFollowFromEveryEvent(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	events, texts := numbered(9)
	w := k.newWriter(k.Client, id, 1, turn.LogState{})
	for i, e := range append(events, result(id)) {
		w.Emit(e)
		if i%3 == 1 {
			w.Emit(secret("s"))
			k.must(w.Flush(k.ctx))
		}
	}
	k.must(w.Flush(k.ctx))
	texts = append(texts, "result")
	for after := range len(texts) {
		got := k.texts(k.readAll(k.follow(id, int64(after))), int64(after)+1)
		if diff := cmp.Diff(texts[after:], got); diff != "" {
			t.Errorf("after %d: -want +got\n%s", after, diff)
		}
	}
	if got := k.readAll(k.follow(id, -1)); len(got) != len(texts) {
		t.Errorf("after -1: %d events", len(got))
	}
	for _, after := range []int64{10, 11, 1 << 40} {
		if frames, err := k.follow(id, after).Next(ended); len(frames) > 0 || !errors.Is(err, io.EOF) {
			t.Errorf("after %d: %v, %v", after, frames, err)
		}
	}
}

func TestFollowAnUnfinishedTurn(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	events, texts := numbered(8)
	empty := k.follow(id, 0)
	w := k.write(id, events[:4]...)
	all, end := k.follow(id, 0), k.follow(id, 4)
	if frames, err := end.Next(ended); frames != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("at the end: %v, %v", frames, err)
	}
	frames, err := all.Next(ended)
	k.must(err)
	k.emitEach(w, append(events[4:], result(id))...)
	texts = append(texts, "result")
	if diff := cmp.Diff(texts, k.texts(append(frames, k.readAll(all)...), 1)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(texts, k.texts(k.readAll(empty), 1)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(texts[4:], k.texts(k.readAll(end), 5)); diff != "" {
		t.Error(diff)
	}
}

// steal takes n live messages away from a reader.
func (k *kit) steal(r turn.LogReader, n int) {
	k.t.Helper()
	for range n {
		select {
		case <-r.(*reader).live:
		case <-k.ctx.Done():
			k.t.Fatal("no message to steal")
		}
	}
}

func TestMissedMessagesAreReadBack(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	events, texts := numbered(9)
	fromStart, inBetween := k.watch(id), k.watch(id)
	w := k.write(id, events[:3]...)
	k.steal(fromStart, 3)
	got := k.readN(inBetween, 3)
	k.emitEach(w, events[3:6]...)
	k.steal(inBetween, 3)
	k.emitEach(w, append(events[6:], result(id))...)
	texts = append(texts, "result")
	if diff := cmp.Diff(texts, k.texts(k.readAll(fromStart), 1)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(texts, k.texts(append(got, k.readAll(inBetween)...), 1)); diff != "" {
		t.Error(diff)
	}
}

func TestCheckFindsWhatWasMissed(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	r := k.watch(id)
	k.must(r.Check(k.ctx))
	k.write(id, note("a"), result(id))
	k.steal(r, 2)
	if frames, err := r.Next(ended); frames != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("before the check: %v, %v", frames, err)
	}
	k.must(r.Check(k.ctx))
	if diff := cmp.Diff([]string{"a", "result"}, k.texts(k.readAll(r), 1)); diff != "" {
		t.Error(diff)
	}
	k.must(r.Check(k.ctx))
	if _, err := r.Next(k.ctx); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

func TestSlowReaderMissesNothing(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	r := k.watch(id)
	events, texts := numbered(5 * liveBuffer)
	k.write(id, append(events, result(id))...)
	if diff := cmp.Diff(append(texts, "result"), k.texts(k.readAll(r), 1)); diff != "" {
		t.Error(diff)
	}
}

func TestManyStoredMessages(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	n := 2*batchMsgs + 10
	events, _ := numbered(n)
	k.write(id, append(events, result(id))...)
	if got := k.readAll(k.follow(id, 0)); len(got) != n+1 {
		t.Errorf("%d events", len(got))
	}
	k.texts(k.readAll(k.follow(id, 300)), 301)
}

func TestLargeStoredMessages(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	w := k.newWriter(k.Client, id, 1, turn.LogState{})
	for range 6 {
		k.emitEach(w, note(strings.Repeat("x", batchBytes/2+1)))
	}
	k.emitEach(w, result(id))
	if got := k.texts(k.readAll(k.follow(id, 0)), 1); len(got) != 7 {
		t.Errorf("%d events", len(got))
	}
}

// purgeBefore drops the turn's messages before its n-th.
func (k *kit) purgeBefore(id string, n int) {
	k.t.Helper()
	stream, err := k.js.Stream(k.ctx, k.cfg.logStream())
	k.must(err)
	sequence := k.records(id)[n-1].sequence
	k.must(stream.Purge(k.ctx, jetstream.WithPurgeSubject(k.cfg.logSubject(tenant, id)), jetstream.WithPurgeSequence(sequence)))
}

func TestExpired(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	events, texts := numbered(6)
	late := k.watch(id)
	w := k.write(id, events...)
	k.purgeBefore(id, 4)
	for after := range int64(7) {
		frames, err := k.follow(id, after).Next(ended)
		switch {
		case after < 3:
			if len(frames) > 0 || !errors.Is(err, turn.ErrExpired) {
				t.Errorf("after %d: %v, %v", after, frames, err)
			}
		case after < 6:
			k.must(err)
			if diff := cmp.Diff(texts[after:], k.texts(frames, after+1)); diff != "" {
				t.Errorf("after %d: %s", after, diff)
			}
		default:
			wantError(t, err, context.Canceled)
		}
	}

	k.steal(late, 6)
	k.emitEach(w, note("more"))
	for range 2 {
		frames, err := late.Next(k.ctx)
		if len(frames) > 0 {
			t.Errorf("got %v", frames)
		}
		wantError(t, err, turn.ErrExpired)
	}
}

func TestWhollyExpired(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	missed, seen := k.watch(id), k.watch(id)
	w := k.write(id, note("a"), note("b"))
	k.texts(k.readN(seen, 2), 1)
	k.steal(missed, 2)
	k.must(missed.Check(k.ctx)) // it now knows that there are some
	stream, err := k.js.Stream(k.ctx, k.cfg.logStream())
	k.must(err)
	k.must(stream.Purge(k.ctx))
	_, err = missed.Next(k.ctx)
	wantError(t, err, turn.ErrExpired)
	_, err = k.follow(id, 2).Next(ended)
	wantError(t, err, turn.ErrExpired)

	// Who has seen all of it goes on.
	k.must(seen.Check(k.ctx))
	k.emitEach(w, note("c"), result(id))
	if diff := cmp.Diff([]string{"c", "result"}, k.texts(k.readAll(seen), 3)); diff != "" {
		t.Error(diff)
	}
	_, err = k.watch(id).(*reader).Next(ended)
	wantError(t, err, context.Canceled)
	_, err = k.follow(id, 0).Next(ended)
	wantError(t, err, turn.ErrExpired)
}

func TestReadersAcrossRestart(t *testing.T) {
	t.Parallel()
	k := setup(t)
	c := k.connect(Config{})
	id := turn.NewInvocationID()
	var readers []turn.LogReader
	for range 3 {
		readers = append(readers, k.reader(c.Watch(k.ctx, tenant, id)))
	}
	readers = append(readers, k.reader(c.WatchResult(k.ctx, tenant, id)))
	events, texts := numbered(8)
	w := k.write(id, events[:4]...)

	var wg sync.WaitGroup
	got := make([][]turn.Frame, len(readers))
	for i, r := range readers {
		wg.Go(func() { got[i] = k.readAll(r) })
	}
	k.restart()
	k.emitEach(w, append(events[4:], result(id))...)
	wg.Wait()
	for _, frames := range got[:3] {
		if diff := cmp.Diff(append(texts, "result"), k.texts(frames, 1)); diff != "" {
			t.Error(diff)
		}
	}
	if diff := cmp.Diff([]string{"result"}, k.texts(got[3], 9)); diff != "" {
		t.Error(diff)
	}
}

func TestReaderWithoutBroker(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	r := k.watch(id)
	k.server.Stop()
	wantError(t, r.Check(k.ctx), turn.ErrUnavailable)
	_, err := k.Follow(k.ctx, tenant, id, 0)
	wantError(t, err, turn.ErrUnavailable)
	_, err = k.State(k.ctx, tenant, id)
	wantError(t, err, turn.ErrUnavailable)
	ctx, cancel := context.WithCancel(k.ctx)
	read := make(chan error, 1)
	go func() {
		_, err := r.Next(ctx)
		read <- err
	}()
	cancel()
	wantError(t, <-read, context.Canceled)
}

func TestCloseEndsNext(t *testing.T) {
	t.Parallel()
	k := setup(t)
	r := k.watch(turn.NewInvocationID())
	read := make(chan error, 1)
	go func() {
		_, err := r.Next(k.ctx)
		read <- err
	}()
	r.Close()
	r.Close()
	if err := <-read; err == nil || k.ctx.Err() != nil {
		t.Errorf("Next of a closed reader: %v", err)
	}
}

func TestWatchResult(t *testing.T) {
	t.Parallel()
	k := setup(t)
	id := turn.NewInvocationID()
	live := k.reader(k.WatchResult(k.ctx, tenant, id))
	events, _ := numbered(2 * liveBuffer)
	w := k.write(id, events...)
	k.steal(live, 1)
	if frames, err := live.Next(ended); frames != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", frames, err)
	}
	w.Emit(note("with the result"))
	w.Emit(result(id))
	k.must(w.Flush(k.ctx))
	if got := k.texts(k.readAll(live), int64(2*liveBuffer)+2); len(got) != 1 || got[0] != "result" {
		t.Errorf("got %v", got)
	}

	late := k.reader(k.WatchResult(k.ctx, tenant, id))
	k.must(late.Check(k.ctx))
	k.must(late.Check(k.ctx))
	if got := k.texts(k.readAll(late), int64(2*liveBuffer)+2); len(got) != 1 || got[0] != "result" {
		t.Errorf("got %v", got)
	}
}

func TestForeignMessagesInALog(t *testing.T) {
	t.Parallel()
	k := setup(t)
	for name, header := range map[string]nats.Header{
		"no headers": nil,
		"two types":  (&record{attempt: 1, seq: 1, types: []string{"a", "b"}}).header(),
	} {
		id := turn.NewInvocationID()
		live := k.watch(id)
		_, err := k.js.PublishMsg(k.ctx, &nats.Msg{Subject: k.cfg.logSubject(tenant, id), Header: header, Data: []byte("{}")})
		k.must(err)
		for _, r := range []turn.LogReader{live, k.follow(id, 0)} {
			frames, err := r.Next(k.ctx)
			if len(frames) > 0 || err == nil || errors.Is(err, turn.ErrUnavailable) {
				t.Errorf("%s: %v, %v", name, frames, err)
			}
		}
	}
	if _, err := k.Watch(k.ctx, "*", turn.NewInvocationID()); err == nil {
		t.Error("watched with a wildcard")
	}
}

// 10,000 deltas from several goroutines; readers that come at any time, and are
// cut and taken up again at any event. Each sees every event once, in order.
func TestFlood(t *testing.T) {
	t.Parallel()
	k := setup(t)
	const goroutines, each = 8, 1250
	id := turn.NewInvocationID()
	w := k.newWriter(k.Client, id, 1, turn.LogState{})
	others := k.connect(Config{})
	watching := k.watch(id)

	var wg sync.WaitGroup
	streams := make([][]turn.Frame, 6)
	for i := range streams {
		wg.Go(func() {
			if i == 0 {
				streams[i] = k.readAll(watching)
				return
			}
			streams[i] = k.readInPieces(others, id)
		})
	}
	var writers sync.WaitGroup
	for g := range goroutines {
		writers.Go(func() {
			for i := range each {
				w.Emit(delta(fmt.Sprint("m", g), fmt.Sprint(i, ";")))
			}
		})
	}
	writers.Wait()
	k.emitEach(w, result(id))
	wg.Wait()

	for i, frames := range streams {
		texts := map[string]string{}
		for n, f := range frames {
			if f.Seq != int64(n)+1 {
				t.Fatalf("reader %d: frame %d has number %d", i, n, f.Seq)
			}
			var d turn.Delta
			k.must(json.Unmarshal(f.Data, &d))
			texts[d.MessageID] += d.Delta
		}
		if len(frames) != len(streams[0]) {
			t.Errorf("reader %d got %d events, reader 0 %d", i, len(frames), len(streams[0]))
		}
		var want strings.Builder
		for n := range each {
			fmt.Fprint(&want, n, ";")
		}
		for g := range goroutines {
			if texts[fmt.Sprint("m", g)] != want.String() {
				t.Errorf("reader %d: text %d differs", i, g)
			}
		}
	}
}

// readInPieces reads a turn through many readers, each of which is dropped after
// some events, and some of which lose live messages.
func (k *kit) readInPieces(c *Client, id string) (frames []turn.Frame) {
	for {
		r, err := c.Follow(k.ctx, tenant, id, int64(len(frames)))
		k.must(err)
		for range rand.IntN(10) {
			more, err := r.Next(k.ctx)
			if errors.Is(err, io.EOF) {
				r.Close()
				return frames
			}
			k.must(err)
			if cut := rand.IntN(2 * len(more)); cut < len(more) {
				frames = append(frames, more[:cut]...)
				break
			}
			frames = append(frames, more...)
			if rand.IntN(4) == 0 {
				select {
				case <-r.(*reader).live: // lost
				default:
				}
				k.must(r.Check(k.ctx))
			}
		}
		r.Close()
	}
}
