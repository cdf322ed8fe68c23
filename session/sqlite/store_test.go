package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/session/sessiontest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" {
		os.Exit(child(path))
	}
	goleak.VerifyTestMain(m)
}

// open opens a store of the test's own.
func open(t testing.TB) *Store {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "sessions.db"))
}

func openAt(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: path})
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

// ask is a slice with one message, which goes to the session of its own name.
func ask(invocation string) *session.Slice {
	return &session.Slice{
		Turn: session.Turn{
			Tenant: "acme", InvocationID: invocation, SessionID: "session_" + invocation,
			Status: session.StatusCompleted, Attempt: 1, CreatedAt: 100, FinishedAt: 200,
		},
		Events: []session.Event{
			&session.User{EventBase: session.EventBase{ID: invocation + "/0", CreatedAt: 100}, Text: "question"},
			&session.Assistant{EventBase: session.EventBase{ID: invocation + "/1", CreatedAt: 150}, Text: "answer"},
		},
	}
}

func commit(t testing.TB, s *Store, slices ...*session.Slice) []session.Outcome {
	t.Helper()
	outcomes, err := s.Commit(t.Context(), slices)
	if err != nil {
		t.Fatal(err)
	}
	return outcomes
}

// execute runs SQL past the store.
func execute(t testing.TB, s *Store, sql string, args ...any) {
	t.Helper()
	if _, err := s.writer.db.ExecContext(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "no", "such", "directory.db")
	notOurs := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(notOurs, []byte(strings.Repeat("no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []Config{
		{}, {Path: ":memory:"}, {Path: "a.db", Readers: -1}, {Path: "a.db", BusyTimeout: -1}, {Path: missing}, {Path: notOurs},
	} {
		if s, err := Open(t.Context(), cfg); err == nil {
			t.Errorf("%+v was opened", cfg)
			s.Close()
		} else if !strings.HasPrefix(err.Error(), "sqlite: ") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, Config{Path: filepath.Join(t.TempDir(), "a.db")}); !errors.Is(err, context.Canceled) {
		t.Errorf("Open with a cancelled context: %v", err)
	}
}

// A path is a path, whatever it would mean in an address.
func TestPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a b.db", "a?mode=memory", "a%20b", "a#b", "ä;PRAGMA x", "a&_txlock=none", "file:a"} {
		path := filepath.Join(dir, name)
		openAt(t, path)
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, c := range []struct {
		db     *sql.DB
		pragma string
		want   string
	}{
		{s.writer.db, "journal_mode", "wal"}, {s.readers.db, "journal_mode", "wal"},
		{s.writer.db, "synchronous", "2"}, {s.writer.db, "busy_timeout", "10000"}, {s.readers.db, "busy_timeout", "10000"},
		{s.writer.db, "query_only", "0"}, {s.readers.db, "query_only", "1"},
	} {
		var got string
		if err := c.db.QueryRowContext(t.Context(), "PRAGMA "+c.pragma).Scan(&got); err != nil || got != c.want {
			t.Errorf("%s is %s, want %s: %v", c.pragma, got, c.want, err)
		}
	}
	if _, err := s.readers.db.ExecContext(t.Context(), "DELETE FROM sessions"); err == nil {
		t.Error("a reader can write")
	}
}

// What was committed is there after the file was closed and opened again, and
// the migrations are not applied twice.
func TestReopen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sessions.db")
	s := openAt(t, path)
	want := commit(t, s, ask("inv_1"))[0]
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if _, err := os.Stat(path + suffix); err == nil {
			t.Errorf("Close left %s", suffix)
		}
	}
	if _, err := s.Head(t.Context(), "acme", "session_inv_1"); !errors.Is(err, errClosed) {
		t.Errorf("Head of a closed store: %v", err)
	}
	again := openAt(t, path)
	head, err := again.Head(t.Context(), "acme", "session_inv_1")
	if err != nil || head.Epoch != want.Head.Epoch || head.EventCount != 2 {
		t.Errorf("head after reopening: %+v %v", head, err)
	}
	if out := commit(t, again, ask("inv_1"))[0]; !out.Repeat {
		t.Errorf("commit after reopening: %+v", out)
	}
}

func TestNewerFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sessions.db")
	s := openAt(t, path)
	execute(t, s, `INSERT INTO schema_migrations (version, name, applied_at) VALUES (999, 'from the future', 0)`)
	if other, err := Open(t.Context(), Config{Path: path}); err == nil {
		other.Close()
		t.Error("a newer file was opened")
	} else if !strings.Contains(err.Error(), "newer") {
		t.Error(err)
	}
}

// Migrations are numbered from 1 without holes: applyMissing counts on it.
func TestMigrationNumbers(t *testing.T) {
	t.Parallel()
	files, err := migrations.ReadDir("migrations")
	if err != nil {
		t.Fatal(err)
	}
	for i, file := range files {
		if !strings.HasPrefix(file.Name(), fmt.Sprintf("%04d_", i+1)) {
			t.Errorf("migration %d is called %s", i+1, file.Name())
		}
	}
}

func TestOpenAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sessions.db")
	var gate, done sync.WaitGroup
	gate.Add(1)
	for i := range 8 {
		done.Go(func() {
			gate.Wait()
			s, err := Open(t.Context(), Config{Path: path})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if _, err := s.Commit(t.Context(), []*session.Slice{ask(fmt.Sprintf("inv_%d", i))}); err != nil {
				t.Error(err)
			}
		})
	}
	gate.Done()
	done.Wait()
	heads, err := openAt(t, path).Sessions(t.Context(), session.PageQuery{Tenant: "acme", Limit: 100})
	if err != nil || len(heads) != 8 {
		t.Errorf("%d sessions: %v", len(heads), err)
	}
}

// childPath names the file to a process that this test starts.
const childPath = "TURNPOOL_TEST_SQLITE"

const childCommits = 25

// child is such a process: it opens the file and commits to one session, as
// others do at the same time.
func child(path string) int {
	ctx := context.Background()
	s, err := Open(ctx, Config{Path: path, BusyTimeout: time.Minute})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer s.Close()
	for i := range childCommits {
		slice := ask(fmt.Sprintf("inv_%d_%d", os.Getpid(), i))
		slice.Turn.SessionID = "session_shared"
		outcomes, err := s.Commit(ctx, []*session.Slice{slice})
		if err != nil || outcomes[0].Err != nil {
			fmt.Fprintln(os.Stderr, err, outcomes)
			return 1
		}
	}
	return 0
}

