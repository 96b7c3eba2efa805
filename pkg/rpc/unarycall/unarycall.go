// Package unarycall makes unary calls on connections that only have streams.
package unarycall

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A Conn begins streams. grpc.ClientConnInterface includes it.
type Conn interface {
	NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error)
}

// Invoke is the method Invoke of a grpc.ClientConnInterface. It supports the call options Header and
// Trailer only. Messages must be protobuf messages.
func Invoke(ctx context.Context, cc Conn, method string, args, reply any, opts ...grpc.CallOption) error {
	answer, ok := reply.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "%T is not a protobuf message", reply)
	}
	ctx, cancel := context.WithCancel(ctx) // frees a stream that has not been read to its end
	defer cancel()
	st, err := cc.NewStream(ctx, nil, method)
	if err != nil {
		return err
	}
	if err := st.SendMsg(args); err != nil && !errors.Is(err, io.EOF) { // EOF: RecvMsg returns the reason
		return err
	}
	if err := st.CloseSend(); err != nil {
		return err
	}
	err = st.RecvMsg(answer)
	if errors.Is(err, io.EOF) {
		return status.Errorf(codes.Internal, "%s ended without a response", method)
	}
	if err == nil {
		if err = st.RecvMsg(answer.ProtoReflect().New().Interface()); err == nil {
			return status.Errorf(codes.Internal, "%s sent more than one response", method)
		}
	}
	read(st, opts)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// read passes the headers and the trailers of a call that is over to the options that want them.
func read(st grpc.ClientStream, opts []grpc.CallOption) {
	for _, opt := range opts {
		switch o := opt.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr, _ = st.Header()
		case grpc.TrailerCallOption:
			*o.TrailerAddr = st.Trailer()
		}
	}
}
