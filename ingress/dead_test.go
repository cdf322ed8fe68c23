package ingress

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpool/turnpool/turn"
)

// buried gives the broker letters of turns 1 to n, the last one the newest.
func (h *harness) buried(n int) (ids []string) {
	for i := range n {
		id := "inv_" + strings.Repeat("0", 31) + string(rune('1'+i))
		ids = append(ids, id)
		h.broker.letters = append([]*turn.DeadLetter{{
			Submission: &turn.Submission{
				Tenant: turn.DefaultTenant, InvocationID: id, Pool: "default",
				Request: turn.Request{
					Agent: "echo", SessionID: "session_thread", Lane: turn.LaneInteractive,
					Input: turn.Input{Message: turn.Text("message " + id[35:])}, Metadata: map[string]string{"ticket": "7"},
				},
			},
			Failures: 5, Error: &turn.Error{Code: turn.CodeModelError, Message: "status 500", Retryable: true},
			CreatedAt: now.UnixMilli() - 9000, FailedAt: now.UnixMilli() + int64(i),
		}}, h.broker.letters...)
	}
	return ids
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	h := setup(t)
	ids := h.buried(3)
	first := h.do("GET", "/v1/dead?limit=2", "")
	h.want(first, http.StatusOK, "")
	golden(t, "dead_page", first.body)
	var page struct {
		Items []struct{ ID string }
		Next  string
	}
	if err := json.Unmarshal(first.body, &page); err != nil {
		t.Fatal(err)
	}
	rest := h.do("GET", "/v1/dead?limit=2&cursor="+page.Next, "")
	h.want(rest, http.StatusOK, "")
	if got := string(rest.body); !strings.Contains(got, ids[0]) || strings.Contains(got, "next") || strings.Contains(got, ids[1]) {
		t.Errorf("second page: %s", got)
	}
	one := h.do("GET", "/v1/dead/"+ids[1], "")
	h.want(one, http.StatusOK, "")
	golden(t, "dead_letter", one.body)
	h.want(h.do("DELETE", "/v1/dead/"+ids[1], ""), http.StatusNoContent, "")
	for _, method := range []string{"GET", "DELETE"} {
		h.want(h.do(method, "/v1/dead/"+ids[1], ""), http.StatusNotFound, codeUnknownDead)
		h.want(h.do(method, "/v1/dead/inv_1", ""), http.StatusNotFound, codeUnknownDead)
	}
	h.want(h.do("GET", "/v1/dead?cursor=x", ""), http.StatusBadRequest, codeBadCursor)
	h.broker.onDead = func() error { return turn.ErrUnavailable }
	for _, path := range []string{"GET /v1/dead", "GET /v1/dead/" + ids[0], "DELETE /v1/dead/" + ids[0], "POST /v1/dead/" + ids[0] + "/redrive"} {
		method, path, _ := strings.Cut(path, " ")
		h.want(h.do(method, path, ""), http.StatusServiceUnavailable, codeUnavailable)
	}
}

// A redriven turn is a new one, with an id that follows from the old one's.
func TestRedrive(t *testing.T) {
	t.Parallel()
	h := setup(t)
	ids := h.buried(2)
	asWas := h.do("POST", "/v1/dead/"+ids[0]+"/redrive", "", "Prefer: respond-async")
	h.want(asWas, http.StatusAccepted, "")
	again := h.broker.queued[turn.RedriveID(ids[0])]
	if again == nil || again.RedriveOf != ids[0] || again.Request.Input.Message.Text != "message 1" || again.Request.SessionID != "session_thread" ||
		again.Request.Metadata["ticket"] != "7" {
		t.Errorf("redriven: %+v", again)
	}
	if got := asWas.header.Get("Location"); got != "/v1/turns/"+turn.RedriveID(ids[0]) {
		t.Errorf("location %s", got)
	}
	h.want(h.do("POST", "/v1/dead/"+ids[0]+"/redrive", ""), http.StatusNotFound, codeUnknownDead)

	edited := h.do("POST", "/v1/dead/"+ids[1]+"/redrive", `{"agent":"concierge","sessionId":"thread","input":{"message":"better"}}`, "Prefer: respond-async")
	h.want(edited, http.StatusAccepted, "")
	if again := h.broker.queued[turn.RedriveID(ids[1])]; again.Request.Agent != "concierge" || again.Request.Input.Message.Text != "better" || again.Pool != "desk" {
		t.Errorf("redriven: %+v", again)
	}
}

// A redrive that is refused keeps the letter.
func TestRedriveRefused(t *testing.T) {
	t.Parallel()
	h := setup(t)
	ids := h.buried(1)
	path := "/v1/dead/" + ids[0] + "/redrive"
	h.want(h.do("POST", path, `{"mesage":1}`), http.StatusBadRequest, codeUnknownField)
	h.want(h.do("POST", path, `{"agent":"nobody","input":{"message":"hi"}}`), http.StatusNotFound, codeUnknownAgent)
	h.broker.letters[0].Submission.Request.Input = turn.Input{}
	h.want(h.do("POST", path, ""), http.StatusBadRequest, codeEmptyInput)
	h.want(h.do("GET", "/v1/dead/"+ids[0], ""), http.StatusOK, "")
	h.want(h.do("POST", "/v1/dead/x/redrive", ""), http.StatusNotFound, codeUnknownDead)
}
