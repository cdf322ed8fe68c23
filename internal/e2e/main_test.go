package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/turnpool/turnpool/session/postgres/postgrestest"
)

// gateDir makes the test program a worker process, see gatedWorker.
const gateDir = "TURNPOOL_TEST_GATE_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(gateDir); dir != "" {
		os.Exit(gatedWorker(dir))
	}
	code := m.Run()
	if shared.postgres != nil {
		shared.postgres.Stop()
	}
	os.RemoveAll(shared.bin)
	os.Exit(code)
}

// shared is what the tests of processes need, made once and only if one runs.
var shared struct {
	once     sync.Once
	err      error
	bin      string
	postgres *postgrestest.Server
}

// programs builds the commands, and a NATS server, and starts PostgreSQL.
func programs(t *testing.T) (bin string, postgres *postgrestest.Server) {
	t.Helper()
	shared.once.Do(func() {
		if shared.bin, shared.err = os.MkdirTemp("", "turnpool-e2e-"); shared.err != nil {
			return
		}
		for _, what := range []string{"github.com/turnpool/turnpool/cmd/ingress", "github.com/turnpool/turnpool/cmd/worker", "github.com/nats-io/nats-server/v2"} {
			out := shared.bin + string(filepath.Separator)
			if what == "github.com/nats-io/nats-server/v2" {
				out += "nats-server"
			}
			if text, err := exec.Command("go", "build", "-o", out, what).CombinedOutput(); err != nil {
				shared.err = fmt.Errorf("go build %s: %w: %s", what, err, text)
				return
			}
		}
		shared.postgres, shared.err = postgrestest.Start()
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.bin, shared.postgres
}
