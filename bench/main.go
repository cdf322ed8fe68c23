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
	"strconv"
	"strings"
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
	onPostgres := flag.Bool("postgres", false, "keep the pipeline's turns in PostgreSQL: TEST_DATABASE_URL, or a throw-away server")
	widths := flag.String("at-once", "1,64", "how many turns are asked for at once")
	flag.Parse()

	dir, err := os.MkdirTemp("", "turnpool-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p, err := start(ctx, dir, *onPostgres)
	if err != nil {
		return err
	}
	defer p.stop()

	subjects := []subject{
		{"nats request-reply", p.requestReply},
		{"handler, memory store", p.handler(p.memory)},
		{"handler, " + p.storeName + " store", p.handler(p.stored)},
		{"pipeline, json", p.json},
		{"pipeline, sse", p.sse},
	}
	const baseline = 2 // in subjects
	out := tabwriter.NewWriter(os.Stdout, 2, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "at once\tway\tfirst p50\tfirst p99\tresult p50\tresult p99\tturns/s\tx handler\t")
	var notes []string
	for width := range strings.SplitSeq(*widths, ",") {
		atOnce, err := strconv.Atoi(width)
		if err != nil || atOnce < 1 {
			return fmt.Errorf("-at-once=%s: want numbers separated by commas", *widths)
		}
		var base time.Duration
		for i, s := range subjects {
			before := p.commits()
			n := *turns
			if atOnce == 1 {
				n /= 4
			}
			m, err := median(ctx, *rounds, func() (measure, error) { return load(ctx, n, atOnce, s.ask) })
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if i == baseline {
				base = m.result50
			}
			if c := p.commits().minus(before); c.transactions > 0 {
				notes = append(notes, fmt.Sprintf("%d at once, %s: %.1f turns a transaction of %.2f ms, %.0f %% of the mean result time",
					atOnce, s.name, c.turns/c.transactions, 1000*c.seconds/c.transactions, 100*c.seconds/c.transactions/m.resultMean.Seconds()))
			}
			ratio := "-"
			if base > 0 {
				ratio = fmt.Sprintf("%.1f", float64(m.result50)/float64(base))
			}
			fmt.Fprintf(out, "%d\t%s\t%s\t%s\t%s\t%s\t%.0f\t%s\t\n", atOnce, s.name,
				ms(m.first50), ms(m.first99), ms(m.result50), ms(m.result99), m.perSecond, ratio)
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	fmt.Println("\nThe commit's share:")
	for _, note := range notes {
		fmt.Println(" ", note)
	}
	return nil
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
	resultMean                           time.Duration
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
		resultMean: mean(results),
		perSecond:  float64(n) / took.Seconds(),
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

func mean(of []time.Duration) (sum time.Duration) {
	for _, d := range of {
		sum += d
	}
	return sum / time.Duration(len(of))
}

func ms(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000)
}
