package kitexstream

import (
	"context"

	kstreaming "github.com/cloudwego/kitex/pkg/streaming"

	"github.com/whence-dev/whence/pkg/streamtrace"
)

// A clientStream is a client's stream of StreamX. It records messages and endings in its call.
type clientStream struct {
	kstreaming.ClientStream
	grpc kstreaming.Stream // the stream in the older interface, or nil
	call *clientCall
}

var (
	_ kstreaming.GRPCStreamGetter = (*clientStream)(nil)
	_ kstreaming.WithDoFinish     = (*clientStream)(nil)
	_ kstreaming.WithDoFinish     = grpcClientStream{}
)

// SendMsg implements streaming.ClientStream.
func (s *clientStream) SendMsg(ctx context.Context, m any) error {
	err := s.ClientStream.SendMsg(ctx, m)
	s.call.sentMsg(err)
	return err
}

// RecvMsg implements streaming.ClientStream.
func (s *clientStream) RecvMsg(ctx context.Context, m any) error {
	err := s.ClientStream.RecvMsg(ctx, m)
	s.call.received(err)
	return err
}

// CloseSend implements streaming.ClientStream.
func (s *clientStream) CloseSend(ctx context.Context) error {
	err := s.ClientStream.CloseSend(ctx)
	if err == nil {
		s.call.stream.Note(streamtrace.SendTrailer, "", nil)
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
	s.outer.call.received(err)
	return err
}

// Close implements streaming.Stream. It closes the sending direction.
func (s grpcClientStream) Close() error {
	err := s.Stream.Close()
	if err == nil {
		s.outer.call.stream.Note(streamtrace.SendTrailer, "", nil)
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
