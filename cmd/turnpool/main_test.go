package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/turnpool/turnpool/turn"
)

// dev starts `turnpool dev` in this process and returns its address and a stop
// that returns the exit code.
func startDev(t *testing.T, dir string) (url string, stop func() int) {
	t.Helper()
	t.Setenv("INGRESS_ADDR", "127.0.0.1:0")
	t.Setenv("LOG_LEVEL", "warn")
	ctx, cancel := context.WithCancel(context.Background())
	stdout, in := io.Pipe()
	code := make(chan int, 1)
	var stderr bytes.Buffer
	go func() {
		code <- run(ctx, []string{"dev", "--dir", dir}, in, &stderr)
		in.Close()
	}()
	lines := bufio.NewScanner(stdout)
	ready := regexp.MustCompile(`ready on (http://\S+)`)
	for lines.Scan() {
		if found := ready.FindStringSubmatch(lines.Text()); found != nil {
			go io.Copy(io.Discard, stdout)
			stop = func() int { cancel(); return <-code }
			t.Cleanup(cancel)
			return found[1], stop
		}
	}
	t.Fatalf("dev ended with code %d: %s", <-code, stderr.String())
	return "", nil
}

func ask(t *testing.T, url, body string) turn.Result {
	t.Helper()
	client := &http.Client{Timeout: time.Minute}
	defer client.CloseIdleConnections()
	resp, err := client.Post(url+"/v1/turns", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var result turn.Result
	if err := json.Unmarshal(data, &result); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, data)
	}
	return result
}

func TestDev(t *testing.T) {
	dir := t.TempDir()
	url, stop := startDev(t, dir)
	if got := ask(t, url, `{"input": {"message": "hello"}}`); got.Output.Text != "hello" || got.Agent != "echo" {
		t.Errorf("echo: %+v", got)
	}
	first := ask(t, url, `{"agent": "concierge", "sessionId": "thread-42", "input": {"message": "How long is my stay?"}}`)
	if want := "Booking B-42 is for 3 nights; you check out on Friday."; first.Output.Text != want {
		t.Errorf("concierge: %q", first.Output.Text)
	}
	if code := stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	// The conversation is still there after a restart.
	url, stop = startDev(t, dir)
	second := ask(t, url, `{"agent": "concierge", "sessionId": "thread-42", "input": {"message": "What did I ask before?"}}`)
	if want := `Before that you asked: "How long is my stay?"`; second.Output.Text != want || second.Version != 2 {
		t.Errorf("concierge: %q at version %d", second.Output.Text, second.Version)
	}
	if code := stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestWrongUse(t *testing.T) {
	for _, c := range []struct {
		args  []string
		name  string
		value string
		code  int
		want  string
	}{
		{args: []string{"nonsense"}, code: 2, want: "nonsense"},
		{args: []string{"dev"}, name: "DATABASE_URL", value: "mysql://u:secret@localhost/x", code: 1,
			want: "DATABASE_URL: want postgres://USER:PASSWORD@HOST/NAME or sqlite:PATH"},
		{args: []string{"dev"}, name: "NATS_KEY", value: "key.pem", code: 1, want: "NATS_CERT and NATS_KEY"},
		{args: []string{"migrate"}, code: 1, want: "DATABASE_URL is not set"},
		{args: []string{"dev"}, name: "WORKER_CONCURRENCY", value: "many", code: 1, want: `WORKER_CONCURRENCY="many": want a whole number`},
		{args: []string{"dev"}, name: "INGRESS_MAX_BODY", value: "1GB", code: 1, want: `INGRESS_MAX_BODY="1GB": want a number of bytes`},
		{args: []string{"dev"}, name: "INGRESS_ADDR", value: "0.0.0.0:8080", code: 1, want: "INGRESS_ALLOW_UNAUTHENTICATED"},
		{args: []string{"dev"}, name: "WORKER_TURN_TIMEOUT", value: "48h", code: 1, want: "less than EVENTS_MAX_AGE"},
		{args: []string{"dev"}, name: "LOG_LEVEL", value: "loud", code: 1, want: "debug, info, warn or error"},
	} {
		t.Run(c.name+strings.Join(c.args, " "), func(t *testing.T) {
			if c.name != "" {
				t.Setenv(c.name, c.value)
			}
			var stdout, stderr bytes.Buffer
			code := run(context.Background(), c.args, &stdout, &stderr)
			if code != c.code || !strings.Contains(stderr.String(), c.want) {
				t.Errorf("exit code %d, %q; want %d and %q", code, stderr.String(), c.code, c.want)
			}
		})
	}
}
