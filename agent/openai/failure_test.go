package openai_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/openai"
	"github.com/turnpool/turnpool/agent/openai/openaitest"
)

// What the provider says before the stream keeps its status, text and wait.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	const date = "Tue, 01 Sep 2026 10:00:00 GMT"
	const slow = `{"error":{"message":"Slow down.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`
	const slowText = "Slow down. (rate_limit_exceeded)"
	html := header("Content-Type", "text/html")
	for name, c := range map[string]struct {
		reply openaitest.Reply
		want  agent.ModelError
	}{
		"seconds":             {openaitest.Reply{Status: 429, Body: slow, Header: header("Retry-After", "3")}, agent.ModelError{Status: 429, Message: slowText, RetryAfter: 3 * time.Second}},
		"parts of seconds":    {openaitest.Reply{Status: 429, Body: slow, Header: header("Retry-After", "0.25")}, agent.ModelError{Status: 429, Message: slowText, RetryAfter: 250 * time.Millisecond}},
		"milliseconds":        {openaitest.Reply{Status: 429, Body: slow, Header: header("Retry-After-Ms", "120000", "Retry-After", "1")}, agent.ModelError{Status: 429, Message: slowText, RetryAfter: 2 * time.Minute}},
		"a date":              {openaitest.Reply{Status: 503, Body: slow, Header: header("Date", date, "Retry-After", "Tue, 01 Sep 2026 10:01:30 GMT")}, agent.ModelError{Status: 503, Message: slowText, RetryAfter: 90 * time.Second}},
		"a date that is over": {openaitest.Reply{Status: 503, Body: slow, Header: header("Date", date, "Retry-After", "Tue, 01 Sep 2026 09:00:00 GMT")}, agent.ModelError{Status: 503, Message: slowText}},
		"no date":             {openaitest.Reply{Status: 503, Body: slow, Header: header("Retry-After", "tomorrow", "Retry-After-Ms", "-5")}, agent.ModelError{Status: 503, Message: slowText}},
		"too long":            {openaitest.Reply{Status: 429, Body: slow, Header: header("Retry-After", "1e300")}, agent.ModelError{Status: 429, Message: slowText, RetryAfter: 24 * time.Hour}},

		"only a type":       {openaitest.Reply{Status: 400, Body: `{"error":{"message":"No such model.","type":"invalid_request_error","code":null}}`}, agent.ModelError{Status: 400, Message: "No such model. (invalid_request_error)"}},
		"a number for code": {openaitest.Reply{Status: 402, Body: `{"error":{"message":"No credit.","code":402}}`}, agent.ModelError{Status: 402, Message: "No credit."}},
		"a text for error":  {openaitest.Reply{Status: 404, Body: `{"error":"no such model"}`}, agent.ModelError{Status: 404, Message: "no such model"}},
		"no error":          {openaitest.Reply{Status: 400, Body: `{"object":"error","message":"Too long.","type":"BadRequestError","code":400}`}, agent.ModelError{Status: 400, Message: "Too long."}},
		"detail":            {openaitest.Reply{Status: 422, Body: `{"detail":[{"msg":"field required"}]}`}, agent.ModelError{Status: 422, Message: `[{"msg":"field required"}]`}},
		"detail, a text":    {openaitest.Reply{Status: 404, Body: `{"detail":"Not Found"}`}, agent.ModelError{Status: 404, Message: "Not Found"}},
		"plain text":        {openaitest.Reply{Status: 500, Body: "boom\n"}, agent.ModelError{Status: 500, Message: "boom"}},
		"a page":            {openaitest.Reply{Status: 502, Body: "<html>…", Header: html}, agent.ModelError{Status: 502, Message: "Bad Gateway"}},
		"nothing":           {openaitest.Reply{Status: 529}, agent.ModelError{Status: 529, Message: "an error without a message"}},
		"JSON of no kind":   {openaitest.Reply{Status: 500, Body: `[1]`}, agent.ModelError{Status: 500, Message: "Internal Server Error"}},
		"the key":           {openaitest.Reply{Status: 401, Body: `{"error":{"message":"Incorrect API key: sk-secret","code":"invalid_api_key"}}`}, agent.ModelError{Status: 401, Message: "Incorrect API key: [API key] (invalid_api_key)"}},
		"cut":               {openaitest.Reply{Status: 503, Body: `{"error":{"message":"Over`, DropAt: math.MaxInt}, agent.ModelError{Status: 503, Message: `{"error":{"message":"Over`}},

		"a stream's status, but JSON":  {openaitest.Reply{Status: 200, Body: `{"choices":[]}`, Header: header("Content-Type", "application/json; charset=utf-8")}, agent.ModelError{Status: 400, Message: "the server answered with application/json instead of a stream"}},
		"a stream's status, but HTML":  {openaitest.Reply{Status: 200, Body: `<html>`, Header: html}, agent.ModelError{Status: 400, Message: "the server answered with text/html instead of a stream"}},
		"a stream's status, but error": {openaitest.Reply{Status: 200, Body: slow, Header: header("Content-Type", "application/json")}, agent.ModelError{Status: 429, Message: slowText}},
		"nowhere to go to":             {openaitest.Reply{Status: 304}, agent.ModelError{Status: 304, Message: "Not Modified"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			apis(t, func(t *testing.T, api openai.API) {
				model, srv := setup(t, openai.Config{API: api})
				srv.Reply(c.reply)
				equal(t, "error", fails(t, model, hello()), &c.want)
				equal(t, "requests", len(srv.Requests()), 1)
			})
		})
	}
}

