package openaitest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/turnpool/turnpool/agent/openai/openaitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var paths = []string{"/responses", "/chat/completions"}

// post asks the server, and returns the answer with its body still to read.
func post(t *testing.T, ctx context.Context, address string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(`{"model":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err == nil {
		t.Cleanup(func() { res.Body.Close() })
	}
	return res, err
}

// text is a whole answer.
func text(t *testing.T, address string) string {
	t.Helper()
	res, err := post(t, t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

var everything = openaitest.Reply{Items: []openaitest.Item{
	openaitest.Thought(""), openaitest.Thought("Hm — 🎉"), openaitest.Text("One\n\ntwo"), openaitest.Refusal("no"),
	openaitest.Call("a", "f", `{"x":1}`), openaitest.Call("b", "g", `{"y":2}`),
}}

// Every event is one line of JSON with its type where the API has it.
func TestWire(t *testing.T) {
	t.Parallel()
	for _, ascii := range []bool{false, true} {
		srv := openaitest.New(t)
		reply := everything
		reply.ASCII = ascii
		srv.Reply(reply, reply)

		names, last := 0, ""
		for line := range strings.Lines(text(t, srv.URL()+"/responses")) {
			if name, ok := strings.CutPrefix(line, "event: "); ok {
				last = strings.TrimSpace(name)
				names++
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				e := object(t, data)
				equal(t, "type", e["type"], last)
				equal(t, "sequence number", e["sequence_number"], float64(names-1))
			}
		}
		equal(t, "last event", last, "response.completed")

		var content, reasoning string
		body := text(t, srv.URL()+"/chat/completions")
		equal(t, "ASCII", ascii, body == strings.ToValidUTF8(body, "") && !strings.ContainsFunc(body, func(r rune) bool { return r > 127 }))
		scanner := bufio.NewScanner(strings.NewReader(body))
		for scanner.Scan() {
			data, ok := strings.CutPrefix(scanner.Text(), "data: ")
			if !ok {
				continue
			}
			if last = data; data == "[DONE]" {
				continue
			}
			choices := object(t, data)["choices"].([]any)
			if len(choices) == 0 {
				continue
			}
			delta := choices[0].(map[string]any)["delta"].(map[string]any)
			piece, _ := delta["content"].(string)
			content += piece
			piece, _ = delta["reasoning_content"].(string)
			reasoning += piece
		}
		equal(t, "last event", last, "[DONE]")
		equal(t, "content", content, "One\n\ntwo")
		equal(t, "reasoning", reasoning, "Hm — 🎉")
	}
}

// Replies are given in order, cuts change nothing, and requests are kept.
func TestReplies(t *testing.T) {
	t.Parallel()
	for _, path := range paths {
		srv := openaitest.New(t)
		srv.Reply(
			openaitest.Reply{Body: "wörtlich", Cuts: []int{2, 99, -1, 2}},
			openaitest.Reply{Body: "wörtlich", Every: 1},
			openaitest.Reply{Status: 503, Header: http.Header{"Retry-After": {"7"}}, Body: "busy"},
		)
		equal(t, "first", text(t, srv.URL()+path), "wörtlich")
		equal(t, "second", text(t, srv.URL()+path), "wörtlich")
		res, err := post(t, t.Context(), srv.URL()+path)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "status", []any{res.StatusCode, res.Header.Get("Retry-After"), res.Header.Get("Content-Type")}, []any{503, "7", "application/json"})
		if got := text(t, srv.URL()+path); !strings.Contains(got, "no reply for request 4") {
			t.Errorf("with no reply left: %s", got)
		}
		srv.Otherwise(func(r *openaitest.Request) openaitest.Reply {
			return openaitest.Reply{Body: r.Body["model"].(string)}
		})
		equal(t, "otherwise", text(t, srv.URL()+path), "m")
		for _, r := range srv.Requests() {
			equal(t, "request", []any{r.Path, string(r.Raw)}, []any{"/v1" + path, `{"model":"m"}`})
		}
		equal(t, "requests", len(srv.Requests()), 5)
	}
}

// A body that hangs or is lost has exactly what was asked for before that.
func TestHangAndDrop(t *testing.T) {
	t.Parallel()
	for _, path := range paths {
		srv := openaitest.New(t)
		srv.Reply(
			openaitest.Reply{Body: "0123456789", DropAt: 4},
			openaitest.Reply{Body: "0123456789", DropAt: math.MaxInt},
			openaitest.Reply{Body: "0123456789", DropAt: openaitest.Headers},
			openaitest.Reply{Body: "0123456789", HangAt: 4},
		)
		for _, want := range []string{"0123", "0123456789"} {
			res, err := post(t, t.Context(), srv.URL()+path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			if string(body) != want || err == nil {
				t.Errorf("body %q, error %v; want %q and an error", body, err, want)
			}
		}
		if res, err := post(t, t.Context(), srv.URL()+path); err == nil {
			t.Errorf("status %d, want none", res.StatusCode)
		}

		ctx, cancel := context.WithCancel(t.Context())
		res, err := post(t, ctx, srv.URL()+path)
		if err != nil {
			t.Fatal(err)
		}
		body := make([]byte, 4)
		if _, err := io.ReadFull(res.Body, body); err != nil || string(body) != "0123" {
			t.Errorf("body %q, error %v", body, err)
		}
		hung := srv.Requests()[3]
		select {
		case <-hung.Gone:
			t.Error("it does not hang")
		default:
		}
		cancel()
		select {
		case <-hung.Gone:
		case <-time.After(time.Minute):
			t.Error("the server does not see that the client has gone")
		}
	}
}

// Close ends what hangs. It may be called twice.
func TestClose(t *testing.T) {
	t.Parallel()
	srv := openaitest.Start()
	arrived := make(chan struct{})
	srv.Reply(openaitest.Reply{HangAt: openaitest.Headers, Before: func(*openaitest.Request) { close(arrived) }})
	failed := make(chan error, 1)
	go func() {
		res, err := http.Post(srv.URL()+"/responses", "application/json", strings.NewReader(`{}`))
		if err == nil {
			_, err = io.ReadAll(res.Body)
			res.Body.Close()
		}
		failed <- err
	}()
	<-arrived
	srv.Close()
	srv.Close()
	select {
	case <-failed:
	case <-time.After(time.Minute):
		t.Error("the request hangs on")
	}
}

func TestBadBody(t *testing.T) {
	t.Parallel()
	srv := openaitest.New(t)
	res, err := http.Post(srv.URL()+"/responses", "application/json", strings.NewReader(`[`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	equal(t, "status", res.StatusCode, 400)
	equal(t, "requests", len(srv.Requests()), 0)
}

func object(t *testing.T, data string) (fields map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(data), &fields); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return fields
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
