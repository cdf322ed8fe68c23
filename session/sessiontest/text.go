package sessiontest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/turnpool/turnpool/session"
)

var textTests = map[string]func(*fixture){
	"InEvents":  textInEvents,
	"Raw":       textRaw,
	"InState":   textInState,
	"InScoped":  textInScoped,
	"InResult":  textInResult,
	"InPending": textInPending,
	"InIDs":     textInIDs,
	"Deep":      textDeep,
	"Long":      textLong,
	"Unknown":   textUnknown,
}

// texts are what people, models and tools have been seen to say.
var texts = map[string]string{
	"empty":            "",
	"plain":            "a table for two",
	"emoji":            "👩‍👩‍👧 in 東京, Ωραία",
	"NUL":              "a\x00b",
	"controls":         "\x01\x1f\x7f\t\r\n\b",
	"escape lookalike": `\u0000 and \ud800 and \\`,
	"quotes":           `"it's" 'quoted' \" %s $1 ?1 -- ;`,
	"markup":           "<b>&amp;</b>",
	"separators":       "\u2028\u2029\ufeff",
	"replacement":      "\ufffd",
	"bad bytes":        "a\xffb\xfe\xfec",
	"cut rune":         "cut \xe6\x9d",
	"surrogate bytes":  "\xed\xa0\x80",
	"overlong NUL":     "\xc0\x80",
	"long":             strings.Repeat("0123456789abcdé ", 1024),
}

// raws are JSON texts. They come back in the same notation, without the space
// between tokens.
var raws = map[string]string{
	"NUL escape":      `{"a\u0000b":"x\u0000y","lit":"\\u0000"}`,
	"lone surrogates": `["\ud800","\udc00x","\ud83d\ude00"]`,
	"bad bytes":       "{\"k\xff\":\"v\xfe\xfe\"}",
	"order and twice": `{"b":1,"a":2,"b":3}`,
	"numbers":         `[9007199254740993,1e400,-0,1.10,123456789012345678901234567890]`,
	"spaces":          " { \"a\" : [ 1 , 2 ] }\n",
	"markup":          `"<b>\u003c&"`,
	"null":            `null`,
}

// replaced is the text with U+FFFD in the place of each byte that is not UTF-8.
func replaced(s string) string {
	return strings.Map(func(r rune) rune { return r }, s)
}

// compacted is a raw value as it comes back.
func compacted(raw string) string {
	var buf bytes.Buffer
	if err := json.Compact(&buf, []byte(raw)); err != nil {
		panic(err)
	}
	return replaced(buf.String())
}

func textInEvents(f *fixture) {
	all := func(change func(string) string) []session.Event {
		var events []session.Event
		for name, text := range texts {
			text = change(text)
			result := &session.ToolResult{CallID: text, Name: text, Error: text}
			result.ProviderContext = &session.ProviderContext{Provider: text, Data: json.RawMessage(`{}`)}
			u := &session.User{Text: text, Source: text, MessageID: text}
			u.Media = []session.Media{{Type: "image", Source: session.MediaSource{Type: "url", URL: text}}}
			u.ParentInvocationID = name
			events = append(events, u, result)
		}
		return sortedByName(events)
	}
	s := slice("inv_1", 100, session.Base{}, all(func(s string) string { return s })...)
	want := slice("inv_1", 100, session.Base{}, all(replaced)...)
	f.commitAs(session.Committed, s)
	f.same("events", f.load(thread).Events, want.Events)
	page, err := f.store.Events(f.ctx, session.EventsQuery{Tenant: tenant, SessionID: thread, After: -1, Limit: len(want.Events)})
	if err != nil {
		f.Fatal(err)
	}
	for i, e := range page {
		f.same("event", e, session.IndexedEvent{Index: int64(i), Event: want.Events[i]})
	}
}

// sortedByName puts pairs of a user event and its companion in the order of the
// name that the user event carries as its parent.
func sortedByName(pairs []session.Event) []session.Event {
	byName := map[string][]session.Event{}
	for i := 0; i < len(pairs); i += 2 {
		byName[pairs[i].Base().ParentInvocationID] = pairs[i : i+2]
	}
	var out []session.Event
	for _, name := range sortedKeys(byName) {
		out = append(out, byName[name]...)
	}
	return out
}