// A server's page does not fill the log.
func TestLongMessages(t *testing.T) {
	t.Parallel()
	model, srv := setup(t, openai.Config{})
	srv.Reply(openaitest.Reply{Status: 500, Body: strings.Repeat("ü", 1<<20)})
	failed := fails(t, model, hello())
	if len(failed.Message) > 3000 || !strings.HasSuffix(failed.Message, "ü…") {
		t.Errorf("%d bytes, at the end %q", len(failed.Message), failed.Message[len(failed.Message)-9:])
	}
}

// Errors that come inside of a stream, and the status that they stand for.
func TestErrorsInStreams(t *testing.T) {
	t.Parallel()
	failed := func(err string) string {
		return `{"type":"response.failed","response":{"status":"failed","error":` + err + `}}`
	}
	begun := map[openai.API]string{
		openai.Responses: sse(true, `{"type":"response.output_text.delta","output_index":0,"delta":"One"}`),
		openai.Chat:      sse(false, chunk(`"content":"One"`)),
	}
	for name, c := range map[string]struct {
		responses, chat string // events, "" if the API has no such
		want            agent.ModelError
	}{
		"limit":         {failed(`{"code":"rate_limit_exceeded","message":"Slow down."}`), `{"error":{"code":"rate_limit_exceeded","message":"Slow down."}}`, agent.ModelError{Status: 429, Message: "Slow down. (rate_limit_exceeded)"}},
		"server":        {failed(`{"code":"server_error","message":"Sorry."}`), `{"error":{"type":"server_error","message":"Sorry.","code":null}}`, agent.ModelError{Status: 500, Message: "Sorry. (server_error)"}},
		"question":      {failed(`{"code":"invalid_prompt","message":"No."}`), `{"error":{"code":"invalid_prompt","message":"No."}}`, agent.ModelError{Status: 400, Message: "No. (invalid_prompt)"}},
		"nothing":       {failed(`null`), `{"error":{}}`, agent.ModelError{Status: 500, Message: "an error without a message"}},
		"only text":     {`{"type":"error","message":"Compute error."}`, `{"error":{"message":"Compute error."},"message":"Compute error."}`, agent.ModelError{Status: 500, Message: "Compute error."}},
		"a word":        {`{"error":"EXPLODED"}`, `{"error":"EXPLODED"}`, agent.ModelError{Status: 500, Message: "EXPLODED"}},
		"as documented": {`{"type":"error","code":"server_error","message":"Sorry.","param":null,"sequence_number":1}`, ``, agent.ModelError{Status: 500, Message: "Sorry. (server_error)"}},
		"as it comes": {
			`{"type":"error","sequence_number":2,"error":{"type":"too_many_requests","code":"too_many_requests","message":"Slow down.","param":null}}`, ``,
			agent.ModelError{Status: 429, Message: "Slow down. (too_many_requests)"},
		},
		"the type says more": {`{"error":{"type":"rate_limit_error","code":"1302","message":"Slow down."}}`, `{"error":{"type":"rate_limit_error","code":"1302","message":"Slow down."}}`, agent.ModelError{Status: 429, Message: "Slow down."}},
		"a status":           {``, `{"object":"error","message":"Busy.","type":"Overloaded","code":503}`, agent.ModelError{Status: 503, Message: "Busy."}},
		"the key":            {failed(`{"message":"for sk-secret"}`), `{"error":"for sk-secret"}`, agent.ModelError{Status: 500, Message: "for [API key]"}},
		"a call of nothing": {
			`{"type":"response.completed","response":{"output":[{},{"type":"function_call","call_id":"c1"}]}}`,
			callChunk(`{"index":0,"id":"c1"}`) + "\n\ndata: [DONE]",
			agent.ModelError{Status: 502, Message: "the server sends a tool call without a name"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			apis(t, func(t *testing.T, api openai.API) {
				event := map[openai.API]string{openai.Responses: c.responses, openai.Chat: c.chat}[api]
				if event == "" {
					return // the other API's own
				}
				model, srv := setup(t, openai.Config{API: api})
				srv.Reply(openaitest.Reply{Body: begun[api] + sse(false, event) + sse(false, "[DONE]")})
				equal(t, "error", fails(t, model, hello()), &c.want)
			})
		})
	}
}

