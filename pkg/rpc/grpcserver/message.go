package grpcserver

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec of protobuf messages
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Foreign is a message with an encoding of its own, instead of protobuf's.
type Foreign interface {
	Encode() ([]byte, error)
	Decode(b []byte) error
}

// unreadSlack is how many times the limit a message may have before grpc-go refuses it, and not this
// package.
const unreadSlack = 2

// A call is a call whose unreadable messages do not end it. grpc-go's own stream ends the call as
// soon as a message is too long or cannot be decoded, before the handler can say why.
type call struct {
	grpc.ServerStream
	limit int
	lost  error // grpc-go has refused a message, and no longer knows where the next one begins; owned by the receiver
}

// Unwrap returns the stream behind the call.
func (c *call) Unwrap() grpc.ServerStream { return c.ServerStream }

// RecvMsg implements grpc.ServerStream. The next message can be received after RESOURCE_EXHAUSTED
// (the message was too long) and after INVALID_ARGUMENT (it could not be decoded).
func (c *call) RecvMsg(m any) error {
	if c.lost != nil {
		return c.lost
	}
	r := envelope{m: m, limit: c.limit}
	if err := c.ServerStream.RecvMsg(&r); err != nil {
		c.lost = err
		return err
	}
	return r.err
}

// An envelope is a message to be decoded, and why it could not be.
type envelope struct {
	m     any
	limit int
	err   error
}

func (e *envelope) decode(data mem.BufferSlice, protobuf encoding.CodecV2) error {
	if n := data.Len(); n > e.limit {
		return status.Errorf(codes.ResourceExhausted, "received a message of %d bytes; at most %d are allowed", n, e.limit)
	}
	if m, ok := e.m.(Foreign); ok {
		return m.Decode(data.Materialize())
	}
	if err := protobuf.Unmarshal(data, e.m); err != nil {
		return status.Error(codes.InvalidArgument, fmt.Sprintf("the message is not a %s: %v", nameOf(e.m), err))
	}
	return nil
}

func nameOf(m any) string {
	if m, ok := m.(proto.Message); ok {
		return string(m.ProtoReflect().Descriptor().FullName())
	}
	return fmt.Sprintf("%T", m)
}

// A codec encodes protobuf messages as grpc-go does.
type codec struct{ encoding.CodecV2 }

func newCodec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(Foreign)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	b, err := m.Encode()
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*envelope)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	r.err = r.decode(data, c.CodecV2)
	return nil
}