func textRaw(f *fixture) {
	var events []session.Event
	names := sortedKeys(raws)
	for _, name := range names {
		raw := json.RawMessage(raws[name])
		events = append(events, &session.ToolResult{CallID: "c", Name: name, Result: raw})
	}
	f.commitAs(session.Committed, slice("inv_1", 100, session.Base{}, events...))
	for i, e := range f.load(thread).Events {
		if got, want := string(e.(*session.ToolResult).Result), compacted(raws[names[i]]); got != want {
			f.Errorf("%s: got %s, want %s", names[i], got, want)
		}
	}
}

func textInState(f *fixture) {
	want := session.State{}
	var events []session.Event
	for name, text := range texts {
		key := name + text
		value, _ := json.Marshal(text)
		events = append(events, sets(key, string(value)))
		want[replaced(key)] = value
	}
	for name, raw := range raws {
		events = append(events, sets(name, raw))
		want[name] = json.RawMessage(replaced(raw))
	}
	out := f.commitAs(session.Committed, slice("inv_1", 100, session.Base{}, events...))
	f.same("outcome's state", out.Head.State, want)
	f.same("state", f.load(thread).Head.State, want)
	f.same("listed state", f.sessions(1)[0].State, want)
	f.wantFolded(f.load(thread))
	// And again, on what was read.
	f.commitAs(session.Committed, slice("inv_2", 200, f.base(), sets("more", `1`)))
	want["more"] = json.RawMessage(`1`)
	f.same("state after another commit", f.load(thread).Head.State, want)
}

func textInScoped(f *fixture) {
	want := session.State{}
	s := ask("inv_1", 100, session.Base{})
	const scope, id = "us\xffer", "u\x00\xfe1"
	s.Scopes = map[string]string{scope: id}
	put := func(key, raw string) {
		s.Scoped = append(s.Scoped, session.ScopedWrite{Scope: scope, ScopeID: id, Key: key, Value: json.RawMessage(raw)})
		want[replaced(key)] = json.RawMessage(replaced(raw))
	}
	for name, text := range texts {
		put(name+text[:min(len(text), 1000)], `1`) // a key that a database can index
	}
	for name, raw := range raws {
		put(name, raw)
	}
	f.commitAs(session.Committed, s)
	f.same("scoped state", f.load(thread).Scoped, map[string]session.State{replaced(scope): want})
	f.same("scoped state of a new session", f.scopedState(replaced(scope), id), want)
}

func textInResult(f *fixture) {
	for _, name := range sortedKeys(raws) {
		s := ask("inv_"+name, 100, session.Base{})
		s.Result = func(session.Outcome) (json.RawMessage, error) { return json.RawMessage(raws[name]), nil }
		f.wantRow(f.commit(s))
		if got := string(f.row("inv_" + name).Result); got != replaced(raws[name]) {
			f.Errorf("result %s: got %s, want %s", name, got, replaced(raws[name]))
		}
	}
}

// A call is found by its id, whatever bytes a model made it of.
func textInPending(f *fixture) {
	const id, name = "call_\xff\x00", "tool\xfe"
	question := slice("inv_1", 100, session.Base{},
		&session.ToolCall{CallID: id, Name: name, Args: json.RawMessage("\"\xff\"")},
		&session.ToolYield{CallID: id, Name: name, Args: json.RawMessage("\"\xff\"")})
	out := f.commitAs(session.Committed, question)
	want := []session.PendingCall{{
		CallID: replaced(id), Name: replaced(name), Args: json.RawMessage("\"\ufffd\""), InvocationID: "inv_1", AgentName: "concierge",
	}}
	f.same("outcome's pending", out.Head.Pending, want)
	f.same("pending", f.load(thread).Head.Pending, want)
	f.commitAs(session.Committed, slice("inv_2", 200, f.base(), answers(id)))
	if open := f.load(thread).Head.Open(); len(open) != 0 {
		f.Fatalf("open after the answer: %+v", open)
	}
	f.commitAs(session.Committed, slice("inv_3", 300, f.base(), closes(id)))
	f.wantFolded(f.load(thread))
	if got := f.load(thread).Head.Pending; len(got) != 0 {
		f.Fatalf("pending after the result: %+v", got)
	}
}

