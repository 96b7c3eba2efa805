package main

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

// A wire is a TCP proxy in front of one service that can be cut.
type wire struct {
	listeners []net.Listener
	dropping  chan struct{} // closed by drop: from then on no byte passes
	closed    chan struct{} // closed by reject and end
	running   sync.WaitGroup
	passed    atomic.Int64 // bytes

	dropOnce, closeOnce sync.Once
}

// newWire returns a wire to the addresses of a service.
func newWire(to ...string) (*wire, error) {
	w := &wire{dropping: make(chan struct{}), closed: make(chan struct{})}
	for _, addr := range to {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			w.end()
			return nil, err
		}
		l, err := net.Listen("tcp", net.JoinHostPort(wireHost, port))
		if err != nil {
			w.end()
			return nil, err
		}
		w.listeners = append(w.listeners, l)
		w.running.Go(func() { w.accept(l, addr) })
	}
	return w, nil
}

// addr returns the address at which callers reach the first address of the service.
func (w *wire) addr() string { return w.listeners[0].Addr().String() }

// drop lets no more bytes pass in either direction. Connections remain open and new ones are accepted:
// the services hear nothing, as behind a firewall that drops packets.
func (w *wire) drop() { w.dropOnce.Do(func() { close(w.dropping) }) }

// reject resets all connections, and refuses new ones.
func (w *wire) reject() {
	w.closeOnce.Do(func() {
		close(w.closed)
		for _, l := range w.listeners {
			_ = l.Close()
		}
	})
}

// end rejects all connections and waits for the goroutines of the wire.
func (w *wire) end() {
	w.reject()
	w.running.Wait()
}

func (w *wire) accept(l net.Listener, to string) {
	for {
		near, err := l.Accept()
		if err != nil {
			return // the listener is closed
		}
		w.running.Go(func() { w.join(near, to) })
	}
}

// join connects one connection to its service, until either side or the wire is closed.
func (w *wire) join(near net.Conn, to string) {
	defer reset(near)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	cancel()
	if err != nil {
		return
	}
	defer reset(far)
	over := make(chan struct{}, 2)
	for _, ends := range [][2]net.Conn{{near, far}, {far, near}} {
		w.running.Go(func() {
			w.pass(ends[0], ends[1])
			over <- struct{}{}
		})
	}
	select {
	case <-over:
	case <-w.closed:
	}
}

// pass copies bytes until a side is closed. After drop it holds the connection and the bytes.
func (w *wire) pass(from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-w.dropping:
			<-w.closed
			return
		default:
		}
		w.passed.Add(int64(n))
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// reset closes a connection with RST.
func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0) // the connection is closed in any case
	_ = c.Close()
}
