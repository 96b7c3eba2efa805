package converse

import (
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/edge/websocket"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// decode reads a message of the client. Unknown fields are refused in both forms: the client expects
// something that this service does not do.
func (t *talk) decode(m websocket.Message) (*chatv1.ConverseRequest, *streamerr.Error) {
	t.kind.CompareAndSwap(0, uint32(m.Kind))
	in := &chatv1.ConverseRequest{}
	var err error
	if m.Kind == websocket.Binary {
		err = proto.Unmarshal(m.Data, in)
	} else {
		err = protojson.Unmarshal(m.Data, in)
	}
	if err != nil {
		return nil, &streamerr.Error{Reason: streamerr.Invalid, Message: "a message is no whence.chat.v1.ConverseRequest: " + err.Error()}
	}
	if len(in.ProtoReflect().GetUnknown()) > 0 {
		return nil, streamerr.New(streamerr.Invalid, "a message has fields that whence.chat.v1.ConverseRequest has not")
	}
	return in, nil
}

// names are the fields' names in the IDL, as in errors.
var names = protojson.MarshalOptions{UseProtoNames: true}

// encode returns the frame of a message, which is valid until the next, and the size of the message in
// bytes.
func (t *talk) encode(out *chatv1.ConverseResponse) (frame []byte, size int, err error) {
	kind, b := websocket.Text, t.out.Begin()
	if websocket.Opcode(t.kind.Load()) == websocket.Binary {
		kind = websocket.Binary
		b, err = proto.MarshalOptions{}.MarshalAppend(b, out)
	} else {
		b, err = names.MarshalAppend(b, out)
	}
	if err != nil {
		return nil, 0, streamerr.New(streamerr.Internal, "a message cannot be encoded: %v", err)
	}
	frame, size = t.out.End(kind, b)
	return frame, size, nil
}