// TestProcesses lets several processes create one file and commit to one session.
func TestProcesses(t *testing.T) {
	t.Parallel()
	const processes = 3
	path := filepath.Join(t.TempDir(), "sessions.db")
	var done sync.WaitGroup
	for range processes {
		done.Go(func() {
			cmd := childProcess(t, path)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	done.Wait()
	loaded, err := openAt(t, path).Load(t.Context(), session.LoadQuery{Tenant: "acme", SessionID: "session_shared"})
	if err != nil {
		t.Fatal(err)
	}
	const commits = processes * childCommits
	if loaded.Head.Version != commits || len(loaded.Events) != 2*commits {
		t.Errorf("version %d with %d events after %d commits", loaded.Head.Version, len(loaded.Events), commits)
	}
	for i := 0; i < len(loaded.Events); i += 2 {
		a, b := loaded.Events[i].Base().ID, loaded.Events[i+1].Base().ID
		if strings.TrimSuffix(a, "/0") != strings.TrimSuffix(b, "/1") {
			t.Fatalf("a slice is torn apart: %s, %s", a, b)
		}
	}
}

func childProcess(t *testing.T, path string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childPath+"="+path)
	return cmd
}

// Rows that the database refuses are the fault of their slice alone.
func TestConstraint(t *testing.T) {
	t.Parallel()
	s := open(t)
	execute(t, s, `CREATE TRIGGER bad BEFORE INSERT ON turns WHEN new.invocation_id = 'inv_bad'
		BEGIN SELECT raise(ABORT, 'no such turn here'); END`)
	bad := ask("inv_bad")
	bad.Scoped = []session.ScopedWrite{{Scope: "user", ScopeID: "u1", Key: "k", Value: json.RawMessage(`1`)}}
	outs := commit(t, s, ask("inv_1"), bad, ask("inv_2"))
	if outs[0].Err != nil || outs[2].Err != nil {
		t.Errorf("the good slices: %v, %v", outs[0].Err, outs[2].Err)
	}
	if outs[1].Err == nil || !strings.Contains(outs[1].Err.Error(), "no such turn here") || outs[1].Turn.InvocationID != "inv_bad" {
		t.Errorf("the bad slice: %+v", outs[1])
	}
	for table, want := range map[string]int{"sessions": 2, "slices": 2, "turns": 2, "scoped_state": 0} {
		wantRows(t, s, table, want)
	}
}

func wantRows(t *testing.T, s *Store, table string, want int) {
	t.Helper()
	var n int
	if err := s.readers.db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil || n != want {
		t.Errorf("%d rows of %s, want %d: %v", n, table, want, err)
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
	execute(t, s, `UPDATE sessions SET state = 'nonsense'`)
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

// One that still waits for its turn is.
func TestWaitingCommit(t *testing.T) {
	t.Parallel()
	s := open(t)
	begun, release := make(chan struct{}), make(chan struct{})
	holder := ask("inv_1")
	holder.Result = func(session.Outcome) (json.RawMessage, error) {
		close(begun)
		<-release
		return nil, nil
	}
	var done sync.WaitGroup
	done.Go(func() { commit(t, s, holder) })
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	done.Go(func() {
		if outs, err := s.Commit(ctx, []*session.Slice{ask("inv_2")}); !errors.Is(err, context.Canceled) {
			t.Errorf("commit: %v %+v", err, outs)
		}
		close(release)
	})
	// Readers do not wait for the writer, and do not see what is not committed.
	if _, err := s.Head(t.Context(), "acme", "session_inv_1"); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("Head: %v", err)
	}
	cancel()
	done.Wait()
	wantRows(t, s, "turns", 1)
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

// Another process that holds the file's lock makes a write fail in time, as a
// whole; afterwards it can be repeated.
func TestBusy(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sessions.db")
	other := openAt(t, path)
	s, err := Open(t.Context(), Config{Path: path, BusyTimeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	holder := ask("inv_1")
	holder.Result = func(session.Outcome) (json.RawMessage, error) {
		if outs, err := s.Commit(t.Context(), []*session.Slice{ask("inv_2")}); err == nil {
			t.Errorf("committed beside another writer: %+v", outs)
		}
		return nil, nil
	}
	commit(t, other, holder)
	commit(t, s, ask("inv_2"))
	wantRows(t, s, "turns", 2)
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
	rows, err := s.readers.db.QueryContext(t.Context(), `
		SELECT idx, type, created_at, invocation_id, data FROM events
		WHERE tenant = 'acme' AND session_id = 'session_inv_1' ORDER BY idx`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	events := append(odd.Events, next.Events...)
	for i, want := range events {
		var idx, createdAt int64
		var typeName, invocation string
		var data []byte
		if !rows.Next() {
			t.Fatalf("%d rows, want %d: %v", i, len(events), rows.Err())
		}
		if err := rows.Scan(&idx, &typeName, &createdAt, &invocation, &data); err != nil {
			t.Fatal(err)
		}
		encoded, err := session.Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		owner, _, _ := strings.Cut(want.Base().ID, "/")
		if idx != int64(i) || typeName != want.Type() || createdAt != want.Base().CreatedAt || invocation != owner || string(data) != string(encoded) {
			t.Errorf("row %d: %d %s %d %s %s", i, idx, typeName, createdAt, invocation, data)
		}
	}
	if rows.Next() {
		t.Error("the view has more rows")
	}
}

// Every statement finds its rows by an index and in order.
func TestPlans(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, text := range statements {
		if strings.Contains(text, "schema_migrations") || strings.Contains(text, "INSERT") || strings.Contains(text, " slice") && len(text) < 30 {
			continue
		}
		args := make([]any, strings.Count(text, "?"))
		for i := range args {
			args[i] = ""
		}
		rows, err := s.readers.db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text, args...)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(detail, "TEMP B-TREE") || strings.HasPrefix(detail, "SCAN") && detail != "SCAN CONSTANT ROW" {
				t.Errorf("%s\n%s", detail, text)
			}
		}
		rows.Close()
	}
}

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
