package lab

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// echoThrough returns a connection, through a wire, to a service that echoes.
func echoThrough(t *testing.T) (*Wire, net.Conn) {
	t.Helper()
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = echo.Close() })
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	w, err := NewWire(echo.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.End)
	c := dialWire(t, w)
	if _, err := c.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return w, c
}

// TestAPartitionIsSilent: no byte arrives and the connection stays open.
func TestAPartitionIsSilent(t *testing.T) {
	w, c := echoThrough(t)
	w.Set(Partition)
	if _, err := c.Write([]byte("b")); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("in a partition, a read ends with %v", err)
	}
}

// TestARejectingWireResets: after Reject, connections break and new ones are refused.
func TestARejectingWireResets(t *testing.T) {
	w, c := echoThrough(t)
	w.Reject()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after Reject, a read ends with %v", err)
	}
	if again, err := net.Dial("tcp", w.Addr()); err == nil {
		_ = again.Close()
		t.Error("a wire that rejects accepts a connection")
	}
}

// TestFaultsHeal: held bytes of either direction, and delayed bytes, arrive in the end.
func TestFaultsHeal(t *testing.T) {
	for name, f := range map[string]WireFault{
		"to the callee": {HoldToCallee: true}, "to the caller": {HoldToCaller: true}, "delay": {Delay: time.Millisecond},
	} {
		w, c := echoThrough(t)
		w.Set(f)
		if _, err := c.Write([]byte("b")); err != nil {
			t.Fatal(err)
		}
		if f.Delay == 0 {
			_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: a read ends with %v", name, err)
			}
			w.Set(WireFault{})
		}
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Errorf("%s: after the fault: %v", name, err)
		}
	}
}

// TestACutPassesAPart: the connection is reset within the bytes of one write.
func TestACutPassesAPart(t *testing.T) {
	w, c := echoThrough(t)
	w.Set(WireFault{Cut: 3})
	if _, err := c.Write([]byte("abcdef")); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	got, err := io.ReadAll(c)
	if len(got) > 3 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q arrives, then %v", got, err)
	}
}

// TestOrphansStayOpen: callers are reset, and the callee hears nothing until the wire has healed.
func TestOrphansStayOpen(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	w, err := NewWire(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer w.End()
	caller, err := net.Dial("tcp", w.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	callee, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer callee.Close()
	w.Set(WireFault{Orphan: true})
	_ = caller.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := caller.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read of the caller ends with %v", err)
	}
	_ = callee.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := callee.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read of the callee ends with %v", err)
	}
	w.Set(WireFault{})
	_ = callee.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := callee.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the fault, a read of the callee ends with %v", err)
	}
}

// TestRefusedConnectionsAreReset: existing and new connections are reset, and others after the fault
// are not.
func TestRefusedConnectionsAreReset(t *testing.T) {
	w, c := echoThrough(t)
	w.Set(WireFault{Refuse: true})
	conns := []net.Conn{c}
	if late, err := net.Dial("tcp", w.Addr()); err == nil { // the reset may come while it connects
		defer late.Close()
		conns = append(conns, late)
	}
	for _, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a read ends with %v", err)
		}
	}
	w.Set(WireFault{})
	again := dialWire(t, w)
	_ = again.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := again.Write([]byte("b")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(again, make([]byte, 1)); err != nil {
		t.Errorf("after the fault: %v", err)
	}
}

// dialWire opens a connection through a wire.
func dialWire(t *testing.T, w *Wire) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", w.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestAnEndPassesAfterItsBytes: what a service sent before it closed its side arrives.
func TestAnEndPassesAfterItsBytes(t *testing.T) {
	_, c := echoThrough(t)
	if _, err := c.Write([]byte("last")); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	if got, err := io.ReadAll(c); string(got) != "last" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestAnswersAreCutOnceEach: the next n connections with an answer end within it.
func TestAnswersAreCutOnceEach(t *testing.T) {
	w, _ := echoThrough(t)
	w.CutAnswers(2, 1)
	for i := range 3 {
		c := dialWire(t, w)
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		cut := false
		for range maxUncut + 1 {
			if _, err := c.Write([]byte("abc")); err != nil {
				cut = true
				break
			}
			if _, err := io.ReadFull(c, make([]byte, 3)); err != nil {
				cut = true
				break
			}
		}
		if cut != (i < 2) {
			t.Errorf("connection %d: cut %t", i, cut)
		}
	}
	if w.Uncut() != 0 {
		t.Errorf("%d are left", w.Uncut())
	}
}