// An id that a database cannot hold may be refused. It must not cost any other
// turn its commit, and what is accepted is found again.
func textInIDs(f *fixture) {
	for _, name := range sortedKeys(texts) {
		odd := texts[name][:min(len(texts[name]), 100)] + "."
		s := ask("inv_"+odd, 100, session.Base{})
		s.Turn.SessionID, s.Turn.Agent, s.Turn.Lane = "session_"+odd, odd, odd
		neighbour := ask("inv_beside_"+name, 100, session.Base{})
		neighbour.Turn.SessionID = "session_beside_" + name
		outs := f.settle(s, neighbour)
		if outs[1].Err != nil || outs[1].Turn.CommitStatus != session.Committed {
			f.Fatalf("beside %s: %s", name, describe(outs[1]))
		}
		loaded, err := f.store.Load(f.ctx, session.LoadQuery{
			Tenant: tenant, SessionID: s.Turn.SessionID, InvocationID: s.Turn.InvocationID,
		})
		switch {
		case outs[0].Err != nil && err == nil && (loaded.Head != nil || loaded.Turn != nil):
			f.Errorf("%s: refused with %v, and there: %+v", name, outs[0].Err, loaded)
		case outs[0].Err == nil && (err != nil || len(loaded.Events) != 2 || loaded.Turn == nil):
			f.Errorf("%s: accepted, and not there: %+v %v", name, loaded, err)
		case replaced(odd) == odd && !strings.Contains(odd, "\x00") && outs[0].Err != nil:
			f.Errorf("%s: %v", name, outs[0].Err)
		}
	}
}

// A text may be long, much longer than a page of any database.
func textLong(f *fixture) {
	long := strings.Repeat("0123456789abcdé ", 1<<14)
	quoted, _ := json.Marshal(long)
	s := slice("inv_1", 100, session.Base{}, user(long), calls("c1"), &session.ToolResult{CallID: "c1", Result: quoted})
	s.Result = func(session.Outcome) (json.RawMessage, error) { return quoted, nil }
	f.commitAs(session.Committed, s)
	events := f.load(thread).Events
	if got := events[0].(*session.User).Text; got != long {
		f.Errorf("the question has %d bytes, want %d", len(got), len(long))
	}
	if got := events[2].(*session.ToolResult).Result; !bytes.Equal(got, quoted) {
		f.Errorf("the tool's result has %d bytes, want %d", len(got), len(quoted))
	}
	if got := f.row("inv_1").Result; !bytes.Equal(got, quoted) {
		f.Errorf("the turn's result has %d bytes, want %d", len(got), len(quoted))
	}
}

// JSON may be nested as deeply as it can be read back.
func textDeep(f *fixture) {
	nested := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	want := 0
	for _, depth := range []int{100, 1_000, 5_000, 9_980, 9_995, 9_996, 9_997, 9_998, 9_999, 10_000} {
		s := slice(fmt.Sprintf("inv_%d", depth), 100, session.Base{}, sets("deep", nested(depth)), badEvent(nested(depth)))
		out := f.settle(s)[0]
		if out.Err == nil {
			want += 2
		} else if depth <= 1_000 { // a database may have a limit of its own, above this
			f.Errorf("depth %d: %v", depth, out.Err)
		}
		if got := f.load(thread); len(got.Events) != want {
			f.Fatalf("%d events after depth %d, want %d", len(got.Events), depth, want)
		}
	}
}

// Events of a newer version are carried through.
func textUnknown(f *fixture) {
	raw := `{"type":"dream","id":"inv_1/0","createdAt":100,"invocationId":"inv_1","agentName":"concierge","z":[1e2,"\u0000"],"a":{}}`
	e, err := session.Decode([]byte(raw))
	if err != nil {
		f.Fatal(err)
	}
	s := slice("inv_1", 100, session.Base{}, e, says("good morning"))
	f.commitAs(session.Committed, s)
	got := f.wantLedger(s).Events[0].(*session.Unknown)
	if string(got.Raw) != raw || got.Type() != "dream" || got.Base().CreatedAt != 100 {
		f.Fatalf("unknown event came back as %s", got.Raw)
	}
}
