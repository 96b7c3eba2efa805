package mux

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/whence-dev/whence/pkg/rpc/link/frame"
)

// TestFirstMessagesDoNotWait: on a busy connection, the first messages of a stream are written at
// once, together with the messages that wait. Later messages wait for each other.
func TestFirstMessagesDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c := New(near, frame.Greeting{Version: frame.Version, Window: 1 << 20, MaxMessage: 1 << 20}, nil, Options{PingEvery: time.Hour, FlushEvery: time.Second}.WithDefaults())
		defer far.Close()
		defer c.Close(ErrClosed)
		c.Start(nil)
		var read atomic.Int64
		go func() { _, _ = io.Copy(counter{&read}, far) }()

		// sends reports whether a message of s is written at once.
		sends := func(s *Stream) bool {
			t.Helper()
			before := read.Load()
			if err := s.Send(wrapperspb.Bool(true)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return read.Load() > before
		}
		open := func() *Stream {
			t.Helper()
			s, ok, err := c.Open(frame.Call{Method: "/a.B/C"})
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			return s
		}
		busy := func() { // the connection would write a thousand times a second
			c.mu.Lock()
			defer c.mu.Unlock()
			c.out.since, c.out.rate, c.out.last = time.Now(), 1000, time.Now()
		}
		old := open()
		for range hasty {
			if busy(); !sends(old) {
				t.Error("one of the first messages waits")
			}
		}
		if busy(); sends(old) {
			t.Error("a later message does not wait for others")
		}
		if !sends(open()) {
			t.Error("the first message of another stream waits although it is due at once")
		}
		if busy(); sends(old) {
			t.Error("a message does not wait after the write that was due at once")
		}
		before := read.Load()
		time.Sleep(time.Second)
		synctest.Wait()
		if read.Load() == before {
			t.Error("the waiting message was not written when its time came")
		}
	})
}

// A counter counts the bytes that are written to it.
type counter struct{ n *atomic.Int64 }

// Write implements io.Writer.
func (c counter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}
