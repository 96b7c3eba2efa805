package e2e

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A relay is a network that can fail, between a service and its clients.
type relay struct {
	target, addr string
	conns        sync.WaitGroup

	// passing is read-locked while bytes are forwarded, and locked while the relay is paused.
	passing sync.RWMutex

	mu   sync.Mutex // guards the following fields
	ln   net.Listener
	open map[*net.TCPConn]bool
}

// relayed starts a relay in front of a service.
func relayed(t *testing.T, target string) *relay {
	t.Helper()
	r := &relay{target: target, addr: "127.0.0.1:0", open: map[*net.TCPConn]bool{}}
	r.admit(t)
	r.addr = r.ln.Addr().String()
	t.Cleanup(func() {
		r.reset()
		r.conns.Wait()
	})
	return r
}

// admit lets clients connect.
func (r *relay) admit(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ln = ln
	r.conns.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			r.conns.Go(func() { r.pass(conn.(*net.TCPConn)) })
		}
	})
}

// reset resets all connections, and refuses new ones until admit.
func (r *relay) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.ln.Close()
	r.cut()
}

// cut resets all connections. The caller holds mu.
func (r *relay) cut() {
	for conn := range r.open {
		_ = conn.SetLinger(0)
		_ = conn.Close()
	}
}

// pause silently stops forwarding until resume.
func (r *relay) pause() { r.passing.Lock() }

// resume ends a pause, and resets the connections that it affected.
func (r *relay) resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut()
	r.passing.Unlock()
}

func (r *relay) keep(conn *net.TCPConn) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[conn] = true
	return func() {
		_ = conn.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.open, conn)
	}
}

func (r *relay) pass(client *net.TCPConn) {
	defer r.keep(client)()
	conn, err := r.dial()
	if err != nil {
		return // the client notices
	}
	service := conn.(*net.TCPConn)
	defer r.keep(service)()
	r.conns.Go(func() {
		_, _ = io.Copy(pausingWriter{client, &r.passing}, service)
		_ = client.Close()
	})
	_, _ = io.Copy(pausingWriter{service, &r.passing}, client)
}

func (r *relay) dial() (net.Conn, error) {
	r.passing.RLock()
	defer r.passing.RUnlock()
	return net.Dial("tcp", r.target)
}

// A pausingWriter waits while the relay is paused.
type pausingWriter struct {
	io.Writer
	passing *sync.RWMutex
}

func (p pausingWriter) Write(b []byte) (int, error) {
	p.passing.RLock()
	defer p.passing.RUnlock()
	return p.Writer.Write(b)
}
