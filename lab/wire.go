package lab

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// wireHost is the address at which wires listen, on the same ports as their services: callers learn the
// port of links from the service, and use it at the address that they have.
const wireHost = "127.0.0.2"

// A Wire is a TCP proxy in front of one service, with faults.
type Wire struct {
	Passed  atomic.Int64               // bytes
	Rewrite func(answer []byte) []byte // changes the parts of answers, whose lengths it keeps; may be nil

	listeners []net.Listener
	closed    chan struct{} // closed by Reject and End
	closeOnce sync.Once
	running   sync.WaitGroup
	faults    *wireFaults

	mu   sync.Mutex // guards the following fields
	open map[*net.TCPConn]bool
	cuts cuts
}

// NewWire returns a wire to the addresses of a service.
func NewWire(to ...string) (*Wire, error) {
	w := &Wire{closed: make(chan struct{}), faults: newWireFaults(), open: map[*net.TCPConn]bool{}}
	for _, addr := range to {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			w.End()
			return nil, err
		}
		l, err := net.Listen("tcp", net.JoinHostPort(wireHost, port))
		if err != nil {
			w.End()
			return nil, err
		}
		w.listeners = append(w.listeners, l)
		w.running.Go(func() { w.accept(l, addr) })
	}
	return w, nil
}

// Addr returns the address at which callers reach the first address of the service.
func (w *Wire) Addr() string { return w.listeners[0].Addr().String() }

// Reject resets all connections, and refuses new ones, for good.
func (w *Wire) Reject() {
	w.closeOnce.Do(func() {
		close(w.closed)
		for _, l := range w.listeners {
			_ = l.Close()
		}
	})
}

// End rejects all connections and waits for the goroutines of the wire.
func (w *Wire) End() {
	w.Reject()
	w.running.Wait()
}

// Reset resets all connections.
func (w *Wire) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn := range w.open {
		reset(conn)
	}
}

func (w *Wire) accept(l net.Listener, to string) {
	for {
		near, err := l.Accept()
		if err != nil {
			return // the listener is closed
		}
		w.running.Go(func() { w.join(near.(*net.TCPConn), to) })
	}
}

// keep registers a connection for Reset, and returns a function that closes it.
func (w *Wire) keep(conn *net.TCPConn) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[conn] = true
	return func() {
		_ = conn.Close()
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.open, conn)
	}
}

// join connects one connection to its service, until both sides have ended, one side is lost, or the
// wire is closed.
func (w *Wire) join(near *net.TCPConn, to string) {
	defer w.keep(near)()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	cancel()
	if err != nil {
		reset(near)
		return
	}
	far := conn.(*net.TCPConn)
	defer w.keep(far)()
	if fault, _ := w.faults.get(); fault.Refuse {
		reset(near)
		return
	}
	sides, joined := make(chan end, 2), make(chan struct{})
	defer close(joined)
	w.running.Go(func() { w.orphan(near, joined) })
	w.running.Go(func() { sides <- w.pass(near, far, true) })
	w.running.Go(func() { sides <- w.pass(far, near, false) })
	for range 2 {
		select {
		case how := <-sides:
			if how == eof {
				continue
			}
			if how == cutOff {
				return
			}
		case <-w.closed:
		}
		reset(near)
		reset(far)
		return
	}
}

// An end is the way in which one direction of a connection ends.
type end int

const (
	eof    end = iota // normally, and the other direction goes on
	cutOff            // the wire closes both sides
	broken            // the wire resets both sides
)

// pass copies bytes until a side ends.
func (w *Wire) pass(from, to *net.TCPConn, toCallee bool) end {
	buf := make([]byte, 32<<10)
	var cut *cut
	for parts := 0; ; parts++ {
		n, err := from.Read(buf)
		n, ok := w.admit(n, toCallee)
		w.Passed.Add(int64(n))
		b := buf[:n]
		if n > 0 && !toCallee {
			if w.Rewrite != nil {
				b = w.Rewrite(b)
			}
			if parts == 0 {
				cut = w.nextCut()
			}
			if cut != nil && cut.after == parts {
				_, _ = to.Write(b[:int(cut.share*float64(n))]) // the connection ends in any case
				return cut.end
			}
		}
		if n > 0 {
			if _, err := to.Write(b); err != nil {
				return broken
			}
		}
		switch {
		case ok && errors.Is(err, io.EOF):
			_ = to.CloseWrite() // fails if the side is lost, which the other direction notices
			return eof
		case err != nil || !ok:
			return broken
		}
	}
}

// reset closes a connection with RST.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // the connection is closed in any case
	_ = c.Close()
}

// cuts says which connections are cut in the middle of their answers.
type cuts struct {
	left int
	draw *rand.Rand
}

// A cut ends a connection in the middle of its answer.
type cut struct {
	after int     // number of parts that pass
	share float64 // fraction of the next part that passes
	end   end
}

// maxUncut bounds the parts of an answer that pass before a connection is cut. A part is one write
// of the service: an event, or the header. With a bound in bytes, a late reader might never receive
// its one large event.
const maxUncut = 9

// CutAnswers cuts the next n connections that have an answer, each in a random part of it, with FIN or
// RST. A connection without an answer, such as an idle keep-alive connection, is not cut.
func (w *Wire) CutAnswers(n int, seed uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts = cuts{n, rand.New(rand.NewPCG(seed, 0))}
}

// Uncut returns the number of connections that are still to be cut.
func (w *Wire) Uncut() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cuts.left
}

// nextCut returns the cut of a connection, or nil.
func (w *Wire) nextCut() *cut {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cuts.left == 0 {
		return nil
	}
	w.cuts.left--
	c := &cut{w.cuts.draw.IntN(maxUncut), w.cuts.draw.Float64(), cutOff}
	if w.cuts.draw.IntN(2) == 0 {
		c.end = broken
	}
	return c
}
