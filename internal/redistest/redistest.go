// Package redistest runs a redis-server for tests.
package redistest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/loopback"
	"github.com/whence-dev/whence/internal/polltest"
)

// A Server is a redis-server that keeps nothing on disk.
type Server struct {
	Addr string // host:port
	cmd  *exec.Cmd
}

// New starts a server, which ends with the test. It skips the test if redis-server is not installed,
// and fails it under CI.
func New(t testing.TB) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("redis-server is not installed")
	}
	addr, err := loopback.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Addr: addr}
	s.Start(t)
	t.Cleanup(func() { s.Kill(t) })
	return s
}

// Start starts the server again after Kill, and waits until it listens.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	host, port, _ := net.SplitHostPort(s.Addr)
	s.cmd = exec.Command("redis-server", "--bind", host, "--port", port, "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, "redis-server listens", s.listens)
}

// listens reports whether this server, and not a server of another test, listens on Addr.
func (s *Server) listens() bool {
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		return false
	}
	defer conn.Close() //nolint:errcheck // the answer is read, or no use
	if _, err := io.WriteString(conn, "INFO server\r\nQUIT\r\n"); err != nil {
		return false
	}
	answer, _ := io.ReadAll(io.LimitReader(conn, 1<<16)) // a server that ends early does not listen
	return strings.Contains(string(answer), fmt.Sprintf("process_id:%d\r\n", s.cmd.Process.Pid))
}

// Kill ends the server, which loses all data.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	_ = s.cmd.Wait()
}
