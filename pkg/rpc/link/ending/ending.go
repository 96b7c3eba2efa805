// Package ending encodes and decodes the endings of calls on a link: the status and the trailers of
// an END frame.
package ending

import (
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/pkg/rpc/link/frame"
)

// Append appends an END to b. If e does not fit into a frame, Append omits its details and
// trailers, and shortens its message.
func Append(b []byte, e frame.Ending) []byte {
	if out, ok := frame.AppendEnd(b, e); ok {
		return out
	}
	short := status.New(codes.Internal, "the ending was too long to be sent")
	if st, err := decode(e.Status); err == nil && st.Code() != codes.OK {
		short = status.New(st.Code(), st.Message()[:min(len(st.Message()), maxShort)])
	}
	e.Status, e.Trailers = Encode(short.Err()), nil
	out, _ := frame.AppendEnd(b, e)
	return out
}

// maxShort bounds the message of a status that is too long for a frame.
const maxShort = 4 << 10

// Encode encodes the status of a handler's error. nil means OK.
func Encode(err error) []byte {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	if st.Code() == codes.OK {
		return nil
	}
	b, err := proto.Marshal(st.Proto())
	if err != nil { // the message is not UTF-8
		b, _ = proto.Marshal(status.New(st.Code(), fmt.Sprintf("%q", st.Message())).Proto())
	}
	return b
}

// Err returns the error of a call that has ended with an encoded status. It returns io.EOF for OK.
func Err(encoded []byte) error {
	if len(encoded) == 0 {
		return io.EOF
	}
	st, err := decode(encoded)
	if err != nil {
		return status.Errorf(codes.Internal, "the callee's status cannot be decoded: %v", err)
	}
	if st.Code() == codes.OK {
		return io.EOF
	}
	return st.Err()
}

func decode(encoded []byte) (*status.Status, error) {
	p := status.New(codes.OK, "").Proto()
	if err := proto.Unmarshal(encoded, p); err != nil {
		return nil, err
	}
	return status.FromProto(p), nil
}
