package main

import (
	"os"
	"strings"
	"testing"
)

// The README shows this command, so that what it shows compiles.
func TestReadmeShowsThisCommand(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(source), "\n") // without its comment
	if !strings.Contains(string(readme), "```go\n"+code+"```\n") {
		t.Error("the Go example of README.md differs from main.go")
	}
}
