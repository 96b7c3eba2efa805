package ttrpc_test

import (
	"io"
	"net"
	"sync"
	"testing"

	twinstream "github.com/whence-dev/whence/idl/gen/thrift/streamv1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func twinStop(reason streamerr.Reason, hop string) *twinstream.Stop {
	return &twinstream.Stop{Reason: twinstream.Reason(reason), Message: "why not", Path: []string{hop}}
}

// A proxy forwards bytes until it is cut.
type proxy struct {
	addr string

	mu    sync.Mutex // guards conns
	conns []net.Conn
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	now := make(chan struct{})
	close(now)
	return newProxyUntil(t, target, now)
}

// newProxyUntil is newProxy, but forwards nothing from the target before answers is closed.
func newProxyUntil(t *testing.T, target string, answers <-chan struct{}) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: ln.Addr().String()}
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			front, err := ln.Accept()
			if err != nil {
				return
			}
			back, err := net.Dial("tcp", target)
			if err != nil {
				_ = front.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, front, back)
			p.mu.Unlock()
			passing.Go(func() { _, _ = io.Copy(back, front); _ = back.Close() })
			passing.Go(func() { <-answers; _, _ = io.Copy(front, back); _ = front.Close() })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); p.cut(); passing.Wait() })
	return p
}

// cut resets the connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
	p.conns = nil
}
