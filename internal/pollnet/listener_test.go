package pollnet

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cloudwego/netpoll"
)

// start serves ln until stop is called. It echoes the bytes of each connection.
func start(t *testing.T, ln net.Listener) (stop func()) {
	t.Helper()
	loop, err := netpoll.NewEventLoop(func(_ context.Context, c netpoll.Connection) error {
		b, err := c.Reader().Next(c.Reader().Len())
		if err == nil {
			_, err = c.Write(b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	polled, err := Listener(ln)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- loop.Serve(polled) }()
	return func() {
		if err := loop.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		if _, err := net.Dial("tcp", ln.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a server that has stopped accepted a connection: %v", err)
		}
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
	}
}

func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func echo(t *testing.T, addr net.Addr) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "hello" {
		t.Fatal(string(b), err)
	}
	return c
}

func TestServersThatStopLeaveOtherFilesOpen(t *testing.T) {
	var over atomic.Bool
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for !over.Load() {
				r, w, err := os.Pipe()
				if err != nil {
					t.Error(err)
					return
				}
				_, err = w.WriteString("x")
				if err == nil {
					_, err = r.Read(make([]byte, 1))
				}
				if err = errors.Join(err, r.Close(), w.Close()); err != nil {
					t.Errorf("a pipe unrelated to the server: %v", err)
					return
				}
			}
		})
	}
	for range 50 {
		ln := listen(t, "127.0.0.1:0")
		stop := start(t, ln)
		c := echo(t, ln.Addr())
		stop()
		_ = c.Close()
	}
	over.Store(true)
	others.Wait()
}

func TestAddressesOfConnections(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", ":0"} {
		ln := listen(t, addr)
		polled, err := Listener(ln)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := polled.Accept(); c != nil || err != nil {
			t.Error("without a connection:", c, err)
		}
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c, err := polled.Accept()
		if c == nil || err != nil {
			t.Fatal(c, err)
		}
		port := func(a net.Addr) string { return a.String()[strings.LastIndex(a.String(), ":"):] }
		if got, want := port(c.RemoteAddr()), port(client.LocalAddr()); got != want {
			t.Errorf("%s: the peer's port is %s; want %s", addr, got, want)
		}
		if !c.RemoteAddr().(*net.TCPAddr).IP.IsLoopback() || c.LocalAddr() != ln.Addr() {
			t.Error(c.RemoteAddr(), c.LocalAddr())
		}
		if err := syscall.Close(c.(netpoll.Conn).Fd()); err != nil {
			t.Error(err)
		}
		if err := errors.Join(polled.Close(), client.Close()); err != nil {
			t.Error(err)
		}
		if c, err := polled.Accept(); c != nil || err != nil {
			t.Error("after Close:", c, err)
		}
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
		if _, err := polled.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error("after the close of the real listener:", err)
		}
	}
}