// A stream that is lost, or no stream at all, may work the next time.
func TestBrokenStreams(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		responses, chat openaitest.Reply
		want            string // part of the message
	}{
		"no JSON": {
			openaitest.Reply{Body: sse(true, `{"type":"response.output_text.delta","output_index":0,"delta":"One"}`) + "data: {\"type\":\n\n"},
			openaitest.Reply{Body: sse(false, chunk(`"content":"One"`)) + "data: {\"choices\":[{\n\n"}, "malformed event",
		},
		"two objects in one event": {
			openaitest.Reply{Body: "data: {\"type\":\"response.created\"}\ndata: {\"type\":\"error\"}\n\n"},
			openaitest.Reply{Body: "data: {\"choices\":[]}\ndata: {\"choices\":[]}\n\n"}, "malformed event",
		},
		"not an object": {openaitest.Reply{Body: "data: [1]\n\n"}, openaitest.Reply{Body: "data: 1\n\n"}, "malformed event"},
		"nothing":       {openaitest.Reply{Body: ": ok\n\n"}, openaitest.Reply{Body: ": ok\n\n"}, "cut before the answer was whole"},
		"an early end": {
			openaitest.Reply{Body: sse(true, `{"type":"response.output_text.delta","output_index":0,"delta":"One"}`)},
			openaitest.Reply{Body: sse(false, chunk(`"content":"One"`))}, "cut before the answer was whole",
		},
		"an end inside of the last event": {
			openaitest.Reply{Body: "data: " + completed}, openaitest.Reply{Body: "data: " + finishChunk("stop")}, "cut before the answer was whole",
		},
		"[DONE] and no answer":      {openaitest.Reply{Body: "data: [DONE]\n\n"}, openaitest.Reply{Body: "data: [DONE]\n\n"}, "cut before the answer was whole"},
		"no answer":                 {openaitest.Reply{DropAt: openaitest.Headers}, openaitest.Reply{DropAt: openaitest.Headers}, "the request failed: "},
		"a connection lost at once": {openaitest.Reply{DropAt: 1}, openaitest.Reply{DropAt: 1}, "cut before the answer was whole: unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			apis(t, func(t *testing.T, api openai.API) {
				model, srv := setup(t, openai.Config{API: api})
				srv.Reply(map[openai.API]openaitest.Reply{openai.Responses: c.responses, openai.Chat: c.chat}[api])
				failed := fails(t, model, hello())
				if failed.Status != 0 || !failed.Retryable() || !strings.Contains(failed.Message, c.want) {
					t.Errorf("error %#v, want one with %q", failed, c.want)
				}
			})
		})
	}
}

// A connection that is lost anywhere before the end is no answer.
func TestLostAnywhere(t *testing.T) {
	t.Parallel()
	ends := map[openai.API]string{openai.Responses: "event: response.completed", openai.Chat: "\"finish_reason\":\"tool_calls\""}
	apis(t, func(t *testing.T, api openai.API) {
		model, srv := setup(t, openai.Config{API: api})
		end := indexOf(t, dense[api], ends[api])
		for at := 1; at <= end; at += 13 {
			srv.Reply(openaitest.Reply{Body: dense[api], DropAt: at})
			failed := fails(t, model, hello())
			if diff := cmp.Diff(0, failed.Status); diff != "" || !strings.Contains(failed.Message, "cut") {
				t.Fatalf("lost at %d: %v", at, failed)
			}
		}
	})
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	apis(t, func(t *testing.T, api openai.API) {
		srv := openaitest.New(t)
		address := strings.Replace(srv.URL(), "://", "://user:sk-secret@", 1)
		srv.Close()
		model := mustNew(t, openai.Config{Model: "m", BaseURL: address, APIKey: "sk-other", API: api})
		failed := fails(t, model, hello())
		if failed.Status != 0 || !strings.HasPrefix(failed.Message, "the request failed: ") {
			t.Errorf("error %#v", failed)
		}
	})
}

