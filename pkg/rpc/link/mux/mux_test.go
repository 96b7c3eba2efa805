package mux

import (
	"bytes"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/whence-dev/whence/pkg/rpc/link/ending"
	"github.com/whence-dev/whence/pkg/rpc/link/frame"
	"github.com/whence-dev/whence/pkg/stream"
)

// newCaller returns the caller's end of a connection with a stream, and the other end of the
// network connection.
func newCaller(t *testing.T, window int) (*Conn, *Stream, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	c := New(near, frame.Greeting{Version: frame.Version, Window: window, MaxMessage: 1 << 30}, nil, Options{PingEvery: time.Hour}.WithDefaults())
	t.Cleanup(func() { c.Close(ErrClosed); _ = far.Close() })
	s, ok, err := c.Open(frame.Call{Method: "/a.B/C"})
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	return c, s, far
}

// TestTrailersOfCanceledStream: an END that crosses a RESET does not race with the reader.
func TestTrailersOfCanceledStream(t *testing.T) {
	_, s, _ := newCaller(t, 1<<20)
	ended := make(chan struct{})
	s.Cancel(status.Error(codes.Canceled, "cancelled"))
	go func() {
		defer close(ended)
		s.ended(frame.Ending{Stream: s.id, Trailers: []string{"key", "value"}})
	}()
	if md := s.Trailer(); len(md) > 0 {
		t.Error(md)
	}
	<-ended
	if md := s.Trailer(); len(md) > 0 {
		t.Error(md)
	}
}

// TestLargeMessagesAreBounded: a peer that does not read, and has announced a window of 2 GiB,
// blocks a sender of large messages. Small messages of other streams do not wait for the large
// messages.
func TestLargeMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, _ := newCaller(t, 1<<31-1)
		c.Start(nil)
		const size = 100 << 10
		sent := make(chan error, 1)
		go func() {
			for {
				if err := s.Send(nil, wrapperspb.Bytes(make([]byte, size))); err != nil {
					sent <- err
					return
				}
			}
		}()
		synctest.Wait()
		c.mu.Lock()
		if !c.out.full(true, maxWaiting) || c.out.full(true, maxWaiting+2*size) {
			t.Error("the waiting bytes are not between maxWaiting and maxWaiting plus two messages")
		}
		c.mu.Unlock()
		other, _, err := c.Open(frame.Call{Method: "/a.B/C"})
		if err == nil {
			err = other.Send(nil, wrapperspb.Bool(true))
		}
		if err != nil {
			t.Error(err)
		}
		c.Fail(ErrClosed)
		if err := <-sent; status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
	})
}

// TestSenderContinuesIfTheLargeMessageIsDropped: a sender waits for the large message of another
// stream, which the peer resets before anything was written.
func TestSenderContinuesIfTheLargeMessageIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, far := newPatient(time.Minute)
		defer far.Close()
		defer c.Close(ErrClosed)
		go func() { _, _ = io.Copy(io.Discard, far) }()
		large, other := opened(t, c), opened(t, c)
		for range hasty {
			for _, s := range []*Stream{large, other} {
				if err := s.Send(nil, wrapperspb.Bool(true)); err != nil {
					t.Fatal(err)
				}
			}
		}
		synctest.Wait()
		busy(c)
		sent := make(chan error, 2)
		go func() { sent <- large.Send(nil, wrapperspb.Bytes(make([]byte, maxWaiting))) }()
		synctest.Wait()
		<-sent
		go func() { sent <- other.Send(nil, wrapperspb.Bytes(make([]byte, 2*partSize))) }()
		if synctest.Wait(); len(sent) > 0 {
			t.Fatal("the second message does not wait for the first")
		}
		large.OnOver(func() {})
		large.reset()
		if synctest.Wait(); len(sent) == 0 {
			t.Error("the second message still waits for the first")
		}
	})
}

// TestLargeMessagesContinue: a sender that waited continues when the peer reads, and its messages
// arrive.
func TestLargeMessagesContinue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, far := newCaller(t, 1<<31-1)
		c.Start(nil)
		const size, n = 100 << 10, 50
		sent := make(chan error, 1)
		go func() {
			for range n {
				if err := s.Send(nil, wrapperspb.Bytes(make([]byte, size))); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		synctest.Wait()
		got := 0
		go func() {
			buf := make([]byte, 32<<10)
			for {
				m, err := far.Read(buf)
				if err != nil {
					return
				}
				got += m
			}
		}()
		if err := <-sent; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got < n*size {
			t.Errorf("%d bytes have arrived", got)
		}
		_ = far.Close()
	})
}

