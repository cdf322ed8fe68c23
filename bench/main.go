// Command bench measures what the pipeline adds to a turn: the same scripted
// agent, asked over HTTP through the broker and the store, in process through
// worker.Handler, and beside both a bare NATS request and reply, all in this
// process on loopback. It prints times and their ratios; figures of two machines,
// or of two runs, compare only by the ratios.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	turns := flag.Int("turns", 2000, "turns of each measurement")
	rounds := flag.Int("rounds", 3, "rounds; the median of the rounds is printed")
	flag.Parse()

	dir, err := os.MkdirTemp("", "turnpool-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p, err := start(ctx, dir)
	if err != nil {
		return err
	}
	defer p.stop()

	subjects := []subject{
		{"nats request-reply", p.requestReply},
		{"handler, memory store", p.handler(p.memory)},
		{"handler, sqlite store", p.handler(p.sqlite)},
		{"pipeline, json", p.json},
		{"pipeline, sse", p.sse},
	}
	out := tabwriter.NewWriter(os.Stdout, 2, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "at once\tway\tfirst p50\tfirst p99\tresult p50\tresult p99\tturns/s\tx handler\t")
	for _, atOnce := range []int{1, 64} {
		var base time.Duration
		for _, s := range subjects {
			n := *turns
			if atOnce == 1 {
				n /= 4
			}
			m, err := median(ctx, *rounds, func() (measure, error) { return load(ctx, n, atOnce, s.ask) })
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if s.name == "handler, sqlite store" {
				base = m.result50
			}
			ratio := "-"
			if base > 0 {
				ratio = fmt.Sprintf("%.1f", float64(m.result50)/float64(base))
			}
			fmt.Fprintf(out, "%d\t%s\t%s\t%s\t%s\t%s\t%.0f\t%s\t\n", atOnce, s.name,
				ms(m.first50), ms(m.first99), ms(m.result50), ms(m.result99), m.perSecond, ratio)
		}
	}
	return out.Flush()
}

// subject is a way to ask for one turn. It returns when the first delta came,
// the zero time if it cannot tell.
type subject struct {
	name string
	ask  func(ctx context.Context, n int) (first time.Time, err error)
}

// measure is what one load run showed.
type measure struct {
	first50, first99, result50, result99 time.Duration
	perSecond                            float64
}

// load asks n times, atOnce at a time, after a warm-up.
func load(ctx context.Context, n, atOnce int, ask func(context.Context, int) (time.Time, error)) (measure, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for i := range min(n/10, 50) {
		if _, err := ask(ctx, -1-i); err != nil {
			return measure{}, err
		}
	}
	firsts, results := make([]time.Duration, n), make([]time.Duration, n)
	var next atomic.Int64
	var failed error
	var once sync.Once
	var all sync.WaitGroup
	began := time.Now()
	for range atOnce {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || ctx.Err() != nil {
					return
				}
				at := time.Now()
				first, err := ask(ctx, i)
				if err != nil {
					once.Do(func() { failed = err; cancel() })
					return
				}
				results[i] = time.Since(at)
				if !first.IsZero() {
					firsts[i] = first.Sub(at)
				}
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	if failed == nil {
		failed = ctx.Err()
	}
	return measure{
		first50: quantile(firsts, 0.5), first99: quantile(firsts, 0.99),
		result50: quantile(results, 0.5), result99: quantile(results, 0.99),
		perSecond: float64(n) / took.Seconds(),
	}, failed
}

// median runs a measurement several times and returns the one whose median
// result time is the median.
func median(ctx context.Context, rounds int, run func() (measure, error)) (measure, error) {
	var all []measure
	for range rounds {
		m, err := run()
		if err != nil {
			return measure{}, err
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b measure) int { return int(a.result50 - b.result50) })
	return all[len(all)/2], ctx.Err()
}

func quantile(of []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[min(len(sorted)-1, int(float64(len(sorted))*q))]
}

func ms(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000)
}