// The key goes nowhere but to the address of the configuration.
func TestRedirects(t *testing.T) {
	t.Parallel()
	apis(t, func(t *testing.T, api openai.API) {
		model, srv := setup(t, openai.Config{API: api})
		other := openaitest.New(t)
		srv.Reply(openaitest.Reply{Status: 307, Header: http.Header{"Location": {other.URL() + "/responses"}}})
		failed := fails(t, model, hello())
		if failed.Status != 0 || len(other.Requests()) != 0 || other.Connections() != 0 {
			t.Errorf("error %v, %d requests elsewhere", failed, len(other.Requests()))
		}
	})
}

// What a server sends without end is not kept without end.
func TestEndless(t *testing.T) {
	t.Parallel()
	mega := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		api  openai.API
		body string
	}{
		"a line":       {openai.Chat, "data: " + strings.Repeat(mega, 17)},
		"lines":        {openai.Responses, strings.Repeat("data: "+mega+"\n", 17)},
		"comments":     {openai.Responses, strings.Repeat(": "+mega+"\n\n", 17)},
		"text":         {openai.Responses, strings.Repeat(sse(false, `{"type":"response.output_text.delta","output_index":0,"delta":"`+mega+`"}`), 17)},
		"text of Chat": {openai.Chat, strings.Repeat(sse(false, chunk(`"content":"`+mega+`"`)), 17)},
		"arguments":    {openai.Chat, strings.Repeat(sse(false, callChunk(`{"index":0,"function":{"name":"f","arguments":"`+mega+`"}}`)), 17)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model, srv := setup(t, openai.Config{API: c.api})
			srv.Reply(openaitest.Reply{Body: c.body, HangAt: math.MaxInt})
			failed := fails(t, model, hello())
			if failed.Status != 502 || !strings.Contains(failed.Message, "more than 16 MiB") {
				t.Errorf("error %v", failed)
			}
			within(t, srv.Requests()[0].Gone)
		})
	}
}

// A turn that is cancelled closes its request, wherever it is.
func TestCancel(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]int{"before an answer": openaitest.Headers, "before the first byte": 1, "in the stream": math.MaxInt} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			apis(t, func(t *testing.T, api openai.API) {
				model, srv := setup(t, openai.Config{API: api})
				ctx, cancel := context.WithCancel(t.Context())
				reply := openaitest.Reply{HangAt: at, Before: func(*openaitest.Request) {
					if at != math.MaxInt {
						cancel()
					}
				}}
				reply.Body = dense[api][:indexOf(t, dense[api], `ok\"`)]
				srv.Reply(reply)
				done := make(chan error, 1)
				go func() {
					_, err := model.Generate(ctx, hello(), func(d agent.ModelDelta) {
						if d.Kind == agent.ItemText {
							cancel()
						}
					})
					done <- err
				}()
				if err := within(t, done); !errors.Is(err, context.Canceled) {
					t.Errorf("error %v", err)
				}
				within(t, srv.Requests()[0].Gone)
			})
		})
	}
}

// A deadline is no failure of the provider either.
func TestDeadline(t *testing.T) {
	t.Parallel()
	apis(t, func(t *testing.T, api openai.API) {
		model, srv := setup(t, openai.Config{API: api})
		srv.Reply(openaitest.Reply{HangAt: openaitest.Headers})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		response, err := model.Generate(ctx, hello(), func(agent.ModelDelta) {})
		if !errors.Is(err, context.DeadlineExceeded) || response != nil {
			t.Errorf("answer %v, error %v", response, err)
		}
	})
}

// Calls after another share a connection, also after failures and cut answers of
// the provider's own accord.
func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	apis(t, func(t *testing.T, api openai.API) {
		model, srv := setup(t, openai.Config{API: api})
		for range 5 {
			srv.Reply(
				openaitest.Reply{Items: everyItem},
				openaitest.Reply{Items: everyItem, Finish: "length", Every: 100},
				openaitest.Reply{Status: 429, Body: `{"error":{"message":"slow down"}}`},
			)
			mustAsk(t, model, hello())
			mustAsk(t, model, hello())
			fails(t, model, hello())
		}
		equal(t, "connections", srv.Connections(), 1)
	})
}

// A server that does not end its stream loses the connection, and nothing else.
func TestStreamWithoutAnEnd(t *testing.T) {
	t.Parallel()
	apis(t, func(t *testing.T, api openai.API) {
		model, srv := setup(t, openai.Config{API: api})
		srv.Reply(openaitest.Reply{Items: everyItem, HangAt: math.MaxInt}, openaitest.Reply{Items: everyItem})
		equal(t, "items", said(mustAsk(t, model, hello()).Items), everySeen)
		within(t, srv.Requests()[0].Gone)
		equal(t, "items", said(mustAsk(t, model, hello()).Items), everySeen)
		equal(t, "connections", srv.Connections(), 2)
	})
}
