package converse

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/whence-dev/whence/api-service/edge/websocket"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/rpc/nesting"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// decode reads a message of the client. Both forms refuse unknown fields at every level: the client
// expects a feature that this service lacks.
func (t *talk) decode(m websocket.Message) (*chatv1.ConverseRequest, *streamerr.Error) {
	t.kind.CompareAndSwap(0, uint32(m.Kind))
	in := &chatv1.ConverseRequest{}
	var err error
	if m.Kind == websocket.Binary {
		err = decodeBinary(m.Data, in)
	} else if err = nesting.JSON(m.Data); err == nil {
		err = protojson.Unmarshal(m.Data, in)
	}
	if err != nil {
		return nil, &streamerr.Error{Reason: streamerr.Invalid, Message: "a message is not a whence.chat.v1.ConverseRequest: " + err.Error()}
	}
	return in, nil
}

func decodeBinary(b []byte, in *chatv1.ConverseRequest) error {
	if err := nesting.Binary(b, in.ProtoReflect().Descriptor()); err != nil {
		return err
	}
	if err := proto.Unmarshal(b, in); err != nil {
		return err
	}
	return unknownField(in.ProtoReflect())
}

// unknownField returns an error with the number of the first unknown field in m, or in a message
// within m, and nil if there is none. A field whose type differs from the IDL counts as unknown.
func unknownField(m protoreflect.Message) (err error) {
	if number, _, n := protowire.ConsumeTag(m.GetUnknown()); n > 0 {
		return fmt.Errorf("unknown field %d in %s", number, m.Descriptor().FullName())
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			if fd.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					err = unknownField(v.Message())
					return err == nil
				})
			}
		case fd.Message() == nil:
		case fd.IsList():
			for i := 0; i < v.List().Len() && err == nil; i++ {
				err = unknownField(v.List().Get(i).Message())
			}
		default:
			err = unknownField(v.Message())
		}
		return err == nil
	})
	return err
}

// names encodes fields under their names in the IDL, as errors do.
var names = protojson.MarshalOptions{UseProtoNames: true}

// encode returns the frame of a message, which is valid until the next call, and the size of the
// message in bytes.
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
