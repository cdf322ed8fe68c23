package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/session/postgres/postgrestest"
	"github.com/turnpool/turnpool/session/sessiontest"
)

// server is the process's; each test has a database of its own.
var server *postgrestest.Server

// childURL makes the test program a process that commits, see TestProcesses.
const childURL = "TURNPOOL_TEST_POSTGRES_CHILD"

func TestMain(m *testing.M) {
	if url := os.Getenv(childURL); url != "" {
		os.Exit(child(url))
	}
	var err error
	if server, err = postgrestest.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	server.Stop()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func open(t testing.TB) *Store {
	t.Helper()
	return openAt(t, server.Database(t))
}

func openAt(t testing.TB, url string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{URL: url + "&pool_max_conns=4", Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	t.Parallel()
	sessiontest.Run(t, func(t *testing.T) session.Store { return open(t) })
}

// ask is a slice with one exchange, which goes to the session of its own name.
func ask(invocation string) *session.Slice {
	return &session.Slice{
		Turn: session.Turn{
			Tenant: "acme", InvocationID: invocation, SessionID: "session_" + invocation, Agent: "a", Lane: "interactive",
			Status: session.StatusCompleted, Attempt: 1, CreatedAt: 100, FinishedAt: 200,
		},
		Events: []session.Event{
			&session.User{EventBase: session.EventBase{ID: invocation + "/0", InvocationID: invocation, CreatedAt: 100}, Text: "hi"},
			&session.Assistant{EventBase: session.EventBase{ID: invocation + "/1", InvocationID: invocation, CreatedAt: 150}, Text: "ho"},
		},
	}
}

func commit(t testing.TB, s *Store, slices ...*session.Slice) []session.Outcome {
	t.Helper()
	outs, err := s.Commit(t.Context(), slices)
	if err != nil {
		t.Fatal(err)
	}
	return outs
}

func execute(t testing.TB, s *Store, sql string) {
	t.Helper()
	if _, err := s.pool.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func wantRows(t *testing.T, s *Store, table string, want int) {
	t.Helper()
	var n int
	if err := s.pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil || n != want {
		t.Errorf("%d rows of %s, want %d: %v", n, table, want, err)
	}
}

// refuse makes the database raise a condition at the row of one invocation.
func refuse(t *testing.T, s *Store, invocation, action string) {
	t.Helper()
	execute(t, s, `
		CREATE SEQUENCE refusals;
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN `+action+` RETURN new; END $$;
		CREATE TRIGGER refuse BEFORE INSERT ON turns FOR EACH ROW
		  WHEN (new.invocation_id = '`+invocation+`') EXECUTE FUNCTION refuse()`)
}

// Rows that the database refuses are the fault of their slice alone.
func TestBadSliceStandsAlone(t *testing.T) {
	t.Parallel()
	s := open(t)
	refuse(t, s, "inv_7", `RAISE EXCEPTION 'no such turn here';`)
	var slices []*session.Slice
	for i := range 20 {
		slices = append(slices, ask(fmt.Sprintf("inv_%d", i)))
	}
	slices[7].Scoped = []session.ScopedWrite{{Scope: "user", ScopeID: "u1", Key: "k", Value: json.RawMessage(`1`)}}
	for i, out := range commit(t, s, slices...) {
		if bad := i == 7; bad != (out.Err != nil) || out.Turn.InvocationID != slices[i].Turn.InvocationID {
			t.Errorf("slice %d: %+v", i, out)
		} else if bad && !strings.Contains(out.Err.Error(), "no such turn here") {
			t.Errorf("slice %d: %v", i, out.Err)
		}
	}
	for table, want := range map[string]int{"sessions": 19, "slices": 19, "turns": 19, "scoped_state": 0} {
		wantRows(t, s, table, want)
	}
}

// What passes is tried again, and is committed once.
func TestTriedAgain(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]string{
		"serialization failure": `RAISE EXCEPTION USING errcode = '40001';`,
		"deadlock":              `RAISE EXCEPTION USING errcode = '40P01';`,
		"server stops":          `RAISE EXCEPTION USING errcode = '57P01';`,
		"read only":             `RAISE EXCEPTION USING errcode = '25006';`,
		"connection lost":       `PERFORM pg_terminate_backend(pg_backend_pid());`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			refuse(t, s, "inv_1", `IF nextval('refusals') < 3 THEN `+action+` END IF;`)
			for i, out := range commit(t, s, ask("inv_0"), ask("inv_1"), ask("inv_2")) {
				if out.Err != nil || out.Turn.CommitStatus != session.Committed || out.Repeat {
					t.Errorf("slice %d: %+v", i, out)
				}
			}
			wantRows(t, s, "slices", 3)
		})
	}
}

