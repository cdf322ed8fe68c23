package ingress

import (
	"bytes"
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

// writeJSON answers with v.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	writeBody(w, status, v)
}

// writeBody encodes before it sends the status, so that a value that cannot be
// encoded is still a 500. That a caller went away while it was written to is no
// failure of anything.
func writeBody(w http.ResponseWriter, status int, v any) {
	body, err := encodeJSON(v)
	if err != nil {
		panic(err) // becomes the 500, with this text in the log
	}
	w.WriteHeader(status)
	w.Write(body)
}

// writeRaw answers with bytes that are JSON.
func writeRaw(w http.ResponseWriter, status int, body json.RawMessage) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(body)
}

// encodeJSON returns v's JSON as the wire has it everywhere: without escapes
// for HTML, and UTF-8 whatever raw values are in it.
func encodeJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	body := bytes.TrimRight(buf.Bytes(), "\n")
	if !utf8.Valid(body) {
		body = bytes.ToValidUTF8(body, []byte("\uFFFD"))
	}
	return body, nil
}

// writeOutcome answers a caller that waited for a turn's result: the same body
// whatever became of the turn, with a status that says it too.
func writeOutcome(w http.ResponseWriter, result json.RawMessage) {
	writeRaw(w, outcomeStatus(result), result)
}

func outcomeStatus(result json.RawMessage) int {
	var r struct {
		Status session.Status `json:"status"`
		Error  struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	// A result that cannot be read is passed on as it is: it is the turn's.
	if json.Unmarshal(result, &r) != nil || r.Status != session.StatusError {
		return http.StatusOK
	}
	if status, ok := statusOfTurn[r.Error.Code]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// resultOf builds the result of a turn that has nothing but its row: one that
// was aborted by somebody who did not run it, or whose session was deleted.
func resultOf(row session.Turn, metadata map[string]string) *turn.Result {
	return &turn.Result{
		SessionID: row.SessionID, InvocationID: row.InvocationID, Status: row.Status,
		CommitStatus: row.CommitStatus, Version: row.Version, Warning: row.CommitStatus.Warning(),
		Agent: row.Agent, Lane: turn.Lane(row.Lane), Attempts: row.Attempt,
		CreatedAt: row.CreatedAt, StartedAt: row.StartedAt, FinishedAt: row.FinishedAt,
		Metadata: metadata,
	}
}

// untag takes the type off a result that came from a stream, where it is an
// event, so that it is the body that the store has.
func untag(event json.RawMessage) json.RawMessage {
	const tag = `{"type":"result",`
	if bytes.HasPrefix(event, []byte(tag)) {
		return append(json.RawMessage{'{'}, event[len(tag):]...)
	}
	return event
}
