package turn

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// DefaultTenant is everybody's tenant until authentication is configured.
const DefaultTenant = "default"

// MaxSessionID is the greatest length of a session id, in characters.
const MaxSessionID = 200

const sessionPrefix = "session_"

// NewSessionID mints the id of a new session.
func NewSessionID() string { return sessionPrefix + uuid.NewString() }

// NormalizeSessionID strips one leading "session_" and puts it back, so that
// thread-42 and session_thread-42 name one session.
func NormalizeSessionID(id string) string {
	return sessionPrefix + strings.TrimPrefix(id, sessionPrefix)
}

// ValidSessionID reports whether id, as a caller gave it, can name a session: 1
// to [MaxSessionID] characters of UTF-8, none of them a control character.
func ValidSessionID(id string) bool {
	return id != "" && utf8.ValidString(id) && utf8.RuneCountInString(id) <= MaxSessionID &&
		strings.IndexFunc(id, unicode.IsControl) < 0
}

// NewInvocationID mints the id of a turn.
func NewInvocationID() string { return "inv_" + randomHex(16) }

// RedriveID derives the id of the turn that makes a given-up one again, so that
// asking twice makes one.
func RedriveID(invocationID string) string {
	sum := sha256.Sum256([]byte("redrive " + invocationID))
	return "inv_" + hex.EncodeToString(sum[:16])
}

// ValidInvocationID reports whether id has the form of a turn's id: "inv_" and
// 32 lower-case hexadecimal digits.
func ValidInvocationID(id string) bool {
	digits, ok := strings.CutPrefix(id, "inv_")
	return ok && len(digits) == 32 && strings.IndexFunc(digits, notHex) < 0
}

func notHex(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') }

// NewEventID mints the id of a ledger event.
func NewEventID() string { return "event_" + uuid.NewString() }

// UserEventID derives the id of the turn's user event from the turn's own, so
// that every attempt writes the same one.
func UserEventID(invocationID string) string {
	return "event_" + uuid.NewSHA1(uuid.NameSpaceOID, []byte("user "+invocationID)).String()
}

// NewCallID mints the id of a tool call, for models that give none.
func NewCallID() string { return "call_" + randomHex(12) }

// ValidName reports whether name can name an agent, a pool or a tenant: 1 to 64
// letters, digits, "_" and "-" of ASCII.
func ValidName(name string) bool {
	return name != "" && len(name) <= 64 && strings.IndexFunc(name, notName) < 0
}

func notName(r rune) bool {
	return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '_' && r != '-'
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