// A fault of the database fails the whole commit, and nothing of it is there.
func TestBrokenDatabase(t *testing.T) {
	t.Parallel()
	s := open(t)
	execute(t, s, `ALTER TABLE scoped_state RENAME TO elsewhere`)
	last := ask("inv_2")
	last.Scoped = []session.ScopedWrite{{Scope: "user", ScopeID: "u1", Key: "k", Value: json.RawMessage(`1`)}}
	if outs, err := s.Commit(t.Context(), []*session.Slice{ask("inv_1"), last}); err == nil {
		t.Errorf("committed: %+v", outs)
	}
	for _, table := range []string{"sessions", "slices", "turns"} {
		wantRows(t, s, table, 0)
	}
	execute(t, s, `ALTER TABLE elsewhere RENAME TO scoped_state`)
	for _, out := range commit(t, s, ask("inv_1"), last) {
		if out.Err != nil || out.Repeat {
			t.Errorf("after the repair: %+v", out)
		}
	}
}

// A session that cannot be read costs its own turns, and no other's.
func TestSpoiltSession(t *testing.T) {
	t.Parallel()
	s := open(t)
	commit(t, s, ask("inv_1"))
	execute(t, s, `UPDATE sessions SET state = '"nonsense"'`)
	again := ask("inv_2")
	again.Turn.SessionID = "session_inv_1"
	outs := commit(t, s, again, ask("inv_3"))
	if outs[0].Err == nil || outs[1].Err != nil {
		t.Errorf("outcomes: %v, %v", outs[0].Err, outs[1].Err)
	}
	if _, err := s.Head(t.Context(), "acme", "session_inv_1"); err == nil {
		t.Error("the session was read")
	}
}

// A commit that has begun is not cut by its context.
func TestBegunCommit(t *testing.T) {
	t.Parallel()
	s := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	slice := ask("inv_1")
	slice.Result = func(session.Outcome) (json.RawMessage, error) {
		cancel()
		return json.RawMessage(`{}`), nil
	}
	if outs, err := s.Commit(ctx, []*session.Slice{slice, ask("inv_2")}); err != nil || outs[0].Err != nil || outs[1].Err != nil {
		t.Fatalf("commit: %v %+v", err, outs)
	}
	wantRows(t, s, "turns", 2)
}

// A result that panics takes its commit with it, and leaves the store usable.
func TestPanic(t *testing.T) {
	t.Parallel()
	s := open(t)
	slice := ask("inv_1")
	slice.Result = func(session.Outcome) (json.RawMessage, error) { panic("no result") }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		s.Commit(t.Context(), []*session.Slice{ask("inv_0"), slice})
	}()
	wantRows(t, s, "turns", 0)
	commit(t, s, ask("inv_1"))
	wantRows(t, s, "turns", 1)
}

