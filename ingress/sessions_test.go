package ingress

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

func TestCreateSession(t *testing.T) {
	t.Parallel()
	h := setup(t)
	a := h.do("POST", "/v1/sessions", `{"sessionId":"thread-42","scopes":{"user":"u1"},"state":{"a":2,"b":null},
		"initialState":{"session":{"a":1,"c":"x"},"user":{"tier":"gold"}}}`)
	h.want(a, http.StatusCreated, "")
	golden(t, "session_created", a.body)
	if a.header.Get("Location") != "/v1/sessions/session_thread-42" || a.header.Get("ETag") != `"1"` {
		t.Errorf("%v", a.header)
	}
	// Both forms of the id name it.
	for _, id := range []string{"thread-42", "session_thread-42", "thread%2D42"} {
		got := h.do("GET", "/v1/sessions/"+id, "")
		h.want(got, http.StatusOK, "")
		if string(got.body) != string(a.body) || got.header.Get("ETag") != `"1"` {
			t.Errorf("%s: %s", id, got.body)
		}
	}
	for _, body := range []string{`{"sessionId":"thread-42"}`, `{"sessionId":"session_thread-42"}`} {
		a := h.do("POST", "/v1/sessions", body)
		h.want(a, http.StatusConflict, codeSessionExists)
		golden(t, "problem_session_exists", a.body)
	}
	// Shared scopes are written, and do not leave.
	loaded, err := h.store.Load(t.Context(), session.LoadQuery{Tenant: turn.DefaultTenant, SessionID: "session_thread-42"})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(loaded.Scoped["user"]["tier"]); got != `"gold"` || len(loaded.Events) != 2 {
		t.Errorf("user scope %s, %d events", got, len(loaded.Events))
	}
	ledger := h.do("GET", "/v1/sessions/thread-42/events", "")
	h.want(ledger, http.StatusOK, "")
	golden(t, "ledger_state", ledger.body)
}

func TestCreateSessionWithoutAnything(t *testing.T) {
	t.Parallel()
	h := setup(t)
	for _, body := range []string{"", "{}", `{"sessionId":""}`, `{"state":null,"scopes":{}}`} {
		a := h.do("POST", "/v1/sessions", body)
		h.want(a, http.StatusCreated, "")
		golden(t, "session_minted", a.body)
	}
}

func TestCreateSessionRefused(t *testing.T) {
	t.Parallel()
	h := setup(t)
	tests := map[string]string{
		`{"session_id":"x"}`:                 codeUnknownField,
		`{"input":{}}`:                       codeUnknownField,
		`{"sessionId":"\u0000"}`:             codeInvalidField,
		`{"state":[]}`:                       codeInvalidField,
		`{"scopes":{"temp":"x"}}`:            codeInvalidField,
		`{"initialState":{"user":{}}}`:       codeInvalidField,
		`{"initialState":{"session":{}}} {}`: codeMalformedJSON,
		`  `:                                 codeMalformedJSON,
	}
	for body, code := range tests {
		h.want(h.do("POST", "/v1/sessions", body), http.StatusBadRequest, code)
	}
	h.want(h.do("POST", "/v1/sessions", `{}`, "Content-Type: text/plain"), http.StatusUnsupportedMediaType, codeUnsupportedMedia)
	h.want(h.do("POST", "/v1/sessions", `{"sessionId":"`+strings.Repeat("x", 300<<10)+`"}`), http.StatusRequestEntityTooLarge, codeTooLarge)
}

// Any id that is valid can be put into a path, escaped.
func TestSessionIDsInPaths(t *testing.T) {
	t.Parallel()
	h := setup(t)
	for _, id := range []string{"a/b", "..", "a b", "a?b#c", "100%", "é/日本", "session_", "session_session_x", strings.Repeat("é", 200)} {
		encoded, err := json.Marshal(map[string]string{"sessionId": id})
		if err != nil {
			t.Fatal(err)
		}
		a := h.do("POST", "/v1/sessions", string(encoded))
		h.want(a, http.StatusCreated, "")
		normal := decodeBody[sessionView](t, a).SessionID
		if normal != turn.NormalizeSessionID(id) {
			t.Errorf("%q became %q", id, normal)
		}
		h.want(h.do("GET", a.header.Get("Location"), ""), http.StatusOK, "")
		h.want(h.do("GET", "/v1/sessions/"+url.PathEscape(normal)+"/turns", ""), http.StatusOK, "")
	}
}

