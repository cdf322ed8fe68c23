package ingress

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// sessionView is a session as callers see it.
type sessionView struct {
	SessionID  string            `json:"sessionId"`
	Version    int64             `json:"version"`
	EventCount int64             `json:"eventCount"`
	Pending    []pendingView     `json:"pending"`
	State      session.State     `json:"state"`
	Scopes     map[string]string `json:"scopes"`
	Usage      *session.Usage    `json:"usage,omitempty"`
	CreatedAt  int64             `json:"createdAt"`
	UpdatedAt  int64             `json:"updatedAt"`
}

// pendingView is a call that waits for an answer, with the answer's schema as
// the agents announce it.
type pendingView struct {
	CallID       string          `json:"callId"`
	Name         string          `json:"name"`
	Args         json.RawMessage `json:"args"`
	InvocationID string          `json:"invocationId"`
	InputSchema  json.RawMessage `json:"inputSchema,omitempty"`
}

func (s *Server) view(head *session.Head) sessionView {
	v := sessionView{
		SessionID: head.ID, Version: head.Version, EventCount: head.EventCount, Pending: []pendingView{},
		State: head.State, Scopes: head.Scopes, Usage: head.Usage, CreatedAt: head.CreatedAt, UpdatedAt: head.UpdatedAt,
	}
	if v.State == nil {
		v.State = session.State{}
	}
	if v.Scopes == nil {
		v.Scopes = map[string]string{}
	}
	for _, p := range head.Open() {
		v.Pending = append(v.Pending, pendingView{
			CallID: p.CallID, Name: p.Name, Args: p.Args, InvocationID: p.InvocationID, InputSchema: s.answerSchema(p.Name),
		})
	}
	return v
}

// answerSchema is the schema of the answers to a tool, nil if no agent has the
// tool, or if agents have tools of that name that want different answers.
func (s *Server) answerSchema(tool string) json.RawMessage {
	var schema json.RawMessage
	for _, agent := range s.deps.Registry.Agents() {
		for _, t := range agent.Tools {
			switch {
			case t.Name != tool || t.InputSchema == nil:
			case schema == nil:
				schema = t.InputSchema
			case !session.EqualJSON(schema, t.InputSchema):
				return nil
			}
		}
	}
	return schema
}

// sessionPath is the address of a session, whatever characters its id has.
func sessionPath(id string) string { return "/v1/sessions/" + url.PathEscape(id) }

func (s *Server) writeSession(w http.ResponseWriter, status int, head *session.Head) {
	w.Header().Set("ETag", `"`+strconv.FormatInt(head.Version, 10)+`"`)
	writeJSON(w, status, s.view(head))
}

// pathSession is the session that a path names. An id that cannot be one is of
// no session.
func pathSession(r *http.Request) (string, error) {
	given := r.PathValue("id")
	id, ok := sessionID(given)
	if !ok {
		return "", unknownSession(given)
	}
	return id, nil
}

func unknownSession(id string) error {
	return &fault{code: codeUnknownSession, detail: fmt.Sprintf("there is no session %q", shorten(id, 80))}
}

// sessionFault is what an error of the store means in a request about one
// session.
func sessionFault(err error, id string) error {
	if errors.Is(err, session.ErrNotFound) {
		return unknownSession(id)
	}
	return storeFault(err)
}

// createSession makes a session before its first turn. A body is not needed.
func (s *Server) createSession(w http.ResponseWriter, r *http.Request) error {
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}
	n, err := decodeSession(body)
	if err != nil {
		return err
	}
	created := s.newSession(tenant(r), n)
	head, err := s.deps.Store.Create(r.Context(), created)
	if errors.Is(err, session.ErrExists) {
		return &fault{code: codeSessionExists, instance: sessionPath(created.ID), detail: fmt.Sprintf("there is a session %q already", created.ID)}
	}
	if err != nil {
		return storeFault(err)
	}
	w.Header().Set("Location", sessionPath(head.ID))
	s.writeSession(w, http.StatusCreated, head)
	return nil
}

// sessionRequest is a session as a caller asks for it.
type sessionRequest struct {
	id      string
	scopes  map[string]string
	initial map[string]session.State // by scope
}

func decodeSession(body []byte) (sessionRequest, error) {
	if len(body) == 0 {
		return sessionRequest{}, nil
	}
	value, err := wellFormed(body)
	if err != nil {
		return sessionRequest{}, err
	}
	d := decoder{root: sessionShape}
	n := d.session(value)
	return n, d.err()
}

// session reads the body of a session to create. Its state is a short form of
// the initial state of the scope "session", and wins over it key by key.
func (d *decoder) session(v []byte) sessionRequest {
	var n sessionRequest
	var state session.State
	d.object("", v, d.root, func(name string, at pointer, v []byte) {
		switch name {
		case "sessionId":
			n.id = d.sessionID(at, v)
		case "scopes":
			n.scopes = d.scopes(at, v)
		case "state":
			state = d.state(at, v)
		case "initialState":
			n.initial = d.initialState(at, v)
		}
	})
	d.bound("/initialState", n.initial, n.scopes)
	if len(state) > 0 {
		if n.initial == nil {
			n.initial = map[string]session.State{}
		}
		all := n.initial[session.ScopeSession].Clone()
		maps.Copy(all, state)
		n.initial[session.ScopeSession] = all
	}
	return n
}

