package embedded

import (
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	if cfg.StoreDir == "" {
		cfg.StoreDir = t.TempDir()
	}
	s, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

func ping(t *testing.T, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return nc
}

func TestStart(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Port: -1})
	if !strings.HasPrefix(s.URL(), "nats://127.0.0.1:") {
		t.Errorf("listens on %s", s.URL())
	}
	if got := ping(t, s.URL()).MaxPayload(); got != DefaultMaxPayload {
		t.Errorf("max payload %d", got)
	}
	ping(t, "", s.ConnectOption())
	s.Shutdown()
	s.Shutdown()
	if _, err := nats.Connect(s.URL()); err == nil {
		t.Error("connected to a server that was shut down")
	}
}

func TestInProcessOnly(t *testing.T) {
	t.Parallel()
	s := start(t, Config{DontListen: true, MaxPayload: 1000})
	if s.URL() != "" {
		t.Errorf("listens on %s", s.URL())
	}
	if got := ping(t, "", s.ConnectOption()).MaxPayload(); got != 1000 {
		t.Errorf("max payload %d", got)
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	if _, err := Start(Config{Port: -1}); err == nil {
		t.Error("started without a directory")
	}
	s := start(t, Config{Port: -1})
	port, err := strconv.Atoi(s.URL()[strings.LastIndex(s.URL(), ":")+1:])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Start(Config{StoreDir: t.TempDir(), Port: port}); err == nil || !strings.Contains(err.Error(), strconv.Itoa(port)) {
		t.Errorf("started on a taken port: %v", err)
	}
	if _, err := Start(Config{StoreDir: "/dev/null/store", Port: -1}); err == nil || !strings.Contains(err.Error(), "/dev/null") {
		t.Errorf("started in an impossible directory: %v", err)
	}
}
