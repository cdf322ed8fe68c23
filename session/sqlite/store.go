// Package sqlite is a [session.Store] in one SQLite file, for programs that want
// their sessions to stay without running a database server. Several processes
// may use one file on one machine.
//
// Its tables are those of the session package's doc, in migrations; the view
// events shows the ledger with one row an event.
//
// The file is in WAL mode. Writes go through one connection, because SQLite has
// one writer anyway and waiting in the process is cheaper and fairer than
// waiting for a file lock; reads have connections of their own and never wait
// for a writer. A commit is on the disk when it returns (synchronous=FULL), so
// a batch of slices costs one fsync.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/turnpool/turnpool/session"
)

// Config says which file, and how it is used.
type Config struct {
	// Path is the file. It is created when it does not exist; its directory is
	// not.
	Path string
	// Readers is the number of connections that read, 4 by default.
	Readers int
	// BusyTimeout is how long a write waits for another process's, 10 s by
	// default. After it the write fails, and may be repeated.
	BusyTimeout time.Duration
}

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Path == "" || strings.HasPrefix(c.Path, ":memory:"):
		return c, fmt.Errorf("sqlite: path %q names no file", c.Path)
	case c.Readers < 0 || c.BusyTimeout < 0:
		return c, errors.New("sqlite: readers and busy timeout must not be negative")
	}
	if c.Readers == 0 {
		c.Readers = 4
	}
	if c.BusyTimeout == 0 {
		c.BusyTimeout = 10 * time.Second
	}
	return c, nil
}

// errClosed is what calls after Close get.
var errClosed = errors.New("store is closed")

// Store implements [session.Store].
type Store struct {
	writer  *pool // one connection
	readers *pool

	// calls is held for reading by every call, and for writing by Close, which
	// so waits for them.
	calls  sync.RWMutex
	closed bool
}

var _ session.Store = (*Store)(nil)

// Open opens the file, creating it and bringing its tables up to date as
// needed. Several processes may do so at the same time.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{}
	if err := s.open(ctx, cfg); err != nil {
		s.Close()
		return nil, fmt.Errorf("sqlite: open %s: %w", cfg.Path, err)
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, cfg Config) (err error) {
	// The writer comes first: it makes the file what the readers expect.
	writer, err := connect(cfg, 1, "synchronous(FULL)", url.Values{"_txlock": {"immediate"}})
	if err != nil {
		return err
	}
	s.writer = writer
	if err := useWAL(ctx, writer.db, cfg.BusyTimeout); err != nil {
		return fmt.Errorf("switch to WAL: %w", err)
	}
	if err := migrate(ctx, writer.db); err != nil {
		return err
	}
	if s.readers, err = connect(cfg, cfg.Readers, "query_only(1)", url.Values{}); err != nil {
		return err
	}
	return errors.Join(s.writer.prepare(ctx), s.readers.prepare(ctx))
}

// useWAL switches the file's journal, which stays so. While another process does
// the same SQLite answers busy at once, so the wait is ours.
func useWAL(ctx context.Context, db *sql.DB, patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; {
		_, err := db.ExecContext(ctx, "PRAGMA journal_mode = WAL")
		if code(err) != sqlite3.SQLITE_BUSY || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Ping implements [session.Store].
func (s *Store) Ping(ctx context.Context) error {
	err := s.read(ctx, func(t tx) error {
		var n int
		return t.row(countMigrations).Scan(&n)
	})
	return wrap(err, "ping")
}

var countMigrations = statement(`SELECT count(*) FROM schema_migrations`)

// Close implements [session.Store].
func (s *Store) Close() error {
	s.calls.Lock()
	defer s.calls.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	// The writer goes last: the last connection to go moves the WAL into the file.
	return wrap(errors.Join(s.readers.close(), s.writer.close()), "close")
}

// read runs do in a transaction that sees the file at one point in time.
func (s *Store) read(ctx context.Context, do func(tx) error) error {
	err := s.within(ctx, ctx, s.readers, &sql.TxOptions{ReadOnly: true}, do)
	if err != nil && ctx.Err() != nil {
		return ctx.Err() // whatever the driver made of it
	}
	return err
}

// write runs do in a transaction that has the file's write lock from the start.
// Once begun it is not cancelled: a turn's deadline must not cut its commit.
func (s *Store) write(ctx context.Context, do func(tx) error) error {
	return s.within(ctx, context.WithoutCancel(ctx), s.writer, nil, do)
}

func (s *Store) within(wait, run context.Context, p *pool, opts *sql.TxOptions, do func(tx) error) error {
	s.calls.RLock()
	defer s.calls.RUnlock()
	if s.closed {
		return errClosed
	}
	conn, err := p.db.Conn(wait)
	if err != nil {
		return err
	}
	defer conn.Close() // back to the pool
	began, err := conn.BeginTx(run, opts)
	if err != nil {
		return err
	}
	defer began.Rollback() // does nothing after Commit
	if err := do(tx{began, run, p.prepared}); err != nil {
		return err
	}
	return began.Commit()
}

// query is a prepared statement's place among all statements.
type query int

// statements are the SQL of the package, each declared beside the method that
// runs it and prepared once a connection.
var statements []string

func statement(sql string) query {
	statements = append(statements, sql)
	return query(len(statements) - 1)
}

// pool is a set of connections with the same settings.
type pool struct {
	db       *sql.DB
	prepared []*sql.Stmt
}

func connect(cfg Config, connections int, pragma string, params url.Values) (*pool, error) {
	busy := "busy_timeout(" + strconv.FormatInt(cfg.BusyTimeout.Milliseconds(), 10) + ")"
	params["_pragma"] = []string{busy, pragma}
	path := url.URL{Path: filepath.ToSlash(filepath.Clean(cfg.Path))}
	db, err := sql.Open("sqlite", "file:"+path.EscapedPath()+"?"+params.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return &pool{db: db}, nil
}

func (p *pool) prepare(ctx context.Context) error {
	for _, sql := range statements {
		stmt, err := p.db.PrepareContext(ctx, sql)
		if err != nil {
			return fmt.Errorf("prepare %.60q: %w", sql, err)
		}
		p.prepared = append(p.prepared, stmt)
	}
	return nil
}

func (p *pool) close() error {
	if p == nil {
		return nil
	}
	var errs []error
	for _, stmt := range p.prepared {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(append(errs, p.db.Close())...)
}

// tx is a transaction with the prepared statements at hand.
type tx struct {
	began    *sql.Tx
	ctx      context.Context
	prepared []*sql.Stmt
}

func (t tx) exec(q query, args ...any) (changed int64, err error) {
	result, err := t.began.StmtContext(t.ctx, t.prepared[q]).ExecContext(t.ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (t tx) row(q query, args ...any) *sql.Row {
	return t.began.StmtContext(t.ctx, t.prepared[q]).QueryRowContext(t.ctx, args...)
}

// each calls scan for every row.
func (t tx) each(scan func(row) error, q query, args ...any) error {
	rows, err := t.began.StmtContext(t.ctx, t.prepared[q]).QueryContext(t.ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// code returns SQLite's primary result code of an error, 0 if it has none.
func code(err error) int {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// wrap says what was tried. Nil stays nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("sqlite: "+format+": %w", append(args, err)...)
}
