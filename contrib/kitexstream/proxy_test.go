package kitexstream_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A proxy forwards bytes to a server until cut is called.
type proxy struct {
	ln net.Listener
	wg sync.WaitGroup

	mu    sync.Mutex // guards the following fields
	next  string
	conns []net.Conn
}

func newProxy(t *testing.T) *proxy {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln}
	p.wg.Add(1)
	go p.accept()
	t.Cleanup(func() {
		_ = ln.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.ln.Addr().String() }

func (p *proxy) to(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = addr
}

func (p *proxy) accept() {
	defer p.wg.Done()
	for {
		up, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		down, err := net.Dial("tcp", p.next)
		if err != nil {
			_ = up.Close()
		} else {
			p.conns = append(p.conns, up, down)
			p.wg.Add(2)
			go p.copy(up, down)
			go p.copy(down, up)
		}
		p.mu.Unlock()
	}
}

func (p *proxy) copy(to, from net.Conn) {
	defer p.wg.Done()
	_, _ = io.Copy(to, from)
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}
