// Package connection owns the connections of clients, each from when it is accepted until it is
// closed.
//
// A Conn reads what arrives, finds the requests in it, and has Hertz's router answer each on a
// goroutine of its own. A request and its answer are an Exchange. A handler that takes the Exchange
// may return before the answer has ended: then the connection has no goroutine.
//
// No write waits: the writer keeps the bytes that the kernel does not take, and is called when there is
// room again. All reads are bounded: a Conn stops reading a client that sends too much until the answer
// has ended, and still notices when the client leaves.
//
// On Linux, a few pollers watch all connections. On other systems, and in memory, each connection
// has a goroutine that waits for its input.
package connection

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudwego/hertz/pkg/route"

	"github.com/whence-dev/whence/internal/coarse"
	"github.com/whence-dev/whence/internal/descriptors"
)

const (
	// ProbeEvery is the time between probes of an idle connection, such as the connection of a request
	// that waits for its first token. It is also the timeout of a probe.
	ProbeEvery = 10 * time.Second
	// StopWait bounds the wait for clients to close their connections after all requests have been
	// answered.
	StopWait = 600 * time.Millisecond
	// exhaustedFor is the pause after there was no descriptor for a new connection.
	exhaustedFor = 10 * time.Millisecond
)

var (
	// errClosed is the error of using a closed connection.
	errClosed = errors.New("connection: the connection is closed")
	errNotTCP = errors.New("connection: the listener is not one of TCP")
)

// A Server serves the connections of clients. Its fields must not change while it is in use.
type Server struct {
	Engine *route.Engine // answers the requests
	Name   string        // in the header Server

	Arrival time.Duration // for a request to arrive, header and body together; also how long a new connection may send nothing
	Idle    time.Duration // how long a connection may be without a request after an answer
	Write   time.Duration // for a write that waits for the client; 0 means no bound
	Unsent  int           // bytes that may wait in the kernel for a slow client before writes wait; 0 means the system's limit
	Clock   *coarse.Clock // of the timers
	// Enter counts a connection of a client, or returns false if it must be closed. leave is called when it is closed. nil
	// admits every connection.
	Enter func(client net.Addr) (leave func(), ok bool)
	Late  *descriptors.Brief // the connections that have one of the last file descriptors; nil treats them like others
	// TLS secures the connections; nil means that they are plain. With HTTP/2 among its protocols, clients
	// may choose that.
	TLS *tls.Config
	Hop string       // in lines of the log
	Log *slog.Logger // of floods; nil means none

	draining atomic.Bool // no further request is answered

	makeHTTP2 sync.Once // sets http2
	http2     *http2Server

	mu   sync.Mutex // guards the following fields
	all  map[*Conn]struct{}
	none chan struct{} // closed when all is empty; nil unless End waits for that
}

// Run serves on ln, which it closes, until ctx is done. Then it calls drain, which returns how long
// connections may take to close.
func (s *Server) Run(ctx context.Context, ln net.Listener, drain func() (goodbye time.Duration)) error {
	defer ln.Close() //nolint:errcheck // it may be closed
	var t transport
	if err := t.open(ln, runtime.GOMAXPROCS(0)); err != nil {
		return fmt.Errorf("http server: %w", err)
	}
	defer t.close()
	failed := make(chan error, 1)
	go func() { failed <- t.accept(s) }()
	select {
	case err := <-failed:
		t.stop()
		s.End(0)
		return fmt.Errorf("http server: %w", err)
	case <-ctx.Done():
	}
	goodbye := drain()
	t.stop()
	<-failed       //nolint:errcheck // it says that it was stopped
	_ = ln.Close() // refuses connections from now on
	s.End(goodbye)
	return nil
}

// ServeStream serves a connection until it is closed.
func (s *Server) ServeStream(conn Stream) {
	sock := &streamSocket{Stream: conn, input: true}
	c := s.newConn(sock, conn.RemoteAddr(), conn.LocalAddr())
	sock.conn = c
	sock.changed.L = &c.mu
	if !s.enter(c, false) {
		_ = conn.Close() // nothing was sent
		return
	}
	sock.run()
}

// enter counts a new connection, or returns false if it must be closed. late means that it has one of
// the last file descriptors.
func (s *Server) enter(c *Conn, late bool) (ok bool) {
	if s.Enter != nil {
		if c.leave, ok = s.Enter(c.remote); !ok {
			return false
		}
	}
	c.timer.Reset(s.Arrival)
	if late && s.Late != nil {
		c.late = true
		c.yield = s.Late.Enter(c.close)
	}
	s.mu.Lock()
	if s.all == nil {
		s.all = map[*Conn]struct{}{}
	}
	s.all[c] = struct{}{}
	s.mu.Unlock()
	if s.draining.Load() {
		c.close()
	}
	return true
}

// forget forgets a connection that has been closed.
func (s *Server) forget(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
	if len(s.all) == 0 && s.none != nil {
		close(s.none)
		s.none = nil
	}
}

// End closes each connection once its answer has ended, and the rest after the goodbye. Run calls it.
func (s *Server) End(goodbye time.Duration) {
	s.draining.Store(true)
	none := make(chan struct{})
	s.mu.Lock()
	if s.none = none; len(s.all) == 0 {
		close(none)
		s.none = nil
	}
	s.mu.Unlock()
	s.each((*Conn).drain)
	if s.TLS != nil {
		_ = s.overHTTP2().base.Shutdown(context.Background()) // has no connections of its own: it says GOAWAY on ours
	}
	late := time.NewTimer(goodbye)
	defer late.Stop()
	select {
	case <-none:
	case <-late.C:
		s.each((*Conn).close)
	}
}

// each calls f with each connection.
func (s *Server) each(f func(*Conn)) {
	s.mu.Lock()
	all := make([]*Conn, 0, len(s.all))
	for c := range s.all {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		f(c)
	}
}

// pause waits until there may be a descriptor again.
func pause() { time.Sleep(exhaustedFor) }
