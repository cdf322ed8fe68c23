package ingress

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/turn"
)

func (d *decoder) request(v []byte) turn.Request {
	r := turn.Request{Lane: turn.LaneInteractive}
	d.object("", v, d.root, func(name string, at pointer, v []byte) {
		switch name {
		case "agent":
			r.Agent = d.agent(at, v)
		case "sessionId":
			r.SessionID = d.sessionID(at, v)
		case "input":
			r.Input = d.input(at, v)
		case "frontendTools":
			r.FrontendTools = d.frontendTools(at, v)
		case "response":
			r.Response = d.response(at, v)
		case "timeout":
			r.Timeout = d.timeout(at, v)
		case "lane":
			r.Lane = d.lane(at, v)
		case "onDisconnect":
			r.OnDisconnect = d.onDisconnect(at, v)
		case "scopes":
			r.Scopes = d.scopes(at, v)
		case "metadata":
			r.Metadata = d.metadata(at, v)
		}
	})
	d.bound("/input/initialState", r.Input.InitialState, r.Scopes)
	return r
}

func (d *decoder) agent(at pointer, v []byte) string {
	name := d.text(at, v)
	if name != "" && !turn.ValidName(name) {
		d.reject(at, `expected 1 to 64 letters, digits, "_" and "-"`)
	}
	return name
}

func (d *decoder) sessionID(at pointer, v []byte) string {
	id := d.text(at, v)
	if id == "" {
		return ""
	}
	normal, ok := sessionID(id)
	if !ok {
		d.reject(at, "expected 1 to %d characters, none of them a control character", turn.MaxSessionID)
	}
	return normal
}

// sessionID returns the one form of a session id that a caller gave. The prefix
// that the form adds does not count towards its length, so that an id which
// this server gave out is always one that it takes.
func sessionID(given string) (string, bool) {
	normal := turn.NormalizeSessionID(given)
	bare := strings.TrimPrefix(normal, turn.NormalizeSessionID(""))
	return normal, turn.ValidSessionID(given) || turn.ValidSessionID(bare)
}

func (d *decoder) input(at pointer, v []byte) turn.Input {
	var in turn.Input
	d.object(at, v, d.root.member("input"), func(name string, at pointer, v []byte) {
		switch name {
		case "message":
			in.Message = d.message(at, v)
		case "tools":
			in.Tools = d.answers(at, v)
		case "state":
			in.State = d.state(at, v)
		case "initialState":
			in.InitialState = d.initialState(at, v)
		}
	})
	return in
}

// message returns nil for a message that says nothing.
func (d *decoder) message(at pointer, v []byte) *turn.Message {
	var m turn.Message
	switch v[0] {
	case '"':
		m.Text = unquote(v)
	case '{':
		d.object(at, v, d.root.member("input").member("message"), func(name string, at pointer, v []byte) {
			switch name {
			case "text":
				m.Text = d.text(at, v)
			case "media":
				d.list(at, v, func(at pointer, v []byte) { m.Media = append(m.Media, d.media(at, v)) })
			}
		})
	default:
		d.reject(at, "expected a string, or an object with text and media; got %s", kindOf(v))
	}
	if m.Text == "" && len(m.Media) == 0 {
		return nil
	}
	return &m
}

func (d *decoder) media(at pointer, v []byte) session.Media {
	var m session.Media
	var sourced bool
	before := len(d.errors)
	d.object(at, v, d.root.member("input").member("message").member("media"), func(name string, at pointer, v []byte) {
		switch name {
		case "type":
			m.Type = d.text(at, v)
		case "source":
			m.Source, sourced = d.source(at, v), true
		}
	})
	if len(d.errors) > before {
		return m
	}
	if m.Type != "image" && m.Type != "audio" && m.Type != "document" {
		d.reject(at.member("type"), "expected image, audio or document")
	}
	if !sourced {
		d.reject(at.member("source"), "missing; expected {type: url, url} or {type: base64, mimeType, data}")
	}
	return m
}

