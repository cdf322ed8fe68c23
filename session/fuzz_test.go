package session_test

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"github.com/turnpool/turnpool/session"
)

func seeds(f *testing.F, add func(data []byte)) {
	f.Helper()
	for _, pair := range goldenEvents {
		for _, e := range pair {
			data, err := session.Encode(e)
			if err != nil {
				f.Fatal(err)
			}
			add(data)
		}
	}
	for _, odd := range []string{
		``, `null`, `{}`, `[]`, `{"type":"user"}`, `{"type":"user","type":"tool_call","args":"\ud800"}`,
		"{\"type\":\"tool_result\",\"result\":\"\xff\"}", "{\"type\":\"new\xff\",\"a\":\"\xff\"}", `{"TYPE":"user","Text":"\u0000"}`,
	} {
		add([]byte(odd))
	}
}

// FuzzDecode: what is decoded can be encoded, and that is stable: encoding what
// was read back gives the same bytes.
func FuzzDecode(f *testing.F) {
	seeds(f, func(data []byte) { f.Add(data) })
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := session.Decode(data)
		if err != nil {
			return
		}
		once, err := session.Encode(e)
		if err != nil {
			if len(data) > 9_000 {
				return // nested too deeply
			}
			t.Fatalf("%q is decoded and not encoded: %v", data, err)
		}
		if !utf8.Valid(once) || bytes.ContainsAny(once, "\n\x00") {
			t.Fatalf("%q is encoded as %q", data, once)
		}
		again, err := session.Decode(once)
		if err != nil {
			t.Fatalf("%q is not decoded: %v", once, err)
		}
		twice, err := session.Encode(again)
		if err != nil || !bytes.Equal(once, twice) || again.Type() != e.Type() {
			t.Fatalf("encoded as %q, then as %q: %v", once, twice, err)
		}
	})
}

func FuzzDecodeAll(f *testing.F) {
	seeds(f, func(data []byte) {
		f.Add(data)
		f.Add(append(append([]byte("["), data...), ']'))
		f.Add(append(append(append([]byte("[ "), data...), ',', '\n'), append(data, ']')...))
	})
	f.Fuzz(func(t *testing.T, data []byte) {
		events, err := session.DecodeAll(data)
		if err != nil {
			return
		}
		once, err := session.EncodeAll(events)
		if err != nil {
			if len(data) > 9_000 {
				return // nested too deeply
			}
			t.Fatalf("%q is decoded and not encoded: %v", data, err)
		}
		again, err := session.DecodeAll(once)
		if err != nil || len(again) != len(events) {
			t.Fatalf("%d events of %q are %d after: %v", len(events), once, len(again), err)
		}
		var head session.Head
		head.Fold(events) // which takes any event
		if head.EventCount != int64(len(events)) {
			t.Fatalf("%d events fold to %d", len(events), head.EventCount)
		}
	})
}

// FuzzEqualJSON: it is an equality, and sees through notation.
func FuzzEqualJSON(f *testing.F) {
	for _, s := range []string{`1e2`, `100`, `{"a":1,"b":[null]}`, ` {"b":[null],"a":1}`, `"\u0061"`, `"a"`, `1e-400`, `-0`, `x`, ``, `1 1`} {
		f.Add([]byte(s), []byte(`100`))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if !session.EqualJSON(a, a) || !session.EqualJSON(b, b) {
			t.Fatal("a value is not equal to itself")
		}
		if session.EqualJSON(a, b) != session.EqualJSON(b, a) {
			t.Fatalf("%q and %q: the order matters", a, b)
		}
	})
}
