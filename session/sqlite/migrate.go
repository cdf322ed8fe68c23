package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"strconv"
	"strings"
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
	files, err := migrations.ReadDir("migrations")
	if err != nil {
		return err
	}
	if applied > len(files) {
		return fmt.Errorf("the file is at version %d, this program knows %d: it was written by a newer one", applied, len(files))
	}
	for _, file := range files[applied:] { // sorted by name, and numbered from 1 without holes
		if err := apply(ctx, t, file.Name()); err != nil {
			return fmt.Errorf("%s: %w", file.Name(), err)
		}
	}
	return nil
}

func apply(ctx context.Context, t *sql.Tx, name string) error {
	number, _, _ := strings.Cut(name, "_")
	version, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	script, err := migrations.ReadFile("migrations/" + name)
	if err != nil {
		return err
	}
	if _, err := t.ExecContext(ctx, string(script)); err != nil {
		return err
	}
	const record = `INSERT INTO schema_migrations (version, name, applied_at) VALUES (?, ?, unixepoch() * 1000)`
	_, err = t.ExecContext(ctx, record, version, name)
	return err
}