func TestSessionUnknown(t *testing.T) {
	t.Parallel()
	h := setup(t)
	golden(t, "problem_unknown_session", h.do("GET", "/v1/sessions/x", "").body)
	for _, id := range []string{"x", "%00", strings.Repeat("y", 201)} {
		for _, path := range []string{"", "/events", "/turns"} {
			h.want(h.do("GET", "/v1/sessions/"+id+path, ""), http.StatusNotFound, codeUnknownSession)
		}
		h.want(h.do("DELETE", "/v1/sessions/"+id, ""), http.StatusNotFound, codeUnknownSession)
	}
	h.store.break_(errStore)
	h.want(h.do("GET", "/v1/sessions/x", ""), http.StatusServiceUnavailable, codeUnavailable)
}

func TestSessionOfTurns(t *testing.T) {
	t.Parallel()
	h := setup(t)
	for _, text := range []string{"one", "two", "three"} {
		h.submitAsync(fmt.Sprintf(`{"sessionId":"x","input":{"message":%q}}`, text))
		sub := h.broker.take(t)
		status := session.StatusCompleted
		if text == "two" {
			status = session.StatusError
		}
		h.finish(sub, status)
	}
	a := h.do("GET", "/v1/sessions/x", "")
	golden(t, "session_of_turns", a.body)
	if got := a.header.Get("ETag"); got != `"2"` {
		t.Errorf("ETag %s", got)
	}
	type turns = page[turnSummary]
	all := decodeBody[turns](t, h.do("GET", "/v1/sessions/x/turns", ""))
	if len(all.Items) != 3 || all.Next != "" {
		t.Fatalf("%+v", all)
	}
	sameKind := h.do("GET", "/v1/sessions/x/turns", "")
	golden(t, "turns_of_session", sortedTurns(t, sameKind.body))
	// Page by page it is the same list.
	var paged []turnSummary
	for next := ""; ; {
		p := decodeBody[turns](t, h.do("GET", "/v1/sessions/x/turns?limit=1&cursor="+next, ""))
		paged = append(paged, p.Items...)
		if next = p.Next; next == "" {
			break
		}
	}
	if diff := cmp.Diff(all.Items, paged); diff != "" {
		t.Errorf("(-all +paged):\n%s", diff)
	}
}

func TestSessionPending(t *testing.T) {
	t.Parallel()
	h := setup(t)
	base := session.EventBase{CreatedAt: 1, InvocationID: "inv_1", AgentName: "concierge"}
	events := []session.Event{
		&session.ToolYield{EventBase: base, CallID: "call_1", Name: "ask_guest", Args: json.RawMessage(`{"q":"Which night?"}`)},
		&session.ToolYield{EventBase: base, CallID: "call_2", Name: "gone_tool", Args: json.RawMessage(`{}`)},
		&session.ToolYield{EventBase: base, CallID: "call_3", Name: "ask_guest", Args: json.RawMessage(`{}`)},
		&session.ToolInput{EventBase: base, CallID: "call_3", Name: "ask_guest", Input: json.RawMessage(`{}`)}, // answered
	}
	if _, err := h.store.Create(t.Context(), session.NewSession{Tenant: turn.DefaultTenant, ID: "session_x", Events: events, CreatedAt: 1}); err != nil {
		t.Fatal(err)
	}
	golden(t, "session_pending", h.do("GET", "/v1/sessions/x", "").body)
	// Agents that want different answers: which one is not ours to say.
	h.broker.known = append(h.broker.known, turn.AgentInfo{Name: "other", Tools: []turn.ToolInfo{{Name: "ask_guest", InputSchema: json.RawMessage(`{"type":"string"}`)}}})
	if a := h.do("GET", "/v1/sessions/x", ""); strings.Contains(string(a.body), "inputSchema") {
		t.Errorf("%s", a.body)
	}
}

func TestListSessions(t *testing.T) {
	t.Parallel()
	at := now
	h := setup(t, func(c *Config, _ *Deps) {
		c.Clock = func() time.Time { at = at.Add(time.Millisecond); return at }
	})
	var want []string
	for i := range 7 {
		a := h.do("POST", "/v1/sessions", fmt.Sprintf(`{"sessionId":"%d/ü"}`, i))
		want = append(want, decodeBody[sessionView](t, a).SessionID)
	}
	slices.Reverse(want)
	for limit := 1; limit <= 8; limit++ {
		var got []string
		for cursor := ""; ; {
			p := decodeBody[page[sessionView]](t, h.do("GET", fmt.Sprintf("/v1/sessions?limit=%d&cursor=%s", limit, cursor), ""))
			for _, s := range p.Items {
				got = append(got, s.SessionID)
			}
			if cursor = p.Next; cursor == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %v", limit, got)
		}
	}
	for _, limit := range []string{"0", "-1", "1001", "x", "1e2"} {
		h.want(h.do("GET", "/v1/sessions?limit="+limit, ""), http.StatusBadRequest, codeInvalidField)
	}
	for _, cursor := range []string{"x", "MQ", "%20", "MTIzIA", strings.Repeat("A", 1000)} {
		h.want(h.do("GET", "/v1/sessions?cursor="+cursor, ""), http.StatusBadRequest, codeBadCursor)
	}
	golden(t, "sessions_page", h.do("GET", "/v1/sessions?limit=1", "").body)
	none := setup(t)
	golden(t, "sessions_none", none.do("GET", "/v1/sessions", "").body)
}

