package lab

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// wireHost is the address at which wires listen, on the same ports as their services: callers learn the
// port of links from the service, and use it at the address that they have.
const wireHost = "127.0.0.2"

// A Wire is a TCP proxy in front of one service that can be cut.
type Wire struct {
	listeners []net.Listener
	dropping  chan struct{} // closed by Drop: from then on no byte passes
	closed    chan struct{} // closed by Reject and End
	running   sync.WaitGroup
	faults    *wireFaults
	Passed    atomic.Int64 // bytes

	dropOnce, closeOnce sync.Once
}

// NewWire returns a wire to the addresses of a service.
func NewWire(to ...string) (*Wire, error) {
	w := &Wire{dropping: make(chan struct{}), closed: make(chan struct{}), faults: newWireFaults()}
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

// Drop lets no more bytes pass in either direction. Connections remain open and new ones are accepted:
// the services hear nothing, as behind a firewall that drops packets.
func (w *Wire) Drop() { w.dropOnce.Do(func() { close(w.dropping) }) }

// Reject resets all connections, and refuses new ones.
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

func (w *Wire) accept(l net.Listener, to string) {
	for {
		near, err := l.Accept()
		if err != nil {
			return // the listener is closed
		}
		w.running.Go(func() { w.join(near, to) })
	}
}

// join connects one connection to its service, until either side or the wire is closed.
func (w *Wire) join(near net.Conn, to string) {
	defer reset(near)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	cancel()
	if err != nil {
		return
	}
	defer reset(far)
	over, joined := make(chan struct{}, 2), make(chan struct{})
	defer close(joined)
	w.running.Go(func() { w.orphan(near, joined) })
	for _, ends := range [][2]net.Conn{{near, far}, {far, near}} {
		w.running.Go(func() {
			w.pass(ends[0], ends[1], ends[1] == far)
			over <- struct{}{}
		})
	}
	select {
	case <-over:
	case <-w.closed:
	}
}

// pass copies bytes until a side is closed. After Drop it holds the connection and the bytes.
func (w *Wire) pass(from, to net.Conn, toCallee bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-w.dropping:
			<-w.closed
			return
		default:
		}
		n, ok := w.admit(n, toCallee)
		w.Passed.Add(int64(n))
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil || !ok {
			return
		}
	}
}

// reset closes a connection with RST.
func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0) // the connection is closed in any case
	_ = c.Close()
}
