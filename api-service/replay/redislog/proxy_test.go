package redislog_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A proxy stands between an instance and its server, and can be cut.
type proxy struct {
	to, addr string

	gate sync.RWMutex // locked while data from clients is held back

	mu    sync.Mutex
	ln    net.Listener
	conns []net.Conn
	dead  bool
	wg    sync.WaitGroup
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	p := &proxy{to: to, addr: "127.0.0.1:0"}
	p.mend(t)
	t.Cleanup(p.cut)
	return p
}

func (p *proxy) mend(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	p.addr, p.ln, p.dead = ln.Addr().String(), ln, false
	p.wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", p.to)
			if err != nil {
				_ = in.Close()
				continue
			}
			p.mu.Lock()
			if p.conns = append(p.conns, in, out); p.dead {
				_, _ = in.Close(), out.Close()
			}
			p.mu.Unlock()
			p.wg.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
			p.wg.Go(func() { _, _ = io.Copy(gatedWriter{out, &p.gate}, in); _ = out.Close() })
		}
	})
}

// hold holds back data from clients until pass.
func (p *proxy) hold() { p.gate.Lock() }

func (p *proxy) pass() { p.gate.Unlock() }

// A gatedWriter holds back writes while its gate is locked.
type gatedWriter struct {
	io.Writer
	gate *sync.RWMutex
}

func (g gatedWriter) Write(b []byte) (int, error) {
	g.gate.RLock()
	defer g.gate.RUnlock()
	return g.Writer.Write(b)
}

func (p *proxy) cut() {
	_ = p.ln.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns, p.dead = nil, true
	p.mu.Unlock()
	p.wg.Wait()
}
