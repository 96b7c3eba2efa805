package clientconn

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/network"
	"github.com/cloudwego/hertz/pkg/protocol"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A fakeConn is a client's connection whose client reads nothing before the time readsFrom.
type fakeConn struct {
	network.Conn
	readsFrom time.Time
	cut       chan struct{}

	flushed func() // called by Flush; may be nil

	mu     sync.Mutex
	closed bool
	text   strings.Builder
}

func newFakeConn(unread time.Duration) *fakeConn {
	return &fakeConn{readsFrom: time.Now().Add(unread), cut: make(chan struct{})}
}

func (f *fakeConn) WriteBinary(b []byte) (int, error) {
	select {
	case <-time.After(time.Until(f.readsFrom)):
	case <-f.cut:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, errors.New("the connection is closed")
	}
	return f.text.Write(b)
}

func (f *fakeConn) Flush() error {
	if f.flushed != nil {
		f.flushed()
	}
	return nil
}

func (f *fakeConn) SetWriteTimeout(time.Duration) error { return nil }

func (f *fakeConn) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed = true
		close(f.cut)
	}
	return nil
}

func (f *fakeConn) got() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.String()
}

// take takes over a connection on which no write succeeds at once, and begins events on it. Writes
// time out after 30 s, the headers are due after 2 s, and comments after 15 s.
func take(f *fakeConn, left func(*streamerr.Error)) *Conn {
	c := app.NewContext(0)
	c.SetConn(f)
	client := Take(c)
	client.Bound(Bounds{Write: 30 * time.Second}, left)
	client.Begin(Events{First: 2 * time.Second, KeepAlive: 15 * time.Second})
	return client
}

// startServerDate makes Hertz start the goroutine of its Date header outside the bubbles of
// synctest.
func startServerDate() { protocol.ServerDateOnce.Do(protocol.UpdateServerDate) }

// TestTimerFlushesItsOwnComments: no token arrives, so no other goroutine calls Flush.
func TestTimerFlushesItsOwnComments(t *testing.T) {
	startServerDate()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(20 * time.Second)
		client := take(f, func(cause *streamerr.Error) { t.Error("a client that reads counts as gone:", cause) })
		time.Sleep(21 * time.Second)
		synctest.Wait()
		if got := f.got(); !strings.Contains(got, "text/event-stream") || !strings.Contains(got, ": keep-alive\n") {
			t.Errorf("the client has %q, want the headers and a comment", got)
		}
		before := len(f.got())
		time.Sleep(100 * time.Second)
		synctest.Wait()
		if got := f.got()[before:]; strings.Count(got, ": keep-alive\n") != 6 {
			t.Errorf("the client has %q, want a comment every 15 s", got)
		}
		if err := client.Send([]byte("last"), 1); err != nil || !strings.HasSuffix(f.got(), "last") {
			t.Error(err, f.got())
		}
		client.GiveBack()
	})
}

// TestTimerWritesNothingAfterGiveBack: the timer waits for the client while the handler returns.
func TestTimerWritesNothingAfterGiveBack(t *testing.T) {
	startServerDate()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(time.Hour)
		client := take(f, func(*streamerr.Error) {})
		time.Sleep(3 * time.Second)
		synctest.Wait() // the headers wait
		begun := time.Now()
		client.GiveBack()
		if took := time.Since(begun); took > 0 {
			t.Errorf("GiveBack waits for the client for %v", took)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got := f.got(); got != "" {
			t.Errorf("after GiveBack the client gets %q", got)
		}
	})
}

// TestHeadersMayBeDueBeforeDetach: the timer sends the headers while the handler detaches the Conn.
func TestHeadersMayBeDueBeforeDetach(t *testing.T) {
	for range 100 {
		f, c := newFakeConn(0), app.NewContext(0)
		c.SetConn(f)
		client := Take(c)
		client.Bound(Bounds{}, func(cause *streamerr.Error) { t.Error(cause) })
		client.Begin(Events{})
		client.Detach(c)
		if err := client.Send([]byte("last"), 1); err != nil {
			t.Fatal(err)
		}
		client.GiveBack()
		if got := f.got(); strings.Count(got, "text/event-stream") != 1 || !strings.HasSuffix(got, "last") {
			t.Fatalf("the client has %q", got)
		}
	}
}

// TestClientLeavesWhileAWriteSucceeds: the client reads the last bytes and closes its connection
// before Flush returns.
func TestClientLeavesWhileAWriteSucceeds(t *testing.T) {
	startServerDate()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeConn(0)
		left := 0
		client := take(f, func(*streamerr.Error) { left++ })
		f.flushed = client.Kill
		if err := client.Send([]byte("last"), 1); streamerr.As(err).Reason != streamerr.ClientGone {
			t.Error(err)
		}
		if left != 0 { // the caller of Kill knows already
			t.Errorf("a client that was killed is reported as gone %d times", left)
		}
		client.GiveBack()
	})
}
