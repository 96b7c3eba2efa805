package ttrpc

import (
	"fmt"

	"github.com/cloudwego/gopkg/protocol/thrift"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/pkg/rpc/thriftwire"
)

// The arguments and the result of a unary method are structs with one field.
const (
	argField    = 1
	resultField = 0
)

// An encodedMessage is an encoded Thrift struct. It is a struct type because Kitex panics at any
// other type.
type encodedMessage struct{ b []byte }

var _ thrift.FastCodec = (*encodedMessage)(nil)

// BLength implements thrift.FastCodec.
func (e *encodedMessage) BLength() int { return len(e.b) }

// FastWriteNocopy implements thrift.FastCodec.
func (e *encodedMessage) FastWriteNocopy(b []byte, _ thrift.NocopyWriter) int { return copy(b, e.b) }

// FastRead implements thrift.FastCodec.
func (e *encodedMessage) FastRead(b []byte) (int, error) {
	e.b = append([]byte(nil), b...)
	return len(b), nil
}

// Encode returns m, a protobuf message, as a Thrift struct that Kitex can send.
func Encode(m any) (thrift.FastCodec, error) {
	msg, ok := m.(proto.Message)
	if !ok {
		return nil, status.Errorf(codes.Internal, "%T is not a protobuf message", m)
	}
	b, err := thriftwire.Append(nil, msg)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error()) // gRPC's code, which package delivery expects
	}
	return &encodedMessage{b}, nil
}

// EncodeResult is Encode for the answer of a unary method.
func EncodeResult(m any) (thrift.FastCodec, error) { return encodeField(resultField, m) }

// encodeField encodes a struct that has m in its only field.
func encodeField(number int16, m any) (*encodedMessage, error) {
	msg, ok := m.(proto.Message)
	if !ok {
		return nil, status.Errorf(codes.Internal, "%T is not a protobuf message", m)
	}
	b, err := thriftwire.Append(thriftwire.AppendField(nil, thriftwire.Struct, number), msg)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &encodedMessage{thriftwire.AppendStop(b)}, nil
}

// Decode decodes a Thrift struct into m, a protobuf message.
func Decode(b []byte, m any) error {
	msg, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "%T is not a protobuf message", m)
	}
	if _, err := thriftwire.Decode(b, msg); err != nil {
		return unreadable(msg, err)
	}
	return nil
}

// DecodeArgs decodes the argument of a unary method into m.
func DecodeArgs(b []byte, m any) error { return decodeField(b, argField, m) }

func decodeField(b []byte, number int16, m any) error {
	msg, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "%T is not a protobuf message", m)
	}
	_, found, err := thriftwire.DecodeField(b, number, msg)
	if err == nil && !found {
		err = fmt.Errorf("there is no struct in field %d", number)
	}
	if err != nil {
		return unreadable(msg, err)
	}
	return nil
}

func unreadable(m proto.Message, err error) error {
	return status.Error(codes.InvalidArgument, fmt.Sprintf("the message is not a %s: %v", m.ProtoReflect().Descriptor().FullName(), err))
}

// An incoming message is decoded from a Thrift struct of at most limit bytes.
type incoming struct {
	m     any
	limit int
}

var _ thrift.FastCodec = incoming{}

// BLength implements thrift.FastCodec.
func (incoming) BLength() int { return 0 }

// FastWriteNocopy implements thrift.FastCodec.
func (incoming) FastWriteNocopy([]byte, thrift.NocopyWriter) int { return 0 }

// FastRead implements thrift.FastCodec.
func (i incoming) FastRead(b []byte) (int, error) {
	if len(b) > i.limit {
		return 0, status.Errorf(codes.ResourceExhausted, "received a message of %d bytes; at most %d are allowed", len(b), i.limit)
	}
	return len(b), Decode(b, i.m)
}
