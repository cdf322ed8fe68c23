package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/turnpool/turnpool/session/internal/migration"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate applies the migrations that the file lacks, all or none. The
// transaction has the write lock from its start, so of several processes that
// open a file at once one applies them and the others find them applied.
func migrate(ctx context.Context, db *sql.DB) error {
	t, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	defer t.Rollback() // does nothing after Commit
	if err := applyMissing(ctx, t); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return t.Commit()
}

func applyMissing(ctx context.Context, t *sql.Tx) error {
	const makeTable = `
		CREATE TABLE IF NOT EXISTS schema_migrations (
		  version    INTEGER PRIMARY KEY,
		  name       TEXT    NOT NULL,
		  applied_at INTEGER NOT NULL
		) STRICT`
	if _, err := t.ExecContext(ctx, makeTable); err != nil {
		return err
	}
	var applied int
	if err := t.QueryRowContext(ctx, `SELECT coalesce(max(version), 0) FROM schema_migrations`).Scan(&applied); err != nil {
		return err
	}
	folder, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	missing, err := migration.Missing(folder, applied)
	if err != nil {
		return err
	}
	for _, script := range missing {
		if err := apply(ctx, t, script); err != nil {
			return fmt.Errorf("%s: %w", script.Name, err)
		}
	}
	return nil
}

func apply(ctx context.Context, t *sql.Tx, script migration.Script) error {
	if _, err := t.ExecContext(ctx, script.SQL); err != nil {
		return err
	}
	const record = `INSERT INTO schema_migrations (version, name, applied_at) VALUES (?, ?, unixepoch() * 1000)`
	_, err := t.ExecContext(ctx, record, script.Version, script.Name)
	return err
}
