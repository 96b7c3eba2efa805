package mux

import (
	"bytes"
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
		c, far := newPatient(time.Second)
		defer far.Close()
		defer c.Close(ErrClosed)
		var read atomic.Int64
		go func() { _, _ = io.Copy(counter{&read}, far) }()

		// sends reports whether a message of s is written at once.
		sends := func(s *Stream) bool {
			t.Helper()
			before := read.Load()
			if err := s.Send(nil, wrapperspb.Bool(true)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return read.Load() > before
		}
		old := opened(t, c)
		for range hasty {
			if busy(c); !sends(old) {
				t.Error("one of the first messages waits")
			}
		}
		if busy(c); sends(old) {
			t.Error("a later message does not wait for others")
		}
		if !sends(opened(t, c)) {
			t.Error("the first message of another stream waits although it is due at once")
		}
		if busy(c); sends(old) {
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

// TestLastMessageIsWrittenAtOnce: a last message does not wait for other messages, and the
// half-close is in the same write, also if the message is sent in parts.
func TestLastMessageIsWrittenAtOnce(t *testing.T) {
	for name, message := range map[string]*wrapperspb.BytesValue{"short": wrapperspb.Bytes([]byte("stop")), "in parts": wrapperspb.Bytes(make([]byte, partSize+1))} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, far := newPatient(time.Minute)
				defer far.Close()
				defer c.Close(ErrClosed)
				s := opened(t, c)
				writes := make(chan []byte, 10)
				go func() {
					b := make([]byte, 1<<20)
					for {
						n, err := far.Read(b)
						if err != nil {
							return
						}
						writes <- bytes.Clone(b[:n])
					}
				}()
				for range hasty {
					if err := s.Send(nil, wrapperspb.Bool(true)); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				for len(writes) > 0 {
					<-writes
				}
				busy(c)
				if err := s.SendLast(message); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				var last []byte
				for range (len(message.Value) + partSize) / partSize { // the number of parts
					select {
					case last = <-writes:
					default:
						t.Fatal("the message waits for others")
					}
				}
				if closed := frame.AppendStream(nil, frame.Close, s.id); !bytes.HasSuffix(last, closed) || len(last) == len(closed) {
					t.Errorf("the last write is %q, and does not end with the half-close", last)
				}
				if len(writes) > 0 {
					t.Errorf("there was another write: %q", <-writes)
				}
			})
		})
	}
}

// newPatient returns a connection whose messages may wait that long for each other, and the other end
// of the network connection.
func newPatient(wait time.Duration) (*Conn, net.Conn) {
	near, far := net.Pipe()
	c := New(near, frame.Greeting{Version: frame.Version, Window: 1 << 30, MaxMessage: 1 << 30}, nil, Options{PingEvery: time.Hour, FlushEvery: wait}.WithDefaults())
	c.Start(nil)
	return c, far
}

// opened opens a stream.
func opened(t *testing.T, c *Conn) *Stream {
	t.Helper()
	s, ok, err := c.Open(frame.Call{Method: "/a.B/C"})
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	return s
}

// busy pretends that the connection would write a thousand times a second.
func busy(c *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.since, c.out.rate, c.out.last = time.Now(), 1000, time.Now()
}

// A counter counts the bytes that are written to it.
type counter struct{ n *atomic.Int64 }

// Write implements io.Writer.
func (c counter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}
