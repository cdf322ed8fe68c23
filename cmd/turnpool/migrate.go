package main

import (
	"context"
	"errors"
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
	cfg, err := config.Load[config.Common]()
	if err != nil {
		return err
	}
	switch db := cfg.DatabaseURL; {
	case db.URL != "":
		err = postgres.Migrate(ctx, db.URL)
	case db.Path != "":
		var store *sqlite.Store // opening it migrates it
		if store, err = sqlite.Open(ctx, sqlite.Config{Path: db.Path}); err == nil {
			err = store.Close()
		}
	default:
		err = errors.New("DATABASE_URL is not set: want postgres://… or sqlite:PATH")
	}
	if err == nil {
		fmt.Fprintln(out.stdout, "the tables are up to date")
	}
	return err
}
