package mux

import (
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/whence-dev/whence/pkg/rpc/link/frame"
)

// An answerer answers each message of a stream with a message.
type answerer struct{}

// Open implements Opener.
func (answerer) Open(_ frame.Call, s *Stream) (serve func(returned func())) {
	s.OnOver(func() {})
	return func(returned func()) {
		defer returned()
		for {
			in := &wrapperspb.BytesValue{}
			if err := s.Recv(in, codes.InvalidArgument); err != nil {
				s.Finish(nil, nil)
				return
			}
			if s.Send(nil, in) != nil {
				return
			}
		}
	}
}

// FuzzFrames sends bytes to both ends of a connection. Whatever they are, the connection ends with
// its peer, and all its goroutines return.
func FuzzFrames(f *testing.F) {
	open, _ := frame.AppendOpen(nil, frame.Call{Stream: 1, Method: "/a.B/C"})
	message := append(frame.AppendItemHead([]byte{byte(frame.Items), 5, 0, 0}, 1, 3), 10, 1, 'x')
	f.Add(append(append(open, message...), frame.AppendStream(nil, frame.Close, 1)...))
	f.Add(append(open, frame.AppendCredit(nil, 1, 1<<30)...))
	f.Add(frame.AppendPing(frame.AppendStream(nil, frame.Reset, 1), frame.Ping, 7))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, serve := range []Opener{answerer{}, nil} {
			near, far := net.Pipe()
			peer := frame.Greeting{Version: frame.Version, Window: 1 << 16, MaxMessage: 1 << 20}
			c := New(near, peer, serve, Options{PingEvery: time.Hour}.WithDefaults())
			if serve == nil {
				if s, ok, err := c.Open(frame.Call{Method: "/a.B/C"}); ok && err == nil {
					defer s.Cancel(io.EOF)
				}
			}
			c.Start(nil)
			read := make(chan struct{})
			go func() {
				defer close(read)
				_, _ = io.Copy(io.Discard, far)
			}()
			_, _ = far.Write(b)
			_ = far.Close()
			<-c.Done()
			c.Close(ErrClosed)
			<-read
		}
	})
}
