package pollnet

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
)

// maxQueued bounds the connections that wait for their server; Hand refuses further connections.
const maxQueued = 4096

// A Queue is a listener whose connections another server has accepted. The server of Hertz or Kitex
// on it cannot tell the difference: a byte in a pipe makes netpoll call Accept.
type Queue struct {
	addr net.Addr
	read int // the end of the pipe that netpoll polls

	ready    chan struct{} // closed when netpoll polls the queue
	becoming sync.Once     // closes ready

	mu      sync.Mutex // guards the following fields
	write   int        // the other end of the pipe; -1 after Release
	waiting []*conn
	closed  bool
}

// NewQueue returns a Queue that names addr as its address. The caller must call Release after the
// server on it has returned.
func NewQueue(addr net.Addr) (*Queue, error) {
	var ends [2]int
	syscall.ForkLock.RLock()
	err := syscall.Pipe(ends[:])
	if err == nil {
		syscall.CloseOnExec(ends[0])
		syscall.CloseOnExec(ends[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, fmt.Errorf("pollnet: pipe: %w", err)
	}
	q := &Queue{addr: addr, read: ends[0], write: ends[1], ready: make(chan struct{})}
	if err := errors.Join(syscall.SetNonblock(q.read, true), syscall.SetNonblock(q.write, true), q.wake()); err != nil {
		q.Release()
		return nil, fmt.Errorf("pollnet: pipe: %w", err)
	}
	return q, nil
}

// wake makes netpoll call Accept once more.
func (q *Queue) wake() error {
	_, err := syscall.Write(q.write, []byte{0})
	return err
}

// Ready returns a channel that is closed when a server takes connections from the queue.
func (q *Queue) Ready() <-chan struct{} { return q.ready }

// Hand gives a connection to the server on the queue. It takes nc in any case: if the server has
// ended, the connection is closed.
func (q *Queue) Hand(nc net.Conn) error {
	defer nc.Close() //nolint:errcheck // the server has a descriptor of its own
	c, err := duplicate(nc)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.waiting) >= maxQueued {
		_ = syscall.Close(c.fd)
		return net.ErrClosed
	}
	if err := q.wake(); err != nil {
		_ = syscall.Close(c.fd)
		return err
	}
	q.waiting = append(q.waiting, c)
	return nil
}

// duplicate returns a connection with a descriptor of its own for the socket of nc.
func duplicate(nc net.Conn) (*conn, error) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("pollnet: %T has no descriptor", nc)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &conn{local: nc.LocalAddr(), remote: nc.RemoteAddr()}
	gone := raw.Control(func(fd uintptr) {
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		if c.fd, err = syscall.Dup(int(fd)); err == nil {
			syscall.CloseOnExec(c.fd)
		}
	})
	return c, errors.Join(gone, err)
}

// Accept implements netpoll.Listener. It does not block: if there is no connection it returns nil,
// nil, as netpoll's own listener does.
func (q *Queue) Accept() (net.Conn, error) {
	q.becoming.Do(func() { close(q.ready) })
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.write >= 0 {
		_, _ = syscall.Read(q.read, make([]byte, 1)) // fails if there is no byte, and then there is no connection either
	}
	if len(q.waiting) == 0 {
		return nil, nil //nolint:nilnil // see above
	}
	c := q.waiting[0]
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
	return c, nil
}

// Addr implements net.Listener.
func (q *Queue) Addr() net.Addr { return q.addr }

// Fd implements netpoll.Listener.
func (q *Queue) Fd() int { return q.read }

// Close makes q refuse connections, and closes those that wait.
func (q *Queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, c := range q.waiting {
		_ = syscall.Close(c.fd)
	}
	q.waiting = nil
	return nil
}

// Release closes q and its pipe. The server on q must have returned.
func (q *Queue) Release() {
	_ = q.Close()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.write >= 0 {
		_, _ = syscall.Close(q.write), syscall.Close(q.read)
		q.write = -1
	}
}
