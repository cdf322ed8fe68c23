package agentsfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/turnpool/turnpool/agent/agentsfile"
)

// Whatever the file is, it is agents that are fit to run, or mistakes with their
// places, and no mistake shows a value of the environment.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/good/*.yaml", "testdata/bad/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Add([]byte(toolWith("{name: ${KEY}, yields: &y {<<: [*y], not: *y}}")))
	f.Add([]byte("%YAML 1.2\n---\n? agents\n: - &a {name: a, model: script/${KEY}}\n  - *a\n...\n"))
	const value = "sk\tvery secret"
	place := regexp.MustCompile(`^f\.yaml:[1-9][0-9]*:[1-9][0-9]*: .`)
	opts := options()
	opts.Getenv = func(string) (string, bool) { return value, true }
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := agentsfile.Parse("f.yaml", data, opts)
		if err == nil {
			for _, a := range file.Agents {
				if err := a.Check(); err != nil {
					t.Errorf("an agent that is not fit to run: %v", err)
				}
			}
			return
		}
		var all agentsfile.Errors
		if file != nil || !errors.As(err, &all) || len(all) == 0 {
			t.Fatalf("file %v, error %v", file, err)
		}
		for _, each := range all {
			if line := each.Error(); strings.Contains(line, "\n") || !place.MatchString(line) {
				t.Errorf("no line with a place: %q", line)
			}
			if strings.Contains(each.Text, value) {
				t.Errorf("the value is in %q", each.Text)
			}
		}
	})
}
