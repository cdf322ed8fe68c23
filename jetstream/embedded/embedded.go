// Package embedded runs a NATS server with JetStream inside the process, for
// development and tests.
package embedded

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// DefaultMaxPayload is the greatest message of a server whose Config says
// nothing else, in bytes.
const DefaultMaxPayload = 8 << 20

// Config says where the server keeps its data and listens.
type Config struct {
	// StoreDir is the directory of the streams. It must be given; two servers
	// must not share one.
	StoreDir string
	// Host and Port to listen on. Default 127.0.0.1, and [nats.DefaultPort]; -1
	// is a free port.
	Host string
	Port int
	// DontListen opens no port: connect with [Server.ConnectOption].
	DontListen bool
	// MaxPayload is the greatest message, in bytes. Default
	// [DefaultMaxPayload].
	MaxPayload int32
	// SyncAlways syncs each message to disk before it is acknowledged.
	SyncAlways bool
	// StartTimeout is how long to wait until the server is ready. Default 30 s.
	StartTimeout time.Duration
}

// Server is a running server.
type Server struct {
	nats *server.Server
}

// Start starts a server and waits until it accepts connections. It writes no
// logs and handles no signals.
func Start(cfg Config) (*Server, error) {
	if cfg.StoreDir == "" {
		return nil, errors.New("embedded nats-server: no store directory")
	}
	if cfg.Host == "" {
		cfg.Host = "127.0.0.1"
	}
	if cfg.MaxPayload == 0 {
		cfg.MaxPayload = DefaultMaxPayload
	}
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = 30 * time.Second
	}
	s, err := server.NewServer(&server.Options{
		Host:       cfg.Host,
		Port:       cfg.Port,
		DontListen: cfg.DontListen,
		JetStream:  true,
		StoreDir:   cfg.StoreDir,
		SyncAlways: cfg.SyncAlways,
		MaxPayload: cfg.MaxPayload,
		NoLog:      true,
		NoSigs:     true,
	})
	if err != nil {
		return nil, fmt.Errorf("embedded nats-server: %w", err)
	}
	fatal := new(fatalLog)
	s.SetLoggerV2(fatal, false, false, false)
	s.Start()
	ready := fatal.get() == nil && s.ReadyForConnections(cfg.StartTimeout)
	if ready && s.JetStreamEnabled() {
		return &Server{nats: s}, nil
	}
	s.Shutdown()
	s.WaitForShutdown()
	if err := fatal.get(); err != nil {
		return nil, fmt.Errorf("embedded nats-server in %s: %w", cfg.StoreDir, err)
	}
	return nil, fmt.Errorf("embedded nats-server in %s: not ready after %v", cfg.StoreDir, cfg.StartTimeout)
}

// fatalLog keeps what the server would say before it ended the process, and
// drops the rest.
type fatalLog struct {
	mu  sync.Mutex
	err error
}

func (l *fatalLog) get() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Fatalf implements the server's logger.
func (l *fatalLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = fmt.Errorf(format, v...)
	}
}

func (*fatalLog) Noticef(string, ...any) {}
func (*fatalLog) Warnf(string, ...any)   {}
func (*fatalLog) Errorf(string, ...any)  {}
func (*fatalLog) Debugf(string, ...any)  {}
func (*fatalLog) Tracef(string, ...any)  {}

// URL is the server's address, empty if it does not listen.
func (s *Server) URL() string {
	if s.nats.Addr() == nil {
		return ""
	}
	return s.nats.ClientURL()
}

// ConnectOption makes a client connect inside the process, whatever URL it is
// given.
func (s *Server) ConnectOption() nats.Option { return nats.InProcessServer(s) }

// InProcessConn opens a connection to the server inside the process.
func (s *Server) InProcessConn() (net.Conn, error) { return s.nats.InProcessConn() }

// Shutdown stops the server and waits until it has stopped. It may be called
// more than once.
func (s *Server) Shutdown() {
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
}
