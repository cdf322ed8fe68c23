package turn_test

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/turnpool/turnpool/turn"
)

func TestNewIDs(t *testing.T) {
	t.Parallel()
	const uuid = `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`
	for pattern, mint := range map[string]func() string{
		`^session_` + uuid + `$`: turn.NewSessionID,
		`^inv_[0-9a-f]{32}$`:     turn.NewInvocationID,
		`^event_` + uuid + `$`:   turn.NewEventID,
		`^call_[0-9a-f]{24}$`:    turn.NewCallID,
	} {
		a, b := mint(), mint()
		if !regexp.MustCompile(pattern).MatchString(a) || a == b {
			t.Errorf("%s and %s are not two ids of the form %s", a, b, pattern)
		}
	}
	if id := turn.NewSessionID(); turn.NormalizeSessionID(id) != id || !turn.ValidSessionID(id) {
		t.Errorf("%s is not normal or not valid", id)
	}
	if id := turn.NewInvocationID(); !turn.ValidInvocationID(id) {
		t.Errorf("%s is not valid", id)
	}
}

// Every attempt of a turn writes the same user event, today and after the next
// release.
func TestUserEventID(t *testing.T) {
	t.Parallel()
	const want = "event_cc799857-90d2-57ca-9f65-efd3a9da4729"
	if got := turn.UserEventID(invocation); got != want || got != turn.UserEventID(invocation) {
		t.Errorf("got %s, want %s", got, want)
	}
	if turn.UserEventID(turn.NewInvocationID()) == want {
		t.Error("two turns have one user event")
	}
}

func TestNormalizeSessionID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"thread-42":                 "session_thread-42",
		"session_thread-42":         "session_thread-42",
		"session_session_thread-42": "session_session_thread-42", // one prefix is stripped, one put back
		"Session_a":                 "session_Session_a",
		"session":                   "session_session",
		"session_":                  "session_",
		"":                          "session_",
	} {
		if got := turn.NormalizeSessionID(id); got != want {
			t.Errorf("%q becomes %q, want %q", id, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.String().Draw(t, "id")
		once := turn.NormalizeSessionID(id)
		if turn.NormalizeSessionID(once) != once || !strings.HasPrefix(once, "session_") || !strings.HasSuffix(once, id) {
			t.Fatalf("%q becomes %q", id, once)
		}
	})
}

func TestValidSessionID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"":                                     false,
		"a":                                    true,
		"thread 42/é?#%":                       true,
		strings.Repeat("é", turn.MaxSessionID): true,
		strings.Repeat("é", turn.MaxSessionID+1): false,
		"a\x00b":   false,
		"a\nb":     false,
		"a\u0085b": false, // a control character beyond ASCII
		"a\xffb":   false,
		"a\ufffdb": true, // which says so itself
		strings.Repeat("\xff", turn.MaxSessionID): false,
	} {
		if got := turn.ValidSessionID(id); got != want {
			t.Errorf("%q is valid: %t", id, got)
		}
	}
}

func TestValidInvocationID(t *testing.T) {
	t.Parallel()
	digits := "0123456789abcdef0123456789abcdef"
	for id, want := range map[string]bool{
		"inv_" + digits:                  true,
		"inv_" + strings.ToUpper(digits): false,
		"inv_" + digits[1:]:              false,
		"inv_" + digits + "0":            false,
		"inv_" + digits[1:] + ".":        false,
		"inv_" + digits[2:] + "é":        false,
		"inv-" + digits:                  false,
		digits:                           false,
		"inv_":                           false,
		"":                               false,
	} {
		if got := turn.ValidInvocationID(id); got != want {
			t.Errorf("%q is valid: %t", id, got)
		}
	}
}

func TestValidName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a": true, "Z-0_9": true, strings.Repeat("a", 64): true,
		"": false, strings.Repeat("a", 65): false, "a.b": false, "a b": false, "a*": false, "a>": false, "é": false, "a\n": false,
		"\xff": false, "a/b": false,
	} {
		if got := turn.ValidName(name); got != want {
			t.Errorf("%q is valid: %t", name, got)
		}
	}
}
