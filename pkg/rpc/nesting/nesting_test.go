package nesting_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/rpc/nesting"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// turns returns a message with n chat messages of a text.
func turns(n int, text string) *chatv1.ConverseRequest {
	turn := &chatv1.Turn{}
	for range n {
		turn.Messages = append(turn.Messages, &chatv1.Message{Content: text})
	}
	return &chatv1.ConverseRequest{Message: &chatv1.ConverseRequest_Turn{Turn: turn}}
}

func TestEmptyMessagesAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		message *chatv1.ConverseRequest
		refused bool
	}{
		"few, empty":       {turns(1000, ""), false},
		"many, empty":      {turns(20_000, ""), true},
		"many with a text": {turns(20_000, `a \" { text`+strings.Repeat("{", 20)), false},
	} {
		b, err := proto.Marshal(c.message)
		if err != nil {
			t.Fatal(err)
		}
		text, err := protojson.Marshal(c.message)
		if err != nil {
			t.Fatal(err)
		}
		for form, err := range map[string]error{
			"binary": nesting.Binary(b, c.message.ProtoReflect().Descriptor()), "JSON": nesting.JSON(text),
		} {
			var tooMany *nesting.Error
			if errors.As(err, &tooMany) != c.refused {
				t.Errorf("%s messages in %s: %v", name, form, err)
			}
		}
	}
}

// FuzzBinary: a message that is accepted holds no more messages than Max.
func FuzzBinary(f *testing.F) {
	b, err := proto.Marshal(turns(3, "x"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0x12, 0xff})
	f.Add(append([]byte{0x1a, 0xd0, 0x0f}, bytes.Repeat([]byte{0x0a, 0}, 1000)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		var in chatv1.ConverseRequest
		_ = nesting.JSON(b)
		if nesting.Binary(b, in.ProtoReflect().Descriptor()) != nil || proto.Unmarshal(b, &in) != nil {
			return
		}
		if n := len(in.GetTurn().GetMessages()) + len(in.GetChat().GetMessages()); n > nesting.Max(len(b)) {
			t.Errorf("%d messages in %d bytes", n, len(b))
		}
	})
}
