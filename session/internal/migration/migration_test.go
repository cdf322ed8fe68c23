package migration

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestMissing(t *testing.T) {
	t.Parallel()
	folder := fstest.MapFS{
		"0001_a.sql": {Data: []byte("one")},
		"0002_b.sql": {Data: []byte("two")},
	}
	for applied, want := range []string{"one two", "two", ""} {
		scripts, err := Missing(folder, applied)
		var got []string
		for i, s := range scripts {
			got = append(got, s.SQL)
			if s.Version != applied+i+1 {
				t.Errorf("%s has version %d", s.Name, s.Version)
			}
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("at %d: %q, %v", applied, got, err)
		}
	}
	if _, err := Missing(folder, 3); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("a newer database: %v", err)
	}
	folder["0004_d.sql"] = &fstest.MapFile{}
	if _, err := Missing(folder, 0); err == nil || !strings.Contains(err.Error(), "want number 3") {
		t.Errorf("a hole: %v", err)
	}
}
