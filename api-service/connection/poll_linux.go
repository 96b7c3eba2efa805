package connection

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/whence-dev/whence/internal/descriptors"
)

const (
	// bufferSize is the size of a poller's buffer for input, in bytes.
	bufferSize = 64 << 10
	// maxEvents bounds the events that a poller takes from the kernel at once.
	maxEvents = 128
)

// A poller watches the descriptors of many connections, and reads their input on one goroutine. The
// goroutine waits in Go's own poller, in which the poller is registered, so that no thread waits.
type poller struct {
	fd    int
	file  *os.File // has fd
	raw   syscall.RawConn
	ended chan struct{} // closed when the goroutine has returned

	mu     sync.Mutex // guards the following fields
	all    map[int32]*descriptor
	lastID int32
}

// newPoller returns a poller, which the caller closes after all its connections.
func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // makes os.NewFile register it
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	p := &poller{fd: fd, file: os.NewFile(uintptr(fd), "epoll"), ended: make(chan struct{}), all: map[int32]*descriptor{}}
	if p.raw, err = p.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, p.file.Close())
	}
	go p.run()
	return p, nil
}

// run handles events until the poller is closed.
func (p *poller) run() {
	defer close(p.ended)
	events, buf := make([]unix.EpollEvent, maxEvents), make([]byte, bufferSize)
	n := 0
	take := func(fd uintptr) (done bool) {
		var err error
		n, err = unix.EpollWait(int(fd), events, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	}
	for p.raw.Read(take) == nil && n >= 0 {
		for _, e := range events[:n] {
			if d := p.find(e.Fd); d != nil {
				d.ready(e.Events, buf)
			}
		}
	}
}

// find returns the descriptor of an event, or nil if it has been closed. The kernel's number may
// belong to another connection by then, so events have ids of their own.
func (p *poller) find(id int32) *descriptor {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[id]
}

// add registers a descriptor. The mu of its Conn is held.
func (p *poller) add(d *descriptor) error {
	p.mu.Lock()
	for p.lastID++; p.all[p.lastID] != nil; p.lastID++ {
	}
	d.id = p.lastID
	p.all[d.id] = d
	p.mu.Unlock()
	d.input, d.events = true, unix.EPOLLIN|unix.EPOLLRDHUP
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, d.fd, &unix.EpollEvent{Events: d.events, Fd: d.id}))
}

func (p *poller) modify(d *descriptor) {
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, d.fd, &unix.EpollEvent{Events: d.events, Fd: d.id}) // d is registered
}

func (p *poller) remove(d *descriptor) {
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, d.fd, nil) // d is registered
}

func (p *poller) forget(d *descriptor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, d.id)
}

// close ends the goroutine.
func (p *poller) close() {
	_ = p.file.Close() // fails only for a second time
	<-p.ended
}

// coresPerPoller is the number of cores for which one poller is enough: it only parses headers.
const coresPerPoller = 4

// A transport accepts connections from a listener, and watches them.
type transport struct {
	listener *os.File // a duplicate: Go lets nobody wait for connections without accepting them
	local    net.Addr
	pollers  []*poller
	next     int // the poller of the next connection
}

// open prepares for connections from ln. It starts the pollers for a number of cores.
func (t *transport) open(ln net.Listener, cores int) (err error) {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return errNotTCP
	}
	if t.listener, err = tcp.File(); err != nil {
		return err
	}
	t.local = tcp.Addr()
	for range max(1, cores/coresPerPoller) {
		p, err := newPoller()
		if err != nil {
			t.stop()
			t.close()
			return err
		}
		t.pollers = append(t.pollers, p)
	}
	return nil
}

// stop ends accept.
func (t *transport) stop() { _ = t.listener.Close() } // fails only for a second time

// close ends the pollers, whose connections have been closed.
func (t *transport) close() {
	for _, p := range t.pollers {
		p.close()
	}
}

// accept accepts connections until stop is called.
func (t *transport) accept(s *Server) error {
	raw, err := t.listener.SyscallConn()
	if err != nil {
		return err
	}
	for {
		var fd int
		var peer net.Addr
		stopped := raw.Read(func(ln uintptr) (done bool) {
			fd, peer, err = descriptors.Accept(int(ln))
			return !errors.Is(err, unix.EAGAIN)
		})
		switch {
		case stopped != nil:
			return stopped
		case descriptors.IsExhausted(err):
			pause()
		case err == nil && peer != nil:
			t.take(s, fd, peer)
		}
	}
}

// take makes a Conn of a new connection.
func (t *transport) take(s *Server, fd int, peer net.Addr) {
	t.next++
	d := &descriptor{fd: fd, poller: t.pollers[t.next%len(t.pollers)]}
	c := s.newConn(d, peer, t.local)
	d.conn = c
	if err := tune(fd, s.Unsent); err != nil { // the connection has been closed
		_ = unix.Close(fd)
		return
	}
	if !s.enter(c, descriptors.Late(fd)) {
		_ = unix.Close(fd)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == over { // the server has ended meanwhile
		return
	}
	if err := d.poller.add(d); err != nil {
		c.finish(false)
	}
}
