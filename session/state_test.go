package session_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/turnpool/turnpool/session"
)

func TestEqualJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`1e2`, `100`, true},
		{`1E+2`, `100.0`, true},
		{`0.10`, `1e-1`, true},
		{`12.50`, `125e-1`, true},
		{`-0`, `0`, true},
		{`-0.0e9`, `0`, true},
		{`-1`, `1`, false},
		{`9007199254740993`, `9007199254740992`, false}, // 2^53+1 and 2^53, one float64
		{`9007199254740993`, `9007199254740993.0`, true},
		{`0.1`, `0.1000000000000000055511151231257827`, false},
		{`1e400`, `10e399`, true}, // no float64 holds it
		{`1e400`, `1e401`, false},
		{`1e-400`, `0`, false},
		{`1e99999999999`, `1e99999999999`, true},
		{`1e99999999999`, `10e99999999998`, false}, // compared as text
		{fmt.Sprintf("%0200d1", 7), fmt.Sprintf("%0200d1", 7), true},
		{"1" + fmt.Sprintf("%0300d", 1), "1" + fmt.Sprintf("%0300d", 2), false},
		{`{"a":1,"b":[1,{"c":null}]}`, ` { "b" : [ 1.0 , { "c" : null } ], "a" : 1 } `, true},
		{`{"a":1}`, `{"a":1,"b":null}`, false},
		{`{"a":null}`, `{"b":null}`, false},
		{`[1,2]`, `[2,1]`, false},
		{`[1]`, `[1,1]`, false},
		{`"\u00e9"`, `"é"`, true},
		{`"a"`, `"A"`, false},
		{`"1"`, `1`, false},
		{`null`, `false`, false},
		{`null`, `0`, false},
		{`true`, `true `, true},
		{`{}`, `[]`, false},
		{``, ``, true},
		{``, `null`, false},
		{`nonsense`, `nonsense`, true},
		{`nonsense`, ` nonsense`, false},
		{`1 2`, `1`, false},
		{`1`, `1]`, false},
	} {
		if got := session.EqualJSON(raw(c.a), raw(c.b)); got != c.want {
			t.Errorf("EqualJSON(%s, %s) = %t", c.a, c.b, got)
		}
		if got := session.EqualJSON(raw(c.b), raw(c.a)); got != c.want {
			t.Errorf("EqualJSON(%s, %s) = %t", c.b, c.a, got)
		}
		wrap := func(s string) json.RawMessage { return raw(`{"x":[` + s + `]}`) }
		if json.Valid(raw(c.a)) && json.Valid(raw(c.b)) && session.EqualJSON(wrap(c.a), wrap(c.b)) != c.want {
			t.Errorf("EqualJSON(%s, %s) = %t when nested", c.a, c.b, !c.want)
		}
	}
}

// Numbers are equal when they are the same rational number.
func TestEqualNumbers(t *testing.T) {
	t.Parallel()
	number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,3})?([eE][+-]?[0-9])?`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		x, okX := new(big.Rat).SetString(a)
		y, okY := new(big.Rat).SetString(b)
		if !okX || !okY {
			t.Fatalf("%s or %s is no number", a, b)
		}
		if got, want := session.EqualJSON(raw(a), raw(b)), x.Cmp(y) == 0; got != want {
			t.Fatalf("EqualJSON(%s, %s) = %t", a, b, got)
		}
	})
}

func TestDiff(t *testing.T) {
	t.Parallel()
	have := session.State{"a": raw(`1`), "b": raw(`{"x":1,"y":2}`), "c": raw(`null`), "d": raw(`"gone"`)}
	writes := session.State{
		"a": raw(`1.0`),                // the same
		"b": raw(`{"y": 2, "x": 1e0}`), // the same
		"c": nil,                       // deleted, although it is null
		"d": raw(``),                   // deleted
		"e": raw(`null`),               // null is a value
		"f": nil,                       // was not there
		"g": raw(`[]`),
		"A": raw(`true`),
	}
	want := []session.Change{
		{Key: "A", NewValue: raw(`true`)},
		{Key: "c", OldValue: raw(`null`)},
		{Key: "d", OldValue: raw(`"gone"`)},
		{Key: "e", NewValue: raw(`null`)},
		{Key: "g", NewValue: raw(`[]`)},
	}
	if diff := cmp.Diff(want, have.Diff(writes)); diff != "" {
		t.Errorf("changes differ (-want +got):\n%s", diff)
	}
	after := have.Clone()
	after.Apply(want)
	wantAfter := session.State{"a": raw(`1`), "b": raw(`{"x":1,"y":2}`), "e": raw(`null`), "g": raw(`[]`), "A": raw(`true`)}
	if diff := cmp.Diff(wantAfter, after); diff != "" {
		t.Errorf("state differs (-want +got):\n%s", diff)
	}
	if len(have) != 4 {
		t.Errorf("the clone was no clone: %v", have)
	}
	if again := after.Diff(writes); len(again) != 0 {
		t.Errorf("writing the same again changes %v", again)
	}
}

// A change means the same before it was encoded and after.
func TestApplyAsEncoded(t *testing.T) {
	t.Parallel()
	changes := []session.Change{
		{Key: "emptied", NewValue: raw(`1`)}, {Key: "emptied", NewValue: raw(``)},
		{Key: "bad\xff", NewValue: raw("\"\xff\xfe\"")},
	}
	e := &session.StateChange{Scope: session.ScopeSession, Changes: changes}
	data, err := session.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	back, err := session.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	var before, after session.Head
	before.Fold([]session.Event{e})
	after.Fold([]session.Event{back})
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("heads differ (-before +after):\n%s", diff)
	}
	if want := (session.State{"bad\ufffd": raw("\"\ufffd\ufffd\"")}); !cmp.Equal(before.State, want) {
		t.Errorf("state %q", before.State)
	}
}

func TestCloneOfNil(t *testing.T) {
	t.Parallel()
	s := session.State(nil).Clone()
	s["a"] = raw(`1`) // it can be written to
	if got := session.State(nil).Diff(s); len(got) != 1 {
		t.Error(got)
	}
}
