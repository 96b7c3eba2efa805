package nesting_test

import (
	"bytes"
	"errors"
	"sort"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
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

// number returns the number of messages within m, on all levels.
func number(m protoreflect.Message) (n int) {
	within := func(m protoreflect.Message) { n += 1 + number(m) }
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			if fd.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					within(v.Message())
					return true
				})
			}
		case fd.Message() == nil:
		case fd.IsList():
			for i := range v.List().Len() {
				within(v.List().Get(i).Message())
			}
		default:
			within(v.Message())
		}
		return true
	})
	return n
}

// biased returns a message with n entries of logit_bias.
func biased(n int) *chatv1.ConverseRequest {
	bias := map[uint32]float32{}
	for i := range n {
		bias[uint32(i)] = 1
	}
	chat := &chatv1.ChatRequest{Sampling: &llmv1.Sampling{LogitBias: bias}}
	return &chatv1.ConverseRequest{Message: &chatv1.ConverseRequest_Chat{Chat: chat}}
}

// structure returns a message with a map of n messages.
func structure(n int) *structpb.Struct {
	s := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for i := range n {
		s.Fields[strconv.Itoa(i)] = structpb.NewStringValue("")
	}
	return s
}

// TestBoundary: a message may hold Max messages, but not one more.
func TestBoundary(t *testing.T) {
	for name, message := range map[string]func(n int) proto.Message{
		"empty messages":  func(n int) proto.Message { return turns(n, "") },
		"short messages":  func(n int) proto.Message { return turns(n, "hi") },
		"map of messages": func(n int) proto.Message { return structure(n) },
	} {
		check := func(n int) (holds, limit int, err error) {
			m := message(n)
			b, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			return number(m.ProtoReflect()), nesting.Max(len(b)), nesting.Binary(b, m.ProtoReflect().Descriptor())
		}
		n := sort.Search(4000, func(n int) bool {
			_, _, err := check(n)
			return err != nil
		})
		holds, limit, err := check(n)
		if tooMany, refused := errors.AsType[*nesting.Error](err); !refused || holds != limit+1 || tooMany.Max != limit {
			t.Errorf("%s: a message that holds %d, of at most %d: %v", name, holds, limit, err)
		}
		if holds, limit, err = check(n - 1); err != nil || holds != limit {
			t.Errorf("%s: a message that holds %d, of at most %d: %v", name, holds, limit, err)
		}
	}
}

// TestEntriesOfMapsOfNumbersAreNotMessages: a request may have a bias for each token.
func TestEntriesOfMapsOfNumbersAreNotMessages(t *testing.T) {
	bias := biased(20_000)
	b, err := proto.Marshal(bias)
	if err != nil {
		t.Fatal(err)
	}
	if err := nesting.Binary(b, bias.ProtoReflect().Descriptor()); err != nil {
		t.Error(err)
	}
}

// TestDepthIsBounded: the error names the depth.
func TestDepthIsBounded(t *testing.T) {
	nested := func(depth int) []byte {
		m := &chatv1.TokenLogprob{}
		for range depth {
			m = &chatv1.TokenLogprob{Top: []*chatv1.TokenLogprob{m}}
		}
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	md := (&chatv1.TokenLogprob{}).ProtoReflect().Descriptor()
	if err := nesting.Binary(nested(64), md); err != nil {
		t.Errorf("64 levels: %v", err)
	}
	if err := nesting.Binary(nested(65), md); err == nil || !strings.Contains(err.Error(), "deeper than 64 levels") {
		t.Errorf("65 levels: %v", err)
	}
}

// FuzzBinary: an accepted message holds at most Max messages.
func FuzzBinary(f *testing.F) {
	b, err := proto.Marshal(turns(3, "x"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	if b, err = proto.Marshal(biased(3)); err != nil {
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
		if n := number(in.ProtoReflect()); n > nesting.Max(len(b)) {
			t.Errorf("%d messages in %d bytes", n, len(b))
		}
	})
}
