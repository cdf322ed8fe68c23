// Package postgres is a [session.Store] in a PostgreSQL database (14 or newer),
// for any number of processes.
//
// Its tables are those of the session package's doc, in migrations; the view
// events shows the ledger with one row an event.
//
// Every write takes, before anything else, a transaction's advisory lock for each
// session, turn and shared scope that it touches, in one order, so that writes of
// different batches never deadlock and what does not exist yet can be locked like
// what does; a later statement reads under the locks. (Rows are not locked: a
// row lock writes to the disk, and cannot hold a place that is empty.) A batch of
// slices costs the same few statements, two round trips and one fsync, however
// many slices it has.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/turnpool/turnpool/session"
)

// Config says which database, and how it is used.
type Config struct {
	// URL is postgres://…, with libpq's parameters (sslmode, sslrootcert,
	// target_session_attrs, …) and those of pgxpool (pool_max_conns, …). What it
	// does not say comes from the PG… environment variables.
	URL string
	// Migrate brings the tables up to date; without it, tables that are not are
	// an error.
	Migrate bool
	// Timeout bounds each transaction, 30 s by default.
	Timeout time.Duration
}

// Store implements [session.Store].
type Store struct {
	pool    *pgxpool.Pool
	timeout time.Duration
}

var _ session.Store = (*Store)(nil)

var errNotMigrated = errors.New("the tables are not up to date; run `turnpool migrate`, or start with STORE_MIGRATE=true")

// oldest is the oldest server that is supported.
const oldest = 14

// Open connects to the database. It fails if the database cannot be reached, is
// too old, or its tables are not up to date.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	pool, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, wrap(err, "open") // pgx leaves the password out
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 30 * time.Second
	}
	if cfg.Migrate {
		if err := Migrate(ctx, cfg.URL); err != nil {
			return nil, err
		}
	}
	s := &Store{timeout: cfg.Timeout}
	if s.pool, err = pgxpool.NewWithConfig(ctx, pool); err != nil {
		return nil, wrap(err, "open")
	}
	if err := s.check(ctx); err != nil {
		s.pool.Close()
		return nil, wrap(err, "open")
	}
	return s, nil
}

func (s *Store) check(ctx context.Context) error {
	var version int
	if err := s.pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::int / 10000`).Scan(&version); err != nil {
		return err
	}
	if version < oldest {
		return fmt.Errorf("the server is PostgreSQL %d; it must be %d or newer", version, oldest)
	}
	return checkMigrated(ctx, s.pool)
}

// Ping implements [session.Store].
func (s *Store) Ping(ctx context.Context) error {
	return wrap(s.pool.Ping(ctx), "ping")
}

// Close implements [session.Store].
func (s *Store) Close() error {
	s.pool.Close()
	return nil
}

// within hands do a connection, and again a fresh one while the failure is one
// that passes: a deadlock, a serialization failure, a lost connection.
func (s *Store) within(ctx context.Context, do func(*pgxpool.Conn) error) error {
	pause := 5 * time.Millisecond
	for try := 1; ; try++ {
		err := s.once(ctx, do)
		if err == nil || try == maxTries || ctx.Err() != nil || !Passes(err) {
			return err
		}
		select {
		case <-time.After(rand.N(pause) + pause/2):
			pause *= 4
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// maxTries: after these the caller, who knows how much time it has, decides.
const maxTries = 5

func (s *Store) once(ctx context.Context, do func(*pgxpool.Conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // one that is in a transaction is closed
	err = do(conn)
	if sqlState(err) == readOnlyTransaction {
		// A server that is no primary any more: the next connection may find one
		// that is (target_session_attrs).
		conn.Conn().Close(context.WithoutCancel(ctx))
	}
	return err
}

// write runs a transaction in two round trips: the first takes the locks and runs
// what read queues, the second what settle queues, and commits. Once begun it is
// not cancelled: a turn's deadline must not cut its commit. It may be repeated
// whole, also when it was committed and the answer lost.
func (s *Store) write(ctx context.Context, locks locks, read func(*pgx.Batch), settle func(*pgx.Batch) error) error {
	return s.within(ctx, func(conn *pgxpool.Conn) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
		defer cancel()
		first, second := &pgx.Batch{}, &pgx.Batch{}
		first.Queue(`BEGIN ISOLATION LEVEL READ COMMITTED`)
		first.Queue(`SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) AS key`, locks.sorted())
		read(first)
		err := conn.SendBatch(ctx, first).Close()
		if err == nil {
			err = settle(second)
		}
		if err == nil {
			second.Queue(`COMMIT`)
			err = conn.SendBatch(ctx, second).Close()
		}
		if err != nil && !conn.Conn().IsClosed() {
			conn.Exec(ctx, `ROLLBACK`) // if this fails too, the connection is given up
		}
		return err
	})
}

// read runs, in one round trip, queries that see the database at one point in
// time. A query that is alone does so by itself.
func (s *Store) read(ctx context.Context, queue func(*pgx.Batch)) error {
	err := s.within(ctx, func(conn *pgxpool.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		batch := &pgx.Batch{}
		batch.Queue(`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`)
		if queue(batch); batch.Len() == 2 {
			batch.QueuedQueries = batch.QueuedQueries[1:]
		} else {
			batch.Queue(`COMMIT`)
		}
		err := conn.SendBatch(ctx, batch).Close()
		if err != nil && !conn.Conn().IsClosed() {
			conn.Exec(ctx, `ROLLBACK`)
		}
		return err
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err() // whatever the driver made of it
	}
	return err
}

// The conditions that the store tells apart.
const (
	undefinedTable       = "42P01"
	readOnlyTransaction  = "25006"
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	tooManyConnections   = "53300"
)

func sqlState(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Passes reports whether what failed with an error may succeed if it is tried
// again soon: the server cannot be reached, is starting or stopping, or had to
// break a transaction off.
func Passes(err error) bool {
	switch state := sqlState(err); {
	case state == serializationFailure, state == deadlockDetected, state == readOnlyTransaction, state == tooManyConnections:
		return true
	case state != "":
		// 08: connection exception; 57P: the server is stopping or starting.
		return strings.HasPrefix(state, "08") || strings.HasPrefix(state, "57P")
	}
	var network net.Error
	var connecting *pgconn.ConnectError
	return !errors.Is(err, context.DeadlineExceeded) &&
		(errors.As(err, &network) || errors.As(err, &connecting) || isLost(err))
}

// isLost reports whether an error says that the connection is gone.
func isLost(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// ownError is the fault of one slice or of the rows that it reads, not of the
// database: others can go on.
type ownError struct{ error }

func (e ownError) Unwrap() error { return e.error }

// own reports whether an error is the fault of what was to be written. The classes
// are: data exception, integrity violation, limit exceeded, raised by a trigger.
func own(err error) bool {
	if errors.As(err, new(ownError)) {
		return true
	}
	state := sqlState(err)
	for _, class := range []string{"22", "23", "54", "P0"} {
		if strings.HasPrefix(state, class) {
			return true
		}
	}
	return false
}

// wrap says what was tried. Nil stays nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("postgres: "+format+": %w", append(args, err)...)
}
