package e2e

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// A cutter is a TCP proxy in front of an api-service that cuts connections in the middle of answers.
type cutter struct {
	target string
	ln     net.Listener
	conns  sync.WaitGroup

	mu   sync.Mutex // guards the following fields
	draw *rand.Rand
	left int // connections still to be cut
	open map[net.Conn]bool
}

// maxUncut bounds how many parts of an answer pass through a connection that is to be cut. A part is what the service writes at
// once: an event, or the header. Counted in bytes, a reader that is late might never get its one large event through.
const maxUncut = 9

// cutting starts a proxy that cuts the first n connections, each in a random part of the answer, with FIN or RST.
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

// uncut is how many connections are still to be cut.
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

// keep notes a connection, to be closed with the proxy, and returns what closes it.
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

// A slash is how a connection is cut.
type slash struct {
	after int     // parts that pass
	share float64 // of the next one
	reset bool
}

// next returns the slash for a connection; ok is false for one that is not cut.
func (c *cutter) next() (s slash, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 {
		return slash{}, false
	}
	c.left--
	return slash{c.draw.IntN(maxUncut), c.draw.Float64(), c.draw.IntN(2) == 0}, true
}

// pass passes what both sides say. A connection without an answer, such as a client's that keeps some in store, is not cut.
func (c *cutter) pass(client *net.TCPConn) {
	defer c.keep(client)()
	service, err := net.Dial("tcp", c.target)
	if err != nil {
		return // the client sees it
	}
	defer c.keep(service)()
	c.conns.Go(func() {
		_, _ = io.Copy(service, client)
		_ = service.Close() // which ends the other direction, too
	})
	buf := make([]byte, 32<<10)
	var s slash
	var doomed bool
	for parts := 0; ; parts++ {
		n, err := service.Read(buf)
		if n > 0 && parts == 0 {
			s, doomed = c.next()
		}
		answer := hurried(buf[:n])
		if doomed && parts == s.after {
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

// hurried lets readers come back sooner, so that tests take less time. It keeps the length, which stands before it.
func hurried(answer []byte) []byte {
	return bytes.Replace(answer, []byte("retry: 1000\n"), []byte("retry: 0100\n"), 1)
}
