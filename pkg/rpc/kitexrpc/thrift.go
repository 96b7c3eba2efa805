package kitexrpc

import (
	"context"
	"fmt"

	"github.com/cloudwego/kitex/pkg/remote"
	"github.com/cloudwego/kitex/pkg/remote/codec"
	"github.com/cloudwego/kitex/pkg/remote/trans/detection"
	knetpoll "github.com/cloudwego/kitex/pkg/remote/trans/netpoll"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/pkg/serviceinfo"
	"github.com/cloudwego/kitex/pkg/streaming"
	"github.com/cloudwego/kitex/pkg/transmeta"
	"github.com/cloudwego/kitex/server"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/pkg/rpc/ttrpc"
)

// overThrift returns the options of a server that also serves TTHeader and TTHeader Streaming on
// its port.
func (s *Server) overThrift(infos []*serviceinfo.ServiceInfo, limit int) []server.Option {
	options := []server.Option{
		server.WithCodec(newBoundedCodec(limit)), // of TTHeader
		server.WithMetaHandler(transmeta.ServerTTHeaderHandler),
		server.WithErrorHandler(ttrpc.ErrorHandler),
	}
	if len(infos) == 0 {
		return options
	}
	patience := s.WriteTimeout
	if patience == 0 {
		patience = DefaultWriteTimeout
	}
	return append(options, server.WithTransHandlerFactory(detection.NewSvrTransHandlerFactory(
		knetpoll.NewSvrTransHandlerFactory(),
		s.meteredGRPC(),
		ttrpc.Handlers{Limit: limit, WriteTimeout: patience, MaxStreams: s.MaxStreams, Flooded: s.Flooded, Service: infos[0], Fallback: bidi(unknownMethod)},
	)))
}

// A boundedCodec bounds only received messages. Kitex's own limit bounds sent messages, too.
type boundedCodec struct {
	remote.Codec
	limited remote.Codec
}

func newBoundedCodec(limit int) remote.Codec {
	return boundedCodec{codec.NewDefaultCodec(), codec.NewDefaultCodecWithSizeLimit(limit)}
}

// Decode implements remote.Codec.
func (c boundedCodec) Decode(ctx context.Context, m remote.Message, in remote.ByteBuffer) error {
	return c.limited.Decode(ctx, m, in)
}

// unknownMethod answers calls of unknown methods over TTHeader Streaming.
func unknownMethod(ctx context.Context, _, arg, _ any) error {
	args, ok := arg.(*streaming.Args)
	if !ok {
		return fmt.Errorf("kitexrpc: %T is not a call over TTHeader Streaming", arg)
	}
	method := rpcinfo.GetRPCInfo(ctx).Invocation().MethodName()
	return ttrpc.Serve(ctx, args.ServerStream, method, 0, func(grpc.ServerStream) error {
		return status.Errorf(codes.Unimplemented, "unknown method %s, or an unknown service", method)
	})
}

// A messageCodec encodes and decodes the messages of a call over gRPC.
type messageCodec struct {
	encode func(m any) (any, error)
	decode func(b []byte, m any) error
}

// codecOf returns the codec of a call. Thrift wraps the messages of unary methods in structs.
func codecOf(thrift, unary bool) messageCodec {
	switch {
	case !thrift:
		return messageCodec{encode: func(m any) (any, error) { return m, nil }, decode: unmarshal} // Kitex encodes
	case unary:
		return messageCodec{encode: func(m any) (any, error) { return ttrpc.EncodeResult(m) }, decode: ttrpc.DecodeArgs}
	default:
		return messageCodec{encode: func(m any) (any, error) { return ttrpc.Encode(m) }, decode: ttrpc.Decode}
	}
}

func unmarshal(b []byte, m any) error {
	msg, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "%T is not a protobuf message", m)
	}
	if err := proto.Unmarshal(b, msg); err != nil {
		return status.Error(codes.InvalidArgument, fmt.Sprintf("the message is not a %s: %v", msg.ProtoReflect().Descriptor().FullName(), err))
	}
	return nil
}
