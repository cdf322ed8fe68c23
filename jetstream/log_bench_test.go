package jetstream

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/turnpool/turnpool/turn"
)

var token = strings.Repeat("x", 60)

// One event, flushed: the latency of a message that nobody else is in front of.
func BenchmarkWriterFlushEach(b *testing.B) {
	k := setup(b)
	w := k.newWriter(k.Client, turn.NewInvocationID(), 1, turn.LogState{})
	for b.Loop() {
		w.Emit(note(token))
		k.must(w.Flush(k.ctx))
	}
}

// Events as fast as they can be emitted, in messages of many.
func BenchmarkWriterFlood(b *testing.B) {
	k := setup(b)
	w := k.newWriter(k.Client, turn.NewInvocationID(), 1, turn.LogState{})
	n := 0
	for b.Loop() {
		w.Emit(note(token))
		if n++; n%1000 == 0 {
			k.must(w.Flush(k.ctx))
		}
	}
	k.must(w.Flush(k.ctx))
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
}

// Deltas of one text, which merge.
func BenchmarkWriterDeltas(b *testing.B) {
	k := setup(b)
	w := k.newWriter(k.Client, turn.NewInvocationID(), 1, turn.LogState{})
	n := 0
	for b.Loop() {
		w.Emit(delta("m", token))
		if n++; n%1000 == 0 {
			k.must(w.Flush(k.ctx))
		}
	}
	k.must(w.Flush(k.ctx))
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
}

// Many turns at once, an event a message: what the broker and the client take.
func BenchmarkWriters(b *testing.B) {
	for _, turns := range []int{16, 64, 256} {
		b.Run(fmt.Sprint(turns), func(b *testing.B) {
			k := setup(b)
			each := b.N/turns + 1
			var wg sync.WaitGroup
			b.ResetTimer()
			for range turns {
				wg.Go(func() {
					w := k.newWriter(k.Client, turn.NewInvocationID(), 1, turn.LogState{})
					for range each {
						w.Emit(note(token))
						if err := w.Flush(k.ctx); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(turns*each)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// Emit alone, of an event that has to be encoded and one that merges.
func BenchmarkEmit(b *testing.B) {
	limits := limitsFor(8 << 20)
	b.Run("event", func(b *testing.B) {
		b.ReportAllocs()
		backlog, e := backlog{limits: limits}, note(token)
		for b.Loop() {
			i, err := encodeItem(e, limits.maxEvent)
			if err != nil {
				b.Fatal(err)
			}
			backlog.add(i)
			if len(backlog.items) == 64 {
				backlog.take()
			}
		}
	})
	b.Run("delta", func(b *testing.B) {
		b.ReportAllocs()
		backlog, d := backlog{limits: limits}, delta("m", token)
		n := 0
		for b.Loop() {
			backlog.addDelta(d)
			if n++; n%64 == 0 {
				backlog.take()
			}
		}
	})
}

// A writer and readers of it, an event a message, to the last reader's last
// event.
func BenchmarkLive(b *testing.B) {
	for _, readers := range []int{1, 16} {
		b.Run(fmt.Sprint(readers), func(b *testing.B) {
			k := setup(b)
			id := turn.NewInvocationID()
			var wg sync.WaitGroup
			for range readers {
				r := k.watch(id)
				wg.Go(func() {
					if got := k.readAll(r); len(got) != b.N+1 {
						b.Errorf("%d events of %d", len(got), b.N+1)
					}
				})
			}
			b.ResetTimer()
			w := k.newWriter(k.Client, id, 1, turn.LogState{})
			for range b.N {
				k.emitEach(w, note(token))
			}
			k.emitEach(w, result(id))
			wg.Wait()
		})
	}
}

// A reader that comes when all is stored, in 1,000 messages.
func BenchmarkFollow(b *testing.B) {
	k := setup(b)
	id := turn.NewInvocationID()
	w := k.newWriter(k.Client, id, 1, turn.LogState{})
	for range 1000 {
		k.emitEach(w, note(token))
	}
	k.emitEach(w, result(id))
	b.ResetTimer()
	for b.Loop() {
		r, err := k.Follow(k.ctx, tenant, id, 0)
		k.must(err)
		k.readAll(r)
		r.Close()
	}
}

func BenchmarkPullAndAck(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			k := setup(b)
			consumer := k.consumer(Config{})
			for left := b.N; left > 0; left -= n {
				k.publishN(turn.LaneInteractive, n)
			}
			b.ResetTimer()
			for left := b.N; left > 0; left -= n {
				for _, d := range k.drain(consumer.Pull(k.ctx, turn.LaneInteractive, n, wait)) {
					k.must(d.Ack())
				}
			}
		})
	}
}

func BenchmarkPublish(b *testing.B) {
	k := setup(b)
	for b.Loop() {
		k.must(k.Publish(k.ctx, submission(turn.LaneInteractive)))
	}
}