func (d *decoder) source(at pointer, v []byte) session.MediaSource {
	var src session.MediaSource
	before := len(d.errors)
	known := d.root.member("input").member("message").member("media").member("source")
	d.object(at, v, known, func(name string, at pointer, v []byte) {
		switch name {
		case "type":
			src.Type = d.text(at, v)
		case "url":
			src.URL = d.text(at, v)
		case "mimeType":
			src.MimeType = d.text(at, v)
		case "data":
			src.Data = d.text(at, v)
		}
	})
	if len(d.errors) > before {
		return src
	}
	switch src.Type {
	case "url":
		d.urlSource(at, src)
	case "base64":
		d.base64Source(at, src)
	default:
		d.reject(at.member("type"), "expected url or base64")
	}
	return src
}

func (d *decoder) urlSource(at pointer, src session.MediaSource) {
	address, err := url.Parse(src.URL)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		d.reject(at.member("url"), "expected an absolute http or https address")
	}
	if src.MimeType != "" {
		d.reject(at.member("mimeType"), "a source of type url has none")
	}
	if src.Data != "" {
		d.reject(at.member("data"), "a source of type url has none")
	}
}

func (d *decoder) base64Source(at pointer, src session.MediaSource) {
	if _, _, err := mime.ParseMediaType(src.MimeType); err != nil || !strings.Contains(src.MimeType, "/") {
		d.reject(at.member("mimeType"), "expected a media type, like image/png")
	}
	if _, err := base64.StdEncoding.DecodeString(src.Data); err != nil || src.Data == "" {
		d.reject(at.member("data"), "expected bytes in base64")
	}
	if src.URL != "" {
		d.reject(at.member("url"), "a source of type base64 has none")
	}
}

func (d *decoder) frontendTools(at pointer, v []byte) []turn.FrontendTool {
	var tools []turn.FrontendTool
	seen := map[string]bool{}
	d.list(at, v, func(at pointer, v []byte) {
		tool := d.frontendTool(at, v)
		if tool.Name != "" && seen[tool.Name] {
			d.reject(at.member("name"), "another tool has this name")
		}
		seen[tool.Name] = true
		tools = append(tools, tool)
	})
	return tools
}

func (d *decoder) frontendTool(at pointer, v []byte) (t turn.FrontendTool) {
	before := len(d.errors)
	d.object(at, v, d.root.member("frontendTools"), func(name string, at pointer, v []byte) {
		switch name {
		case "name":
			t.Name = d.agent(at, v)
		case "description":
			t.Description = d.text(at, v)
		case "parameters":
			t.Parameters = d.schema(at, v)
		}
	})
	if len(d.errors) == before && t.Name == "" {
		d.reject(at.member("name"), "missing; expected the tool's name")
	}
	return t
}

// schema returns a JSON schema of an object.
func (d *decoder) schema(at pointer, v []byte) json.RawMessage {
	if !d.expect(at, v, '{', "a JSON schema, an object") {
		return nil
	}
	var schema jsonschema.Schema
	err := json.Unmarshal(v, &schema)
	if err == nil {
		_, err = schema.Resolve(nil)
	}
	if err != nil {
		d.reject(at, "not a JSON schema: %v", err)
	}
	return v
}

func (d *decoder) answers(at pointer, v []byte) []turn.ToolAnswer {
	var answers []turn.ToolAnswer
	seen := map[string]bool{}
	d.list(at, v, func(at pointer, v []byte) {
		answer, ok := d.answer(at, v)
		if ok && seen[answer.CallID] {
			d.reject(at.member("callId"), "another answer is for the same call")
		}
		seen[answer.CallID] = true
		answers = append(answers, answer)
	})
	return answers
}

func (d *decoder) answer(at pointer, v []byte) (a turn.ToolAnswer, ok bool) {
	if !d.expect(at, v, '{', "an object") {
		return a, false
	}
	known := d.root.member("input").member("tools")
	before := len(d.errors)
	members(v, func(name string, value []byte) { // null is an answer like any other
		switch at := at.member(name); {
		case known.member(name) == nil:
			d.unknown = true
			d.reject(at, "%s", d.root.hint(name, known))
		case name == "callId":
			a.CallID = d.text(at, value)
		case name == "input":
			a.Input = value
		}
	})
	if len(d.errors) > before {
		return a, false
	}
	if a.CallID == "" {
		d.reject(at.member("callId"), "missing; expected the id of a call that waits")
	}
	if a.Input == nil {
		d.reject(at.member("input"), "missing; expected the answer")
	}
	return a, a.CallID != ""
}