// Batches that touch the same things in any order neither deadlock nor lose
// anything.
func TestBatchesOfTheSameThings(t *testing.T) {
	t.Parallel()
	s := open(t)
	const committers, sessions = 4, 6
	var done sync.WaitGroup
	for c := range committers {
		done.Go(func() {
			for round := range 10 {
				var slices []*session.Slice
				for n := range sessions {
					n = (n*(c+1) + round) % sessions
					slice := ask(fmt.Sprintf("inv_%d_%d_%d", c, round, len(slices)))
					slice.Turn.SessionID = fmt.Sprintf("session_%d", n)
					slice.Policy = session.Merge
					slice.Scoped = []session.ScopedWrite{{Scope: "user", ScopeID: fmt.Sprint(n % 2), Key: "k", Value: json.RawMessage(`1`)}}
					slices = append(slices, slice)
				}
				for _, out := range commit(t, s, slices...) {
					if out.Err != nil || out.Turn.Version == 0 {
						t.Errorf("%+v", out)
					}
				}
			}
		})
	}
	done.Wait()
	var versions int64
	heads, err := s.Sessions(t.Context(), session.PageQuery{Tenant: "acme", Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, head := range heads {
		versions += head.Version
		if head.EventCount != 2*head.Version {
			t.Errorf("%s: %d events at version %d", head.ID, head.EventCount, head.Version)
		}
	}
	if want := int64(committers * 10 * sessions); versions != want {
		t.Errorf("%d commits, want %d", versions, want)
	}
}

const childCommits = 20

// child opens the database, migrating it, and commits to one session.
func child(url string) int {
	ctx := context.Background()
	s, err := Open(ctx, Config{URL: url, Migrate: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer s.Close()
	for i := range childCommits {
		slice := ask(fmt.Sprintf("inv_%d_%d", os.Getpid(), i))
		slice.Turn.SessionID, slice.Policy = "session_shared", session.Merge
		outcomes, err := s.Commit(ctx, []*session.Slice{slice})
		if err != nil || outcomes[0].Err != nil {
			fmt.Fprintln(os.Stderr, err, outcomes)
			return 1
		}
	}
	return 0
}

// Several processes make the tables of one database and commit to one session.
func TestProcesses(t *testing.T) {
	t.Parallel()
	const processes = 3
	url := server.Database(t)
	var done sync.WaitGroup
	for range processes {
		done.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), childURL+"="+url)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	done.Wait()
	loaded, err := openAt(t, url).Load(t.Context(), session.LoadQuery{Tenant: "acme", SessionID: "session_shared"})
	if err != nil {
		t.Fatal(err)
	}
	const commits = processes * childCommits
	if loaded.Head == nil || loaded.Head.Version != commits || len(loaded.Events) != 2*commits {
		t.Fatalf("%+v with %d events after %d commits", loaded.Head, len(loaded.Events), commits)
	}
	for i := 0; i < len(loaded.Events); i += 2 {
		a, b := loaded.Events[i].Base().ID, loaded.Events[i+1].Base().ID
		if strings.TrimSuffix(a, "/0") != strings.TrimSuffix(b, "/1") {
			t.Fatalf("a slice is torn apart: %s, %s", a, b)
		}
	}
}

func TestOpenFails(t *testing.T) {
	t.Parallel()
	url := server.Database(t)
	if _, err := Open(t.Context(), Config{URL: url}); !errors.Is(err, errNotMigrated) {
		t.Errorf("without tables: %v", err)
	}
	s := openAt(t, url)
	execute(t, s, `INSERT INTO schema_migrations VALUES (999, 'later', 0)`)
	if _, err := Open(t.Context(), Config{URL: url, Migrate: true}); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("a newer database: %v", err)
	}
	if _, err := Open(t.Context(), Config{URL: "postgres://u:secret@127.0.0.1:1/x?connect_timeout=1"}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("nobody there: %v", err)
	}
	if _, err := Open(t.Context(), Config{URL: "postgres://u:secret@host:port/x"}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a wrong URL: %v", err)
	}
}

// The view shows one row an event.
func TestEventsView(t *testing.T) {
	t.Parallel()
	s := open(t)
	odd := ask("inv_1")
	odd.Events = append(odd.Events, &session.ToolResult{
		EventBase: session.EventBase{ID: "inv_1/2", CreatedAt: 160},
		Result:    json.RawMessage(`{"a\u0000b":"\ud800","n":9007199254740993}`),
	})
	next := ask("inv_2")
	next.Turn.SessionID = "session_inv_1"
	commit(t, s, odd, next)
	rows, err := s.pool.Query(t.Context(), `
		SELECT idx, type, created_at, invocation_id, data::text FROM events
		WHERE tenant = 'acme' AND session_id = 'session_inv_1' ORDER BY idx`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var idx, createdAt int64
		var typeName, invocation, data string
		if err := rows.Scan(&idx, &typeName, &createdAt, &invocation, &data); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintln(idx, typeName, createdAt, invocation, data))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i, e := range append(odd.Events, next.Events...) {
		encoded, err := session.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		owner, _, _ := strings.Cut(e.Base().ID, "/")
		want = append(want, fmt.Sprintln(i, e.Type(), e.Base().CreatedAt, owner, string(encoded)))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// BenchmarkCommit shows what a turn's commit costs alone and in company.
func BenchmarkCommit(b *testing.B) {
	for _, size := range []int{1, 32} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			s := open(b)
			n := 0
			for b.Loop() {
				slices := make([]*session.Slice, size)
				for i := range slices {
					n++
					slices[i] = ask(fmt.Sprintf("inv_%d", n))
					for range 4 {
						slices[i].Events = append(slices[i].Events, &session.Thought{Text: strings.Repeat("x", 300)})
					}
					slices[i].Result = func(session.Outcome) (json.RawMessage, error) {
						return json.RawMessage(`{"text":"` + strings.Repeat("x", 1000) + `"}`), nil
					}
				}
				commit(b, s, slices...)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "turns/s")
		})
	}
}
