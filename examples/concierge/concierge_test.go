package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/turnpool/turnpool/agent/agentsfile"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/worker"
)

const conversation = `[lookup_stay {"ref":"B-42"}]
[ask_guest {"question":"To which night?"}]
Your stay begins on Friday now.
`

func TestInGo(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	noEnv := func(string) string { return "" }
	if err := run(t.Context(), noEnv, strings.NewReader("Friday\n"), &out); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != conversation {
		t.Errorf("it says %q, want %q", got, conversation)
	}
	if err := run(t.Context(), noEnv, strings.NewReader(""), &out); err == nil {
		t.Error("nobody answers, and it does not say so")
	}
}

// The file has the same agent. Its booking service is one of the test's.
func TestFromAFile(t *testing.T) {
	t.Parallel()
	var asked, token string
	stays := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked, token = string(body), r.Header.Get("Idempotency-Key")
		io.WriteString(w, `{"ref":"B-42","nights":3,"from":"Tuesday"}`)
	}))
	defer stays.Close()
	data, err := os.ReadFile("agents.yaml")
	if err != nil {
		t.Fatal(err)
	}
	data = bytes.ReplaceAll(data, []byte("http://127.0.0.1:9000"), []byte(stays.URL))
	file, err := agentsfile.Parse("agents.yaml", data, agentsfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := worker.NewHandler(worker.HandlerConfig{Agents: file.Agents, Store: session.NewMemory()})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := converse(t.Context(), handler, bufio.NewScanner(strings.NewReader("Friday\n")), &out); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != conversation {
		t.Errorf("it says %q, want %q", got, conversation)
	}
	if asked != `{"ref":"B-42"}` || !strings.HasPrefix(token, "tok_") {
		t.Errorf("the service was asked %s with the token %q", asked, token)
	}
}