func TestLedger(t *testing.T) {
	t.Parallel()
	h := setup(t)
	var events []session.Event
	for i := range 10 {
		base := session.EventBase{ID: "event_" + strconv.Itoa(i), CreatedAt: int64(i), InvocationID: "inv_1", AgentName: "a"}
		if i%3 == 1 { // of a shared scope: may not leave
			events = append(events, &session.StateChange{EventBase: base, Scope: "user", Source: "mutation"})
			continue
		}
		events = append(events, &session.User{EventBase: base, Text: "<" + strconv.Itoa(i) + ">"})
	}
	if _, err := h.store.Create(t.Context(), session.NewSession{Tenant: turn.DefaultTenant, ID: "session_x", Events: events}); err != nil {
		t.Fatal(err)
	}
	type ledger struct {
		Events []struct {
			Idx  int64
			Type string
			ID   string
		}
		Next *int64
	}
	read := func(limit int, order string) (got []int64) {
		for after := ""; ; {
			p := decodeBody[ledger](t, h.do("GET", fmt.Sprintf("/v1/sessions/x/events?limit=%d&order=%s%s", limit, order, after), ""))
			for _, e := range p.Events {
				if e.ID != fmt.Sprintf("event_%d", e.Idx) || e.Type == session.TypeStateChange {
					t.Errorf("%+v", e)
				}
				got = append(got, e.Idx)
			}
			if p.Next == nil {
				return got
			}
			after = fmt.Sprintf("&after=%d", *p.Next)
		}
	}
	want := []int64{0, 2, 3, 5, 6, 8, 9}
	for limit := 1; limit <= 11; limit++ {
		if got := read(limit, "asc"); !slices.Equal(got, want) {
			t.Errorf("asc by %d: %v", limit, got)
		}
		down := slices.Clone(want)
		slices.Reverse(down)
		if got := read(limit, "desc"); !slices.Equal(got, down) {
			t.Errorf("desc by %d: %v", limit, got)
		}
	}
	golden(t, "ledger_page", h.do("GET", "/v1/sessions/x/events?after=4&limit=3", "").body)
	golden(t, "ledger_end", h.do("GET", "/v1/sessions/x/events?after=9", "").body)
	for query, code := range map[string]string{
		"order=up": codeInvalidField, "limit=0": codeInvalidField, "after=x": codeBadCursor, "after=-2": codeBadCursor,
	} {
		h.want(h.do("GET", "/v1/sessions/x/events?"+query, ""), http.StatusBadRequest, code)
	}
}

func TestDeleteSession(t *testing.T) {
	t.Parallel()
	h := setup(t)
	h.submitAsync(`{"sessionId":"x","input":{"message":"hi"}}`)
	h.finish(h.broker.take(t), session.StatusCompleted)
	h.broker.onNow = func() error { return turn.ErrUnavailable }
	h.want(h.do("DELETE", "/v1/sessions/x", ""), http.StatusServiceUnavailable, codeUnavailable)
	h.broker.onNow = nil
	a := h.do("DELETE", "/v1/sessions/x", "")
	if a.status != http.StatusNoContent || len(a.body) > 0 {
		t.Errorf("%d %s", a.status, a.body)
	}
	h.want(h.do("DELETE", "/v1/sessions/x", ""), http.StatusNotFound, codeUnknownSession)
	h.want(h.do("GET", "/v1/sessions/x/turns", ""), http.StatusNotFound, codeUnknownSession)
	loaded, err := h.store.Load(t.Context(), session.LoadQuery{Tenant: turn.DefaultTenant, SessionID: "session_x"})
	if err != nil || loaded.DeletedAt != now.UnixMilli() {
		t.Errorf("deleted at %d, %v: not the broker's time", loaded.DeletedAt, err)
	}
}

// sortedTurns orders a list of turns, which all have one time here and are thus
// ordered by their random ids, by their version.
func sortedTurns(t *testing.T, body []byte) []byte {
	t.Helper()
	var list page[turnSummary]
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b turnSummary) int { return int(b.Version - a.Version) })
	sorted, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return sorted
}
