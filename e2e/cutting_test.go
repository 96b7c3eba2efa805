package e2e

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// A cutter is a TCP proxy in front of an api-service that cuts connections in the middle of
// answers.
type cutter struct {
	target string
	ln     net.Listener
	conns  sync.WaitGroup

	mu   sync.Mutex // guards the following fields
	draw *rand.Rand
	left int // connections still to be cut
	open map[net.Conn]bool
}

// maxUncut bounds the parts of an answer that pass before a connection is cut. A part is one write
// of the service: an event, or the header. With a bound in bytes, a late reader might never receive
// its one large event.
const maxUncut = 9

// cutting starts a proxy that cuts the first n connections, each in a random part of the answer,
// with FIN or RST.
func cutting(t *testing.T, target string, n int, seed uint64) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{target: target, ln: ln, draw: rand.New(rand.NewPCG(seed, 0)), left: n, open: map[net.Conn]bool{}}
	c.conns.Go(c.serve)
	t.Cleanup(func() {
		_ = ln.Close()
		c.mu.Lock()
		for conn := range c.open {
			_ = conn.Close()
		}
		c.mu.Unlock()
		c.conns.Wait()
	})
	return c
}

func (c *cutter) url() string { return "http://" + c.ln.Addr().String() }

// uncut returns the number of connections that are still to be cut.
func (c *cutter) uncut() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}

func (c *cutter) serve() {
	for {
		conn, err := c.ln.Accept()
		if err != nil {
			return
		}
		c.conns.Go(func() { c.pass(conn.(*net.TCPConn)) })
	}
}

// keep registers a connection to be closed with the proxy, and returns a function that closes it.
func (c *cutter) keep(conn net.Conn) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[conn] = true
	return func() {
		_ = conn.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, conn)
	}
}

// A cutPlan says how a connection is cut.
type cutPlan struct {
	after int     // number of parts that pass
	share float64 // fraction of the next part that passes
	reset bool
}

// next returns the plan for a connection; ok is false if the connection is not cut.
func (c *cutter) next() (s cutPlan, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 {
		return cutPlan{}, false
	}
	c.left--
	return cutPlan{c.draw.IntN(maxUncut), c.draw.Float64(), c.draw.IntN(2) == 0}, true
}

// pass forwards bytes in both directions. A connection without an answer, such as an idle
// keep-alive connection, is not cut.
func (c *cutter) pass(client *net.TCPConn) {
	defer c.keep(client)()
	service, err := net.Dial("tcp", c.target)
	if err != nil {
		return // the client notices
	}
	defer c.keep(service)()
	c.conns.Go(func() {
		_, _ = io.Copy(service, client)
		_ = service.Close() // also ends the other direction
	})
	buf := make([]byte, 32<<10)
	var s cutPlan
	var willCut bool
	for parts := 0; ; parts++ {
		n, err := service.Read(buf)
		if n > 0 && parts == 0 {
			s, willCut = c.next()
		}
		answer := shortenRetry(buf[:n])
		if willCut && parts == s.after {
			_, _ = client.Write(answer[:int(s.share*float64(n))])
			if s.reset {
				_ = client.SetLinger(0)
			}
			return
		}
		if _, werr := client.Write(answer); werr != nil || err != nil {
			return
		}
	}
}

// shortenRetry shortens the retry hint, so that readers reconnect sooner. It keeps the length,
// which was sent before.
func shortenRetry(answer []byte) []byte {
	return bytes.Replace(answer, []byte("retry: 1000\n"), []byte("retry: 0100\n"), 1)
}
