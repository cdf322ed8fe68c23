package session_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpool/turnpool/session"
	"github.com/turnpool/turnpool/session/sessiontest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	t.Parallel()
	sessiontest.Run(t, func(t *testing.T) session.Store {
		s := session.NewMemory()
		t.Cleanup(func() { s.Close() })
		return s
	})
}
