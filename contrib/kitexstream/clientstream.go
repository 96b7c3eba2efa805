package kitexstream

import (
	"context"
	"sync"

	kstreaming "github.com/cloudwego/kitex/pkg/streaming"

	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
)

// A clientStream is a client's stream of StreamX. It records messages and endings in its call.
type clientStream struct {
	kstreaming.ClientStream
	grpc kstreaming.Stream // the stream in the older interface, or nil
	call *clientCall

	once       sync.Once // guards the following fields
	trailer    kstreaming.Trailer
	trailerErr error
}

var (
	_ kstreaming.GRPCStreamGetter = (*clientStream)(nil)
	_ kstreaming.WithDoFinish     = (*clientStream)(nil)
	_ kstreaming.WithDoFinish     = grpcClientStream{}
)

// dropped is the finalizer of s.
func (s *clientStream) dropped() { s.call.dropped() }

// SendMsg implements streaming.ClientStream.
func (s *clientStream) SendMsg(ctx context.Context, m any) error {
	err := s.ClientStream.SendMsg(ctx, m)
	s.call.sentMsg(err)
	return err
}

// RecvMsg implements streaming.ClientStream.
func (s *clientStream) RecvMsg(ctx context.Context, m any) error {
	err := s.ClientStream.RecvMsg(ctx, m)
	s.received(err)
	return err
}

// Trailer implements streaming.ClientStream. Kitex hands out a trailer of TTHeader Streaming once.
func (s *clientStream) Trailer() (kstreaming.Trailer, error) {
	s.once.Do(func() { s.trailer, s.trailerErr = s.ClientStream.Trailer() })
	return s.trailer, s.trailerErr
}

// received records the result of a Recv.
func (s *clientStream) received(err error) {
	switch {
	case err == nil:
		s.call.gotHeader()
	case s.grpc != nil:
		if !complete(err) && kitexStatus(err) == nil {
			break // the stream may still be live: its trailer cannot be read yet
		}
		if md := s.grpc.Trailer(); len(md) > 0 {
			s.call.gotTrailer(grpcTrailer(md))
		}
	case complete(err) || inTrailer(err): // the trailer has arrived: Trailer does not block
		if trailer, err := s.Trailer(); err == nil {
			s.call.gotTrailer(func(key string) string { return trailer[key] })
		}
	}
	s.call.received(err)
}

// CloseSend implements streaming.ClientStream.
func (s *clientStream) CloseSend(ctx context.Context) error {
	err := s.ClientStream.CloseSend(ctx)
	if err == nil {
		s.call.stream.Note(monitor.SendTrailer, "", nil)
	}
	return err
}

// DoFinish implements streaming.WithDoFinish.
func (s *clientStream) DoFinish(err error) {
	s.call.finish(err)
	if inner, ok := s.ClientStream.(kstreaming.WithDoFinish); ok {
		inner.DoFinish(err)
	}
}

// GetGRPCStream implements streaming.GRPCStreamGetter.
func (s *clientStream) GetGRPCStream() kstreaming.Stream {
	if s.grpc == nil {
		return nil
	}
	return grpcClientStream{s.grpc, s}
}

// A grpcClientStream is a client's stream in the interface before StreamX.
type grpcClientStream struct {
	kstreaming.Stream
	outer *clientStream // the call ends when outer is garbage
}

// SendMsg implements streaming.Stream.
func (s grpcClientStream) SendMsg(m any) error {
	err := s.Stream.SendMsg(m)
	s.outer.call.sentMsg(err)
	return err
}

// RecvMsg implements streaming.Stream.
func (s grpcClientStream) RecvMsg(m any) error {
	err := s.Stream.RecvMsg(m)
	s.outer.received(err)
	return err
}

// Close implements streaming.Stream. It closes the sending direction.
func (s grpcClientStream) Close() error {
	err := s.Stream.Close()
	if err == nil {
		s.outer.call.stream.Note(monitor.SendTrailer, "", nil)
	}
	return err
}

// DoFinish implements streaming.WithDoFinish.
func (s grpcClientStream) DoFinish(err error) {
	s.outer.call.finish(err)
	if inner, ok := s.Stream.(kstreaming.WithDoFinish); ok {
		inner.DoFinish(err)
	}
}
