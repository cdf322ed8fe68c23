package agentsfile_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/turnpool/turnpool/agent"
	"github.com/turnpool/turnpool/agent/agentsfile"
	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

const booking = `
agents:
  - name: concierge
    model: script/demo
    tools:
      - name: lookup_stay
        parameters: {type: object, properties: {ref: {type: string}}, required: [ref]}
        http:
          url: ${STAYS}/stays/{ref}
          headers: {Authorization: "Bearer ${TOKEN}"}
scripts:
  demo:
    - {step: 1, calls: [{name: lookup_stay, args: {ref: B-42, deep: true}}]}
    - text: "{{result}}"
`

// stays is a server that knows bookings; asked gets what it was asked.
func stays(t *testing.T) (url string, asked <-chan string) {
	t.Helper()
	questions := make(chan string, 8) // more than a test asks
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		questions <- fmt.Sprint(r.Method, " ", r.URL, " ", r.Header.Get("Authorization"), " ", string(body))
		io.WriteString(w, `"three nights"`)
	}))
	t.Cleanup(s.Close)
	return s.URL, questions
}

// answerOf runs the file's first agent once, with at most a minute.
func answerOf(t *testing.T, file *agentsfile.File) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run := agent.Run{
		Agent: file.Agents[0], InvocationID: turn.NewInvocationID(), SessionID: "s", Attempt: 1, State: session.State{},
		Sink: nowhere{}, Input: turn.Input{Message: turn.Text("How long is my stay?")},
	}
	outcome := run.Do(ctx)
	equal(t, "status", outcome.Status, session.StatusCompleted)
	return outcome.Output.Text
}

// nowhere is a sink that keeps nothing.
type nowhere struct{}

func (nowhere) Emit(turn.Event)             {}
func (nowhere) Flush(context.Context) error { return nil }

// What a file says is what is called.
func TestRun(t *testing.T) {
	t.Parallel()
	url, asked := stays(t)
	opts := agentsfile.Options{Getenv: environment("STAYS", url, "TOKEN", "abc"), AllowPrivate: true}
	file, err := agentsfile.Parse("f.yaml", []byte(booking), opts)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "answer", answerOf(t, file), "three nights")
	equal(t, "request", <-asked, `POST /stays/B-42 Bearer abc {"deep":true}`)
}

// Private addresses are for those who say so: in the options, or at the tool.
func TestAllowPrivate(t *testing.T) {
	t.Parallel()
	const refused = "f.yaml:9:16: agents[0].tools[0].http.url: the host is no public address; want one that is, or private addresses allowed (allowPrivate)"
	url, asked := stays(t)
	for name, c := range map[string]struct {
		option bool
		field  string
		want   string
	}{
		"nobody":             {false, "", refused},
		"the tool":           {false, "allowPrivate: true", ""},
		"the options":        {true, "", ""},
		"not the tool":       {true, "allowPrivate: false", refused},
		"neither, in words":  {false, "allowPrivate: false", refused},
		"both":               {true, "allowPrivate: true", ""},
		"null is not a word": {true, "allowPrivate:", ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := booking[:len(booking)-len(after)] + "          " + c.field + "\n" + after
			opts := agentsfile.Options{Getenv: environment("STAYS", url, "TOKEN", "abc"), AllowPrivate: c.option}
			file, err := agentsfile.Parse("f.yaml", []byte(text), opts)
			if c.want != "" {
				if err == nil || err.Error() != c.want {
					t.Errorf("error %v, want %s", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "answer", answerOf(t, file), "three nights")
			equal(t, "request", <-asked, `POST /stays/B-42 Bearer abc {"deep":true}`)
		})
	}
}

// after is what follows the tool in booking.
const after = `scripts:
  demo:
    - {step: 1, calls: [{name: lookup_stay, args: {ref: B-42, deep: true}}]}
    - text: "{{result}}"
`
