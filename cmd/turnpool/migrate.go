package main

import (
	"context"
	"fmt"

	"github.com/turnpool/turnpool/cmd/internal/config"
	"github.com/turnpool/turnpool/session/postgres"
	"github.com/turnpool/turnpool/session/sqlite"
)

// migrateCommand brings a database up to date. It may be repeated, and run while
// others do the same.
type migrateCommand struct{}

// Run migrates the database of DATABASE_URL.
func (*migrateCommand) Run(ctx context.Context, out output) error {
	cfg, err := config.Load[config.Migrate]()
	if err != nil {
		return err
	}
	if db := cfg.DatabaseURL; db.URL != "" {
		err = postgres.Migrate(ctx, db.URL)
	} else {
		var store *sqlite.Store // opening it migrates it
		if store, err = sqlite.Open(ctx, sqlite.Config{Path: db.Path}); err == nil {
			err = store.Close()
		}
	}
	if err == nil {
		fmt.Fprintln(out.stdout, "the tables are up to date")
	}
	return err
}
