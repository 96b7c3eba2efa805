package converse

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/api-service/edge/websocket"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// FuzzMessage: a frame is a message without unknown fields, or an INVALID error.
func FuzzMessage(f *testing.F) {
	f.Add(false, []byte(`{"chat":{"model":"m","messages":[{"role":"user","content":"hi"}]}}`))
	f.Add(false, []byte(`{"stop":{"reason":"REASON_USER_STOP"}}`))
	binary, err := proto.Marshal(&chatv1.ConverseRequest{Message: &chatv1.ConverseRequest_Chat{Chat: &chatv1.ChatRequest{Model: "m"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(true, binary)
	f.Fuzz(func(t *testing.T, isBinary bool, data []byte) {
		kind := websocket.Text
		if isBinary {
			kind = websocket.Binary
		}
		in, err := new(talk).decode(websocket.Message{Kind: kind, Data: data})
		if err != nil {
			if streamerr.As(err).Reason != streamerr.Invalid {
				t.Error(err)
			}
			return
		}
		if err := unknownField(in.ProtoReflect()); err != nil {
			t.Errorf("%q: %v", data, err)
		}
	})
}
