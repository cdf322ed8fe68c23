// Package natstest gives tests a NATS server of their own, which can be stopped
// and started again.
package natstest

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpool/turnpool/jetstream/embedded"
)

// Server is the server of one test.
type Server struct {
	t   testing.TB
	cfg embedded.Config

	mu      sync.Mutex
	running *embedded.Server
	url     string
}

// Run starts a server on a free port, with its streams in a directory of the
// test. It stops when the test ends.
func Run(t testing.TB) *Server {
	t.Helper()
	return RunConfig(t, embedded.Config{Port: -1})
}

// RunConfig is [Run] with settings. The store directory may be left out.
func RunConfig(t testing.TB, cfg embedded.Config) *Server {
	t.Helper()
	if cfg.StoreDir == "" {
		cfg.StoreDir = t.TempDir()
	}
	s := &Server{t: t, cfg: cfg}
	s.Start()
	t.Cleanup(s.Stop)
	return s
}

// URL is the server's address, the same after a restart.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.url
}

// ConnectOption makes a client connect inside the process. A client that
// reconnects finds the server that runs then.
func (s *Server) ConnectOption() nats.Option { return nats.InProcessServer(s) }

// InProcessConn opens a connection to the running server.
func (s *Server) InProcessConn() (net.Conn, error) {
	s.mu.Lock()
	running := s.running
	s.mu.Unlock()
	if running == nil {
		return nil, errors.New("the test's nats-server is stopped")
	}
	return running.InProcessConn()
}

// Stop stops the server and waits. Stopping a stopped one does nothing.
func (s *Server) Stop() {
	s.mu.Lock()
	running := s.running
	s.running = nil
	s.mu.Unlock()
	if running != nil {
		running.Shutdown()
	}
}

// Start starts the server again, on the same port and directory. Starting a
// running one does nothing.
func (s *Server) Start() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		return
	}
	running, err := startWithin(s.cfg, time.Minute)
	if err != nil {
		s.t.Fatal(err)
	}
	s.running, s.url = running, running.URL()
	if u, err := url.Parse(s.url); err == nil && u.Port() != "" {
		s.cfg.Port, _ = strconv.Atoi(u.Port())
	}
}

// startWithin tries again: after a restart the port may still be taken by a
// connection that another test has just been given it for.
func startWithin(cfg embedded.Config, limit time.Duration) (s *embedded.Server, err error) {
	cfg.StartTimeout = 10 * time.Second
	for deadline := time.Now().Add(limit); ; {
		if s, err = embedded.Start(cfg); err == nil || time.Now().After(deadline) {
			return s, err
		}
	}
}