// TestUnencodableMessageLeavesNothing: messages before and after it share the buffer.
func TestUnencodableMessageLeavesNothing(t *testing.T) {
	c, s, _ := newCaller(t, 1<<20)
	c.mu.Lock()
	c.out.writing = true // keeps messages in the buffer
	before := bytes.Clone(c.out.bytes)
	c.mu.Unlock()
	if err := s.Send(nil, wrapperspb.String("\xff")); status.Code(err) != codes.Internal {
		t.Error(err)
	}
	if !bytes.Equal(c.out.bytes, before) {
		t.Errorf("%q, not %q", c.out.bytes, before)
	}
	if err := s.Send(nil, wrapperspb.String("fine")); err != nil {
		t.Fatal(err)
	}
	f, n, err := frame.Decode(c.out.bytes[len(before):])
	if err != nil || n != len(c.out.bytes)-len(before) || f.Kind != frame.Items {
		t.Errorf("%v of %d bytes, %v", f.Kind, n, err)
	}
}

// TestResetIsWrittenBeforeTheConnectionEnds: the peer has sent a GOAWAY, and the last stream is
// canceled.
func TestResetIsWrittenBeforeTheConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, far := newCaller(t, 1<<20)
		c.OnIdle(func() { c.Fail(ErrClosed) })
		c.Start(nil)
		c.leave()
		s.Cancel(status.Error(codes.Canceled, "cancelled"))
		var have []byte
		buf := make([]byte, 1<<10)
		for {
			n, err := far.Read(buf)
			have = append(have, buf[:n]...)
			if err != nil {
				break // the connection was closed when it was idle
			}
		}
		if !bytes.HasSuffix(have, frame.AppendStream(nil, frame.Reset, s.id)) {
			t.Errorf("%q", have)
		}
	})
}

// TestConnectionEndsWithItsLastNumber: a connection that has no stream number left ends with its last
// stream, so that the caller dials another one.
func TestConnectionEndsWithItsLastNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, far := newCaller(t, 1<<20)
		c.OnIdle(func() { c.Fail(ErrClosed) })
		c.Start(nil)
		go func() { _, _ = io.Copy(io.Discard, far) }()
		c.last = math.MaxUint32 - 1
		last, ok, err := c.Open(frame.Call{Method: "/a.B/C"})
		if !ok || err != nil || last.id != math.MaxUint32 {
			t.Fatal(ok, err)
		}
		if _, ok, _ := c.Open(frame.Call{Method: "/a.B/C"}); ok {
			t.Error("a stream has no number")
		}
		last.Cancel(status.Error(codes.Canceled, "cancelled"))
		if synctest.Wait(); c.Lost() {
			t.Error("the connection has ended before a stream")
		}
		s.Cancel(status.Error(codes.Canceled, "cancelled"))
		if synctest.Wait(); !c.Lost() {
			t.Error("the connection stays, though it can have no more streams")
		}
	})
}

// TestReaderThatWaitsHidesNoMalformedFrame: one read has a message and a frame that ends the
// connection. The reader of the message waits, so that another goroutine continues after the frame.
func TestReaderThatWaitsHidesNoMalformedFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, far := newCaller(t, 1<<20)
		ended := make(chan error, 1)
		s.Attend(t.Context(), func() any { return &wrapperspb.Int32Value{} }, func(on *stream.Loop, _ any, _ error) bool {
			on.Wait()
			<-c.done
			return true
		}, func(err error) { ended <- err }, codes.Internal)
		c.Start(nil)
		go func() { _, _ = io.Copy(io.Discard, far) }()
		broken, _ := frame.AppendOpen(appendItem(nil, s.id, nil), frame.Call{Stream: 3, Method: "/a.B/C"})
		if _, err := far.Write(broken); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case err := <-ended:
			if !strings.Contains(err.Error(), "the callee opened a stream") {
				t.Error(err)
			}
		default:
			t.Error("the connection continues")
			c.Close(ErrClosed)
		}
	})
}

// An opener serves streams until they end.
type opener struct{}

func (opener) Open(_ frame.Call, s *Stream) func(returned func()) {
	over := make(chan struct{})
	s.OnOver(sync.OnceFunc(func() { close(over) }))
	return func(returned func()) {
		defer returned()
		<-over
	}
}

// TestCallsOfOneConnectionAreBounded: an OPEN beyond maxServing handlers is refused.
func TestCallsOfOneConnectionAreBounded(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	c := New(near, frame.Greeting{Version: frame.Version, Window: 1 << 20, MaxMessage: 1 << 20}, opener{}, Options{PingEvery: time.Hour}.WithDefaults())
	c.Start(nil)
	go func() {
		var b []byte
		for id := range uint32(maxServing + 1) {
			b, _ = frame.AppendOpen(b, frame.Call{Stream: id + 1, Method: "/a.B/C"})
		}
		_, _ = far.Write(b)
	}()
	buf := make([]byte, 1<<10)
	n, err := far.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	f, _, err := frame.Decode(buf[:n])
	if err != nil || f.Kind != frame.End {
		t.Fatal(f.Kind, err)
	}
	e, err := frame.ParseEnd(f.Payload)
	if err != nil || e.Stream != maxServing+1 || status.Code(ending.Err(e.Status)) != codes.ResourceExhausted {
		t.Error(e.Stream, ending.Err(e.Status), err)
	}
	c.Close(ErrClosed)
}
