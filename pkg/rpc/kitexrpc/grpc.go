package kitexrpc

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/whence-dev/whence/pkg/rpc/delivery"
	"github.com/whence-dev/whence/pkg/rpc/grpcserver"
	"github.com/whence-dev/whence/pkg/rpc/ttrpc"
)

// overGRPC describes a service to grpc-go. All methods are streams, which is the same on the wire.
func (svc service) overGRPC() *grpc.ServiceDesc {
	desc := *svc.desc
	desc.Methods, desc.Streams = nil, nil
	for _, m := range svc.desc.Methods {
		desc.Streams = append(desc.Streams, grpc.StreamDesc{StreamName: m.MethodName, Handler: ofThrift(true, delivery.Unary(m))})
	}
	for _, m := range svc.desc.Streams {
		m.Handler = ofThrift(unary(m), m.Handler)
		desc.Streams = append(desc.Streams, m)
	}
	return &desc
}

// unary reports whether a stream is a unary method, which package guard registers as a stream.
func unary(m grpc.StreamDesc) bool { return !m.ServerStreams && !m.ClientStreams }

// ofThrift returns the handler of a method for callers with protobuf and with Thrift messages.
func ofThrift(unary bool, next grpc.StreamHandler) grpc.StreamHandler {
	return func(impl any, st grpc.ServerStream) error {
		if speaksThrift(st.Context()) {
			st = thriftStream{st, unary}
		}
		return next(impl, st)
	}
}

// speaksThrift reports whether the messages of a call over gRPC are Thrift structs.
func speaksThrift(ctx context.Context) bool {
	kind := metadata.ValueFromIncomingContext(ctx, "content-type")
	return len(kind) > 0 && strings.HasPrefix(kind[0], "application/grpc+thrift")
}

// unknown answers calls of services that are not registered by the name in the call. A caller with
// the Thrift twins names a service without its package, or with another one.
func (s *Server) unknown(_ any, st grpc.ServerStream) error {
	called, _ := grpc.MethodFromServerStream(st)
	name, method, _ := strings.Cut(strings.TrimPrefix(called, "/"), "/")
	if speaksThrift(st.Context()) {
		_, short := splitName(name)
		for _, svc := range s.twins() {
			if _, own := splitName(svc.desc.ServiceName); own != short {
				continue
			}
			for _, m := range svc.overGRPC().Streams {
				if m.StreamName == method {
					return m.Handler(svc.impl, st)
				}
			}
		}
	}
	return status.Errorf(codes.Unimplemented, "unknown method %s of service %s", method, name)
}

// A thriftStream is a call over gRPC whose messages are Thrift structs. Thrift wraps the messages of
// unary methods in other structs.
type thriftStream struct {
	grpc.ServerStream
	unary bool
}

// A thriftMessage is a message of a thriftStream.
type thriftMessage struct {
	m     any
	unary bool
}

var _ grpcserver.Foreign = thriftMessage{}

// Encode implements grpcserver.Foreign.
func (t thriftMessage) Encode() ([]byte, error) {
	encode := ttrpc.Encode
	if t.unary {
		encode = ttrpc.EncodeResult
	}
	out, err := encode(t.m)
	if err != nil {
		return nil, err
	}
	b := make([]byte, out.BLength())
	return b[:out.FastWriteNocopy(b, nil)], nil
}

// Decode implements grpcserver.Foreign.
func (t thriftMessage) Decode(b []byte) error {
	if t.unary {
		return ttrpc.DecodeArgs(b, t.m)
	}
	return ttrpc.Decode(b, t.m)
}

// SendMsg implements grpc.ServerStream.
func (s thriftStream) SendMsg(m any) error { return s.ServerStream.SendMsg(thriftMessage{m, s.unary}) }

// RecvMsg implements grpc.ServerStream.
func (s thriftStream) RecvMsg(m any) error { return s.ServerStream.RecvMsg(thriftMessage{m, s.unary}) }
