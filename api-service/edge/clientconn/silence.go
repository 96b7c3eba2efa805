package clientconn

import (
	"fmt"
	"net"
	"time"

	"github.com/cloudwego/hertz/pkg/network/netpoll"
)

// A silence measures how long a client's machine has acknowledged nothing. Writes to a vanished machine succeed until
// the kernel's buffer is full, and fail only after a quarter of an hour. TCP_USER_TIMEOUT would end them, but cannot
// tell a client that does not read from a client that has vanished. The mutex of the Conn guards the fields.
type silence struct {
	conn    *Conn
	fd      int
	timeout time.Duration
	told    func(message string)
	timer   *time.Timer
	since   time.Time // when the silence began; zero while everything is acknowledged, or something was since the last look
}

// checks is how many looks at the socket fall into the timeout.
const checks = 8

// ProbeEvery is the time between probes of an idle connection, such as the connection of a request that waits for its
// first token. It is also the timeout of a probe.
const ProbeEvery = 10 * time.Second

// Tune prepares a new connection: unsent is how many bytes may wait in the kernel for a slow client before writes to it block;
// 0 is the system's limit.
func Tune(conn net.Conn, unsent int) error {
	fd, ok := socket(conn)
	if !ok {
		return nil
	}
	return tune(fd, unsent)
}

// socket returns the descriptor of a connection of netpoll, which is valid while a handler of the connection runs.
func socket(conn net.Conn) (fd int, ok bool) {
	outer, ok := conn.(*netpoll.Conn)
	if !ok {
		return 0, false
	}
	inner, ok := outer.Conn.(interface{ Fd() int })
	if !ok {
		return 0, false
	}
	return inner.Fd(), true
}

func watchSilence(c *Conn, fd int, timeout time.Duration, told func(message string)) *silence {
	s := &silence{conn: c, fd: fd, timeout: timeout, told: told}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.timer = time.AfterFunc(timeout/checks, s.check)
	return s
}

// stop ends the measurement. A nil silence takes it. The mutex of the Conn is held.
func (s *silence) stop() {
	if s != nil {
		s.timer.Stop()
	}
}

func (s *silence) check() {
	if s.measure() {
		s.told(fmt.Sprintf("the client's machine has not answered for %v", s.timeout))
		s.conn.Kill()
	}
}

// measure looks at the socket, and reports whether the client has been silent for too long. Otherwise it comes back.
func (s *silence) measure() (vanished bool) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.conn.released {
		return false
	}
	all, ago, err := acknowledged(s.fd)
	now := time.Now()
	switch {
	case err != nil:
		return false // the system does not tell
	case all || s.since.Before(now.Add(-ago)):
		s.since = time.Time{}
		if !all {
			s.since = now
		}
	case now.Sub(s.since) >= s.timeout:
		return true
	}
	s.timer.Reset(s.timeout / checks)
	return false
}
