package thriftwire_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/cloudwego/gopkg/protocol/thrift"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	twinchat "github.com/whence-dev/whence/idl/gen/thrift/chatv1"
	twinstream "github.com/whence-dev/whence/idl/gen/thrift/streamv1"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc/nesting"
	"github.com/whence-dev/whence/pkg/rpc/thriftwire"
)

// pairs are messages of the protos and of their twins.
var pairs = []struct {
	message proto.Message
	twin    func() thrift.FastCodec
}{
	{&chatv1.GenerateRequest{}, func() thrift.FastCodec { return twinchat.NewGenerateRequest() }},
	{&chatv1.GenerateResponse{}, func() thrift.FastCodec { return twinchat.NewGenerateResponse() }},
	{&chatv1.CompleteResponse{}, func() thrift.FastCodec { return twinchat.NewCompleteResponse() }},
	{&chatv1.ConverseResponse{}, func() thrift.FastCodec { return twinchat.NewConverseResponse() }},
	{&chatv1.EmbeddingsResponse{}, func() thrift.FastCodec { return twinchat.NewEmbeddingsResponse() }},
	{&chatv1.WorkersResponse{}, func() thrift.FastCodec { return twinchat.NewWorkersResponse() }},
	{&chatv1.ModelsResponse{}, func() thrift.FastCodec { return twinchat.NewModelsResponse() }},
	{&streamv1.Record{}, func() thrift.FastCodec { return twinstream.NewRecord() }},
	{&streamv1.WhyResponse{}, func() thrift.FastCodec { return twinstream.NewWhyResponse() }},
}

// TestMessagesCrossUnchanged sends random messages through the code that Kitex has generated from
// the twins.
func TestMessagesCrossUnchanged(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		pair := pairs[seed%uint64(len(pairs))]
		sent, got := proto.Clone(pair.message), proto.Clone(pair.message)
		fill(random, sent.ProtoReflect(), 0)
		b, err := thriftwire.Append(nil, sent)
		if err != nil {
			t.Fatal(err)
		}
		twin := pair.twin()
		if err := thrift.FastUnmarshal(b, twin); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		b = thrift.FastMarshal(twin)
		if n, err := thriftwire.Decode(b, got); err != nil || n != len(b) {
			t.Fatalf("seed %d: %d of %d bytes, %v", seed, n, len(b), err)
		}
		if !proto.Equal(sent, got) {
			t.Errorf("seed %d:\nsent %v\ngot  %v", seed, sent, got)
		}
	}
}

// fill sets about half of the fields of m.
func fill(r *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if r.IntN(2) == 0 || fd.Message() != nil && !fd.IsMap() && depth > 3 {
			continue
		}
		switch {
		case fd.IsMap():
			for range r.IntN(3) {
				m.Mutable(fd).Map().Set(value(r, fd.MapKey()).MapKey(), value(r, fd.MapValue()))
			}
		case fd.IsList():
			for range r.IntN(3) {
				if list := m.Mutable(fd).List(); fd.Message() != nil {
					fill(r, list.AppendMutable().Message(), depth+1)
				} else {
					list.Append(value(r, fd))
				}
			}
		case fd.Message() != nil:
			fill(r, m.Mutable(fd).Message(), depth+1)
		default:
			m.Set(fd, value(r, fd))
		}
	}
}

func value(r *rand.Rand, fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(r.IntN(2) == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(r.IntN(4)))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(r.Uint32()))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(r.Uint64()))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(r.Uint32() | 1<<31)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(r.Uint64() | 1<<63)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(r.Float32())
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(r.Float64())
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{byte(r.IntN(256)), 0xff})
	default:
		return protoreflect.ValueOfString([]string{"", "text", "日本語 🙂", strings.Repeat("x", 300)}[r.IntN(4)])
	}
}

