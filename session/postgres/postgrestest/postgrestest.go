// Package postgrestest gives tests a PostgreSQL server: the one that
// TEST_DATABASE_URL names, or a throw-away one of their own.
package postgrestest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// startTimeout bounds the start of a server on a loaded machine.
const startTimeout = 3 * time.Minute

// Server is a server for one test process.
type Server struct {
	url     *url.URL
	dir     string // "": not ours
	process *exec.Cmd
	bin     string
	port    int
	owner   *syscall.Credential
}

// Start returns the server of TEST_DATABASE_URL, or starts one. Without the
// variable and without PostgreSQL's programs it installs them if it may (as root,
// with apt-get), and fails if it may not.
func Start() (*Server, error) {
	s := &Server{}
	given := os.Getenv("TEST_DATABASE_URL")
	var err error
	if given == "" {
		given, err = s.start()
	}
	if err == nil {
		s.url, err = url.Parse(given)
	}
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("a PostgreSQL server for the tests: %w", err)
	}
	return s, nil
}

// Stop ends the server, if it was started here, and removes its files.
func (s *Server) Stop() {
	s.Kill()
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
}

// Database makes an empty schema for one test, drops it when the test ends, and
// returns the address of a database that has nothing else in sight.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	address, drop, err := s.Schema()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := drop(); err != nil {
			t.Error(err)
		}
	})
	return address
}

// Schema is Database without a test: the caller drops what it made.
func (s *Server) Schema() (address string, drop func() error, err error) {
	name := "turnpool_test_" + strings.ToLower(rand.Text())
	if err := s.execute(`CREATE SCHEMA ` + name); err != nil {
		return "", nil, err
	}
	u := *s.url
	query := u.Query()
	query.Set("search_path", name)
	u.RawQuery = query.Encode()
	return u.String(), func() error { return s.execute(`DROP SCHEMA IF EXISTS ` + name + ` CASCADE`) }, nil
}

func (s *Server) execute(sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url.String())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// start makes a cluster and runs it. As root it runs as another user, because
// PostgreSQL refuses root.
func (s *Server) start() (string, error) {
	var err error
	if s.bin, err = programs(); err != nil {
		return "", err
	}
	if s.dir, err = os.MkdirTemp("", "turnpool-postgres-"); err != nil {
		return "", err
	}
	if s.owner, err = owner(); err != nil {
		return "", err
	}
	if s.owner != nil {
		if err := os.Chown(s.dir, int(s.owner.Uid), int(s.owner.Gid)); err != nil {
			return "", err
		}
	}
	init := s.command("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
	if out, err := init.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w: %s", err, out)
	}
	if s.port, err = freePort(); err != nil {
		return "", err
	}
	if err := s.Restart(); err != nil {
		return "", err
	}
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", s.port), nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Own says whether the server was started here, and may be killed.
func (s *Server) Own() bool { return s.dir != "" }

// Kill ends the server at once, as a crash would. What was committed stays.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	s.process.Process.Signal(syscall.SIGQUIT)
	s.process.Wait()
	s.process = nil
}

// Restart runs the server after Kill, in the same place.
func (s *Server) Restart() error {
	s.process = s.command("postgres", "-D", s.data(), "-p", strconv.Itoa(s.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="+s.dir, "-c", "max_connections=200")
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	s.process.Stdout, s.process.Stderr = log, log
	// It must not outlive a test process that is killed.
	s.process.SysProcAttr.Pdeathsig = syscall.SIGQUIT
	if err := s.process.Start(); err != nil {
		s.process = nil
		return err
	}
	return s.awaitReady()
}

// awaitReady tries to connect until the server answers.
func (s *Server) awaitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	address := fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", s.port)
	for {
		conn, err := pgx.Connect(ctx, address)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ctx.Done():
			log, _ := os.Open(filepath.Join(s.dir, "log"))
			text, _ := io.ReadAll(log)
			return fmt.Errorf("not ready: %w: %s", err, text)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner}
	return cmd
}

// owner is who runs the server: nil for whoever runs the tests, unless that is
// root.
func owner() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.ParseUint(u.Uid, 10, 32)
			gid, _ := strconv.ParseUint(u.Gid, 10, 32)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("root must not run PostgreSQL, and there is no user postgres or nobody")
}

// programs returns the directory of PostgreSQL's programs.
func programs() (string, error) {
	if dir := findPrograms(); dir != "" {
		return dir, nil
	}
	if os.Getuid() == 0 {
		for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", "postgresql"}} {
			cmd := exec.Command("apt-get", args...)
			cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
			if out, err := cmd.CombinedOutput(); err != nil {
				return "", fmt.Errorf("PostgreSQL is not installed, and apt-get %s: %w: %s", args[0], err, out)
			}
		}
	}
	if dir := findPrograms(); dir != "" {
		return dir, nil
	}
	return "", errors.New("install PostgreSQL (Debian: apt-get install postgresql), or set TEST_DATABASE_URL to a database whose user may create schemas")
}

func findPrograms() string {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path)
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return ""
	}
	return filepath.Dir(found[len(found)-1])
}

func freePort() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}
