package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/turnpool/turnpool/session/internal/migration"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the advisory lock that a migrating process holds. The number
// means nothing; it only has to be always the same.
const migrationLock = 0x7475726e706f6f6c

// Migrate brings the tables of a database up to date, all steps or none. Several
// processes may do so at the same time: one does, the others wait and find
// nothing left to do. It needs the right to create tables in the connection's
// default schema.
func Migrate(ctx context.Context, url string) error {
	cfg, err := pgxpool.ParseConfig(url) // takes the pool's parameters out
	if err != nil {
		return wrap(err, "migrate")
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return wrap(err, "migrate")
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = pgx.BeginFunc(ctx, conn, func(t pgx.Tx) error {
		if _, err := t.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrationLock)); err != nil {
			return err
		}
		return applyMissing(ctx, t)
	})
	return wrap(err, "migrate")
}

func applyMissing(ctx context.Context, t pgx.Tx) error {
	const makeTable = `
		CREATE TABLE IF NOT EXISTS schema_migrations (
		  version    bigint PRIMARY KEY,
		  name       text   NOT NULL,
		  applied_at bigint NOT NULL
		)`
	if _, err := t.Exec(ctx, makeTable); err != nil {
		return err
	}
	missing, err := missingScripts(ctx, t)
	if err != nil {
		return err
	}
	for _, script := range missing {
		if _, err := t.Exec(ctx, script.SQL); err != nil {
			return fmt.Errorf("%s: %w", script.Name, err)
		}
		const record = `INSERT INTO schema_migrations (version, name, applied_at) VALUES ($1, $2, extract(epoch FROM now()) * 1000)`
		if _, err := t.Exec(ctx, record, script.Version, script.Name); err != nil {
			return fmt.Errorf("%s: %w", script.Name, err)
		}
	}
	return nil
}

// querier is a connection, a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func missingScripts(ctx context.Context, q querier) ([]migration.Script, error) {
	var applied int
	if err := q.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM schema_migrations`).Scan(&applied); err != nil {
		return nil, err
	}
	folder, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	return migration.Missing(folder, applied)
}

// checkMigrated refuses a database whose tables are not up to date.
func checkMigrated(ctx context.Context, q querier) error {
	missing, err := missingScripts(ctx, q)
	switch {
	case sqlState(err) == undefinedTable:
		return errNotMigrated
	case err != nil:
		return err
	case len(missing) > 0:
		return errNotMigrated
	}
	return nil
}