// newSession is what the store is asked to create: the initial state as events,
// and the writes to shared scopes beside them.
func (s *Server) newSession(tenant string, n sessionRequest) session.NewSession {
	if n.id == "" {
		n.id = turn.NewSessionID()
	}
	now := s.cfg.Clock().UnixMilli()
	created := session.NewSession{Tenant: tenant, ID: n.id, Scopes: n.scopes, CreatedAt: now}
	for _, scope := range slices.Sorted(maps.Keys(n.initial)) {
		changes := session.State{}.Diff(n.initial[scope])
		if len(changes) == 0 {
			continue
		}
		created.Events = append(created.Events, &session.StateChange{
			EventBase: session.EventBase{ID: turn.NewEventID(), CreatedAt: now},
			Scope:     scope, Source: session.SourceDirect, Changes: changes,
		})
		if scope == session.ScopeSession {
			continue
		}
		for _, c := range changes {
			created.Scoped = append(created.Scoped, session.ScopedWrite{Scope: scope, ScopeID: n.scopes[scope], Key: c.Key, Value: c.NewValue})
		}
	}
	return created
}

func (s *Server) getSession(w http.ResponseWriter, r *http.Request) error {
	id, err := pathSession(r)
	if err != nil {
		return err
	}
	head, err := s.deps.Store.Head(r.Context(), tenant(r), id)
	if err != nil {
		return sessionFault(err, id)
	}
	s.writeSession(w, http.StatusOK, head)
	return nil
}

// deleteSession deletes by the broker's clock, which stamps the requests too:
// so a turn that was asked for before ends orphaned, and one after does not.
func (s *Server) deleteSession(w http.ResponseWriter, r *http.Request) error {
	id, err := pathSession(r)
	if err != nil {
		return err
	}
	now, err := s.deps.Queue.Now(r.Context())
	if err != nil {
		return brokerFault(err)
	}
	if err := s.deps.Store.Delete(r.Context(), tenant(r), id, now); err != nil {
		return sessionFault(err, id)
	}
	s.log.Info("session deleted", "session", id)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// Sizes of the pages of lists and of ledgers.
const (
	defaultPage       = 50
	defaultLedgerPage = 100
	maxPage           = 1000
)

func limitParam(query url.Values, fallback int) (int, error) {
	given := query.Get("limit")
	if given == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 1 || n > maxPage {
		return 0, invalidQuery("limit", fmt.Sprintf("expected 1 to %d", maxPage))
	}
	return n, nil
}

// pageQuery reads ?limit= and ?cursor=. It asks for one entry more than the
// page has, to know whether a page follows.
func pageQuery(r *http.Request) (session.PageQuery, error) {
	query := r.URL.Query()
	limit, err := limitParam(query, defaultPage)
	if err != nil {
		return session.PageQuery{}, err
	}
	q := session.PageQuery{Tenant: tenant(r), Limit: limit + 1}
	if given := query.Get("cursor"); given != "" {
		q.At, q.ID, err = decodeCursor(given)
	}
	return q, err
}

// encodeCursor names the last entry of a page. Callers must not look into it.
func encodeCursor(at int64, id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(at, 10) + " " + id))
}

func decodeCursor(cursor string) (at int64, id string, err error) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	time, id, found := strings.Cut(string(text), " ")
	at, errTime := strconv.ParseInt(time, 10, 64)
	if err != nil || !found || errTime != nil || !turn.ValidSessionID(strings.TrimPrefix(id, turn.NormalizeSessionID(""))) {
		return 0, "", badCursor("expected the next of a page before, got " + strconv.Quote(shorten(cursor, 40)))
	}
	return at, id, nil
}

// cut makes a page of what was found for a [pageQuery].
func cut[T any](found []T, q session.PageQuery, cursor func(T) (int64, string)) (items []T, next string) {
	if len(found) < q.Limit {
		return found, ""
	}
	items = found[:q.Limit-1]
	return items, encodeCursor(cursor(items[len(items)-1]))
}

func (s *Server) listSessions(w http.ResponseWriter, r *http.Request) error {
	q, err := pageQuery(r)
	if err != nil {
		return err
	}
	found, err := s.deps.Store.Sessions(r.Context(), q)
	if err != nil {
		return storeFault(err)
	}
	heads, next := cut(found, q, func(h *session.Head) (int64, string) { return h.CreatedAt, h.ID })
	list := page[sessionView]{Items: make([]sessionView, len(heads)), Next: next}
	for i, head := range heads {
		list.Items[i] = s.view(head)
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// listTurns lists a session's turns without their answers, which may be large.
func (s *Server) listTurns(w http.ResponseWriter, r *http.Request) error {
	id, err := pathSession(r)
	if err != nil {
		return err
	}
	q, err := pageQuery(r)
	if err != nil {
		return err
	}
	if _, err := s.deps.Store.Head(r.Context(), q.Tenant, id); err != nil {
		return sessionFault(err, id)
	}
	found, err := s.deps.Store.Turns(r.Context(), id, q)
	if err != nil {
		return storeFault(err)
	}
	rows, next := cut(found, q, func(t *session.Turn) (int64, string) { return t.CreatedAt, t.InvocationID })
	list := page[turnSummary]{Items: make([]turnSummary, len(rows)), Next: next}
	for i, row := range rows {
		list.Items[i] = summaryOfRow(row)
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}
