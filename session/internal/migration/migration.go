// Package migration knows which scripts a database lacks. Scripts are files named
// NUMBER_WHAT.sql, numbered from 1 without holes; how one is applied is the
// store's business.
package migration

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Script is one step of a schema.
type Script struct {
	Version int
	Name    string
	SQL     string
}

// Missing returns the scripts of a folder that a database at version applied
// lacks, in order. A database that is ahead of the scripts is refused: a newer
// program has written it.
func Missing(folder fs.FS, applied int) ([]Script, error) {
	names, err := fs.Glob(folder, "*.sql") // sorted
	if err != nil {
		return nil, err
	}
	if applied > len(names) {
		return nil, fmt.Errorf("the database is at version %d, this program knows %d: it was written by a newer one", applied, len(names))
	}
	var missing []Script
	for i, name := range names[applied:] {
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != applied+i+1 {
			return nil, fmt.Errorf("%s: want number %d", name, applied+i+1)
		}
		text, err := fs.ReadFile(folder, name)
		if err != nil {
			return nil, err
		}
		missing = append(missing, Script{version, name, string(text)})
	}
	return missing, nil
}
