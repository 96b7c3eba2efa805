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

	"github.com/whence-dev/whence/api-service/connection"
	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A fakeExchange is an Exchange whose client reads nothing before the time readsFrom.
type fakeExchange struct {
	network.Conn
	connection.Exchange
	readsFrom time.Time
	takes     int // bytes that the next Send takes, before the client reads nothing for an hour; 0 for no such limit

	mu     sync.Mutex
	room   func()
	waits  *time.Timer // until readsFrom, once a Send was refused
	closed bool
	text   strings.Builder
}

func newFake(unread time.Duration) *fakeExchange {
	return &fakeExchange{readsFrom: time.Now().Add(unread)}
}

func (f *fakeExchange) Close() error           { return nil } // makes the two embedded interfaces unambiguous
func (f *fakeExchange) Identity() bool         { return false }
func (f *fakeExchange) Take(room func())       { f.room = room }
func (f *fakeExchange) Free(bool)              { f.Cut() }
func (f *fakeExchange) Reset()                 { f.Cut() }
func (f *fakeExchange) Touched(*prefetch.List) {}

func (f *fakeExchange) Head(b []byte, h *protocol.ResponseHeader) []byte {
	return append(b, h.Header()...)
}

func (f *fakeExchange) Acknowledged() (all bool, ago time.Duration, err error) {
	return false, 0, errors.ErrUnsupported
}

func (f *fakeExchange) Send(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return 0, errors.New("the exchange has ended")
	case time.Now().Before(f.readsFrom):
		if f.waits == nil {
			f.waits = time.AfterFunc(time.Until(f.readsFrom), f.room)
		}
		return 0, nil
	}
	if n := f.takes; n > 0 && n < len(b) {
		b, f.readsFrom = b[:n], time.Now().Add(time.Hour)
		f.waits = time.AfterFunc(time.Hour, f.room)
	}
	return f.text.Write(b)
}

func (f *fakeExchange) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed = true; f.waits != nil {
		f.waits.Stop()
	}
}

func (f *fakeExchange) got() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.String()
}

// take takes over an exchange, and begins events on it. Writes time out after 30 s, the headers are due
// after 2 s, and comments after 15 s.
func take(f *fakeExchange, left func(*streamerr.Error)) *Conn {
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

// TestCommentsWaitForTheClient: no token arrives, so only the timer writes.
func TestCommentsWaitForTheClient(t *testing.T) {
	startServerDate()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(20 * time.Second)
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
		f := newFake(time.Hour)
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
		f, c := newFake(0), app.NewContext(0)
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

// TestKilledClientIsNotReportedAsGone: Kill ends a Flush that waits for the client, and its caller knows
// already that the client has gone.
func TestKilledClientIsNotReportedAsGone(t *testing.T) {
	startServerDate()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(time.Hour)
		left := 0
		client := take(f, func(*streamerr.Error) { left++ })
		time.AfterFunc(time.Second, client.Kill)
		begun := time.Now()
		if err := client.Send([]byte("last"), 1); streamerr.As(err).Reason != streamerr.ClientGone || time.Since(begun) != time.Second {
			t.Error(err, time.Since(begun))
		}
		synctest.Wait()
		if left != 0 {
			t.Errorf("a client that was killed is reported as gone %d times", left)
		}
		client.GiveBack()
	})
}

// TestSlowClientFails: a client that does not read for the write timeout is too slow, and Flush returns.
func TestSlowClientFails(t *testing.T) {
	startServerDate()
	synctest.Test(t, func(t *testing.T) {
		var cause *streamerr.Error
		client := take(newFake(time.Hour), func(gone *streamerr.Error) { cause = gone })
		begun := time.Now()
		err := client.Send([]byte("last"), 1)
		synctest.Wait()
		if took := time.Since(begun); streamerr.As(err).Reason != streamerr.SlowReader || cause == nil || cause.Reason != streamerr.SlowReader || took < 30*time.Second || took > 35*time.Second {
			t.Error(err, cause, took)
		}
		client.GiveBack()
	})
}
