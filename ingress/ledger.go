package ingress

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"github.com/turnpool/turnpool/session"
)

// ledgerPage is a part of a session's ledger. Next is the ?after= of the page
// that follows, if any does.
type ledgerPage struct {
	Events []json.RawMessage `json:"events"`
	Next   *int64            `json:"next,omitempty"`
}

// listEvents serves the ledger. What may not leave the process is left out, so
// a page can have fewer events than were asked for, or none, and still not be
// the last one.
func (s *Server) listEvents(w http.ResponseWriter, r *http.Request) error {
	id, err := pathSession(r)
	if err != nil {
		return err
	}
	q, err := eventsQuery(r.URL.Query())
	if err != nil {
		return err
	}
	q.Tenant, q.SessionID = tenant(r), id
	found, err := s.deps.Store.Events(r.Context(), q)
	if err != nil {
		return sessionFault(err, id)
	}
	list, err := cutLedger(found, q.Limit)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// eventsQuery asks for one event more than the page has, to know whether a page
// follows.
func eventsQuery(query url.Values) (session.EventsQuery, error) {
	q := session.EventsQuery{After: -1}
	limit, err := limitParam(query, defaultLedgerPage)
	if err != nil {
		return q, err
	}
	q.Limit = limit + 1
	switch query.Get("order") {
	case "", "asc":
	case "desc":
		q.Desc = true
	default:
		return q, invalidQuery("order", "expected asc or desc")
	}
	if given := query.Get("after"); given != "" {
		after, err := strconv.ParseInt(given, 10, 64)
		if err != nil || after < -1 || after > 1<<53 {
			return q, badCursor("query parameter after: expected the idx of an event")
		}
		q.After = after
	}
	return q, nil
}

func cutLedger(found []session.IndexedEvent, limit int) (ledgerPage, error) {
	list := ledgerPage{Events: []json.RawMessage{}}
	if len(found) == limit {
		found = found[:limit-1]
		list.Next = &found[len(found)-1].Index
	}
	for _, e := range found {
		if !session.MayLeave(e.Event) {
			continue
		}
		encoded, err := session.Encode(e.Event)
		if err != nil {
			return list, err
		}
		list.Events = append(list.Events, withIndex(encoded, e.Index))
	}
	return list, nil
}

// withIndex adds the event's place as its first member.
func withIndex(event json.RawMessage, index int64) json.RawMessage {
	out := append([]byte(`{"idx":`), strconv.AppendInt(nil, index, 10)...)
	return append(append(out, ','), bytes.TrimLeft(event, " \t\r\n{")...)
}