func (d *decoder) state(at pointer, v []byte) session.State {
	if !d.expect(at, v, '{', "an object") {
		return nil
	}
	state := session.State{}
	members(v, func(name string, value []byte) { state[name] = value })
	return state
}

func (d *decoder) initialState(at pointer, v []byte) map[string]session.State {
	if !d.expect(at, v, '{', "an object with a member for each scope") {
		return nil
	}
	initial := map[string]session.State{}
	members(v, func(scope string, value []byte) {
		at := at.member(scope)
		if scope != session.ScopeSession {
			d.scopeName(at, scope)
		}
		initial[scope] = d.state(at, value)
	})
	return initial
}

// bound rejects initial state of a scope that the request does not bind: a new
// session would not know whose it is.
func (d *decoder) bound(at pointer, initial map[string]session.State, scopes map[string]string) {
	for _, scope := range slices.Sorted(maps.Keys(initial)) {
		if _, ok := scopes[scope]; !ok && sharedScope(scope) {
			d.reject(at.member(scope), "scopes does not say which %s: a new session binds its scopes by id", scope)
		}
	}
}

// sharedScope reports whether the name can be a scope between sessions.
func sharedScope(name string) bool {
	return turn.ValidName(name) && name != session.ScopeSession && name != session.ScopeTemp
}

func (d *decoder) scopeName(at pointer, name string) {
	if !sharedScope(name) {
		d.reject(at, `not the name of a shared scope: expected 1 to 64 letters, digits, "_" and "-", not "session" or "temp"`)
	}
}

func (d *decoder) scopes(at pointer, v []byte) map[string]string {
	return d.texts(at, v, func(at pointer, name, id string) {
		d.scopeName(at, name)
		if !turn.ValidSessionID(id) {
			d.reject(at, "expected an id of 1 to %d characters, none of them a control character", turn.MaxSessionID)
		}
	})
}

func (d *decoder) metadata(at pointer, v []byte) map[string]string {
	return d.texts(at, v, func(pointer, string, string) {})
}

// texts reads an object whose members are the caller's own, and strings.
func (d *decoder) texts(at pointer, v []byte, check func(at pointer, name, text string)) map[string]string {
	if !d.expect(at, v, '{', "an object of strings") {
		return nil
	}
	texts := map[string]string{}
	members(v, func(name string, value []byte) {
		at := at.member(name)
		if d.expect(at, value, '"', "a string") {
			texts[name] = unquote(value)
			check(at, name, texts[name])
		}
	})
	return texts
}

func (d *decoder) response(at pointer, v []byte) *turn.Response {
	var out turn.Response
	d.object(at, v, d.root.member("response"), func(name string, at pointer, v []byte) {
		switch name {
		case "events":
			out.Events = d.flag(at, v)
		case "usage":
			out.Usage = d.flag(at, v)
		case "state":
			out.State = d.flag(at, v)
		case "deltas":
			out.Deltas = d.flag(at, v)
		}
	})
	return &out
}

// maxTimeout bounds what is passed on, so that nobody who makes a duration of
// it overflows; a worker's own limit is far below.
const maxTimeout = 365 * 24 * 60 * 60 * 1000

func (d *decoder) timeout(at pointer, v []byte) int64 {
	ms, err := strconv.ParseInt(string(v), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) && v[0] != '-':
		return maxTimeout
	case err != nil && kindOf(v) != "a number":
		d.reject(at, "expected a number of milliseconds, got %s", kindOf(v))
	case err != nil:
		d.reject(at, "expected a whole number of milliseconds")
	case ms < 0:
		d.reject(at, "expected a number of milliseconds that is not negative")
	}
	return min(ms, maxTimeout)
}

func (d *decoder) lane(at pointer, v []byte) turn.Lane {
	switch lane := turn.Lane(d.text(at, v)); lane {
	case "":
		return turn.LaneInteractive
	case turn.LaneInteractive, turn.LaneBatch:
		return lane
	}
	d.reject(at, "expected interactive or batch")
	return ""
}

func (d *decoder) onDisconnect(at pointer, v []byte) turn.OnDisconnect {
	switch asked := turn.OnDisconnect(d.text(at, v)); asked {
	case "", turn.OnDisconnectContinue:
		return asked
	case turn.OnDisconnectCancel:
		d.reject(at, "cancel is not supported yet; expected continue")
	default:
		d.reject(at, "expected continue")
	}
	return ""
}