func TestInvalidStructsAreRefused(t *testing.T) {
	nested := func(depth int) []byte { // top in top in top
		return append(bytes.Repeat([]byte{15, 0, 5, 12, 0, 0, 0, 1}, depth), make([]byte, depth+1)...)
	}
	for name, c := range map[string]struct {
		b    []byte
		m    proto.Message
		want string
	}{
		"nothing":           {nil, &chatv1.Delta{}, "too early"},
		"no end":            {[]byte{11, 0, 1, 0, 0, 0, 1, 'a'}, &chatv1.Delta{}, "too early"},
		"long string":       {[]byte{11, 0, 1, 0xff, 0xff, 0xff, 0xff, 'a'}, &chatv1.Delta{}, "too early"},
		"long list":         {[]byte{15, 0, 12, 10, 0x7f, 0xff, 0xff, 0xff, 0}, &chatv1.Delta{}, "too early"},
		"long unknown list": {[]byte{15, 0, 99, 2, 0x7f, 0xff, 0xff, 0xff, 0}, &chatv1.Delta{}, "too early"},
		"another type":      {[]byte{8, 0, 1, 0, 0, 0, 1, 0}, &chatv1.Delta{}, "type 8 instead of 11"},
		"another element":   {[]byte{15, 0, 12, 8, 0, 0, 0, 1, 0, 0, 0, 1, 0}, &chatv1.Delta{}, "type 8 instead of 10"},
		"negative":          {[]byte{10, 0, 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0}, &chatv1.Delta{}, "is -1; it must be between 0"},
		"no UTF-8":          {[]byte{11, 0, 1, 0, 0, 0, 1, 0xff, 0}, &chatv1.Delta{}, "not UTF-8"},
		"no type":           {[]byte{99, 0, 99, 0}, &chatv1.Delta{}, "not a thrift type"},
		"deep":              {nested(100), &chatv1.TokenLogprob{}, "deeper"},
	} {
		if _, err := thriftwire.Decode(c.b, c.m); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := thriftwire.Decode(nested(20), &chatv1.TokenLogprob{}); err != nil {
		t.Error(err)
	}
	if _, err := thriftwire.Append(nil, &chatv1.Delta{Text: "\xff"}); err == nil {
		t.Error("a string that is not UTF-8 was encoded")
	}
}

// TestEmptyStructsAreBounded: each takes one byte in a list, and 200 in memory.
func TestEmptyStructsAreBounded(t *testing.T) {
	var few, many chatv1.GenerateRequest
	for n, m := range map[int]*chatv1.GenerateRequest{1000: &few, 20_000: &many} {
		m.Message = &chatv1.GenerateRequest_Chat{Chat: &chatv1.ChatRequest{Messages: make([]*chatv1.Message, n)}}
		for i := range n {
			m.GetChat().Messages[i] = &chatv1.Message{}
		}
		b, err := thriftwire.Append(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		_, err = thriftwire.Decode(b, &chatv1.GenerateRequest{})
		if _, refused := errors.AsType[*nesting.Error](err); refused != (m == &many) {
			t.Errorf("%d empty messages: %v", n, err)
		}
	}
}

// TestUnknownFieldsAreSkipped decodes the fields of a later version, one field of each type.
func TestUnknownFieldsAreSkipped(t *testing.T) {
	later := []byte{
		2, 0, 90, 1,
		3, 0, 91, 1,
		6, 0, 92, 0, 1,
		8, 0, 93, 0, 0, 0, 1,
		10, 0, 94, 0, 0, 0, 0, 0, 0, 0, 1,
		4, 0, 95, 0, 0, 0, 0, 0, 0, 0, 1,
		11, 0, 96, 0, 0, 0, 1, 'a',
		12, 0, 97, 8, 0, 1, 0, 0, 0, 1, 0,
		13, 0, 98, 11, 8, 0, 0, 0, 1, 0, 0, 0, 1, 'a', 0, 0, 0, 1,
		14, 0, 99, 2, 0, 0, 0, 2, 1, 0,
		15, 0, 100, 12, 0, 0, 0, 2, 0, 0,
		11, 0, 1, 0, 0, 0, 2, 'h', 'i',
		0,
	}
	var d chatv1.Delta
	if n, err := thriftwire.Decode(later, &d); err != nil || n != len(later) || d.GetText() != "hi" {
		t.Errorf("%v, %d of %d bytes, %v", &d, n, len(later), err)
	}
}

func TestDecodedMessagesKeepNoBuffer(t *testing.T) {
	b, err := thriftwire.Append(nil, &chatv1.TokenLogprob{Token: "abc", Bytes: []byte("abc")})
	if err != nil {
		t.Fatal(err)
	}
	var got chatv1.TokenLogprob
	if _, err := thriftwire.Decode(b, &got); err != nil {
		t.Fatal(err)
	}
	clear(b)
	if got.GetToken() != "abc" || string(got.GetBytes()) != "abc" {
		t.Error(&got)
	}
}

func FuzzDecode(f *testing.F) {
	for _, m := range []proto.Message{
		&chatv1.GenerateRequest{Message: &chatv1.GenerateRequest_Chat{Chat: &chatv1.ChatRequest{Sampling: &llmv1.Sampling{LogitBias: map[uint32]float32{1: 2}, Seed: proto.Uint64(math.MaxUint64)}}}},
		&chatv1.GenerateRequest{Message: &chatv1.GenerateRequest_Stop{Stop: &streamv1.Stop{Reason: streamv1.Reason_REASON_USER_STOP, Path: []string{"a", "b"}}}},
	} {
		b, err := thriftwire.Append(nil, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var m, again chatv1.GenerateRequest
		n, err := thriftwire.Decode(b, &m)
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > uint64(1<<20+2000*len(b)) {
			t.Errorf("%d bytes took %d bytes of memory", len(b), grown)
		}
		if err != nil {
			return
		}
		if n > len(b) {
			t.Errorf("%d of %d bytes", n, len(b))
		}
		out, err := thriftwire.Append(nil, &m)
		if err != nil {
			t.Fatal(err)
		}
		_, err = thriftwire.Decode(out, &again)
		if _, fewer := errors.AsType[*nesting.Error](err); fewer { // without the unknown fields there are fewer bytes
			return
		}
		if err != nil || !proto.Equal(&m, &again) {
			t.Errorf("%v: %v became %v", err, &m, &again)
		}
	})
}

// BenchmarkDelta encodes and decodes the message of one token.
func BenchmarkDelta(b *testing.B) {
	m := &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: &chatv1.Delta{Text: " token", Tokens: 1}}}
	var buf []byte
	var got chatv1.GenerateResponse
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if buf, err = thriftwire.Append(buf[:0], m); err != nil {
			b.Fatal(err)
		}
		if _, err = thriftwire.Decode(buf, &got); err != nil {
			b.Fatal(err)
		}
	}
}
