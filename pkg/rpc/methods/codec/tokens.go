package codec

import (
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/runtime/protoiface"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/prefetch"
)

// Tags of fields of whence.worker.v1.
const (
	responseTokens = 2<<3 | byte(protowire.BytesType)
	tokensIDs      = 1<<3 | byte(protowire.BytesType)
)

// Tokens returns the calls of Worker/Generate with this package's decoder.
func Tokens(next Open[workerv1.GenerateRequest, workerv1.GenerateResponse]) Open[workerv1.GenerateRequest, workerv1.GenerateResponse] {
	return open(next, func() decoder[workerv1.GenerateResponse] { return newTokensDecoder() })
}

// SendTokens returns the callee's end of a call of Worker/Generate with this package's encoder.
func SendTokens(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse] {
	return encoded(st, encoder[workerv1.GenerateResponse](&tokensEncoder{}))
}

// A tokensDecoder decodes the messages of calls of Worker/Generate.
type tokensDecoder struct {
	protoreflect.Message // an empty message, which names the type

	some   bool // tokens holds a message that take has not returned yet
	ids    []uint32
	resp   workerv1.GenerateResponse
	oneof  workerv1.GenerateResponse_Tokens
	tokens workerv1.Tokens

	other *workerv1.GenerateResponse // decoded by package proto after tokens; nil for none
}

func newTokensDecoder() *tokensDecoder {
	return &tokensDecoder{Message: (*workerv1.GenerateResponse)(nil).ProtoReflect()}
}

var tokensDecoding = &protoiface.Methods{
	Unmarshal: func(in protoiface.UnmarshalInput) (out protoiface.UnmarshalOutput, err error) {
		out.Flags = protoiface.UnmarshalInitialized
		d, _ := in.Message.(*tokensDecoder)
		return out, d.decode(in.Buf)
	},
}

// ProtoReflect implements proto.Message.
func (d *tokensDecoder) ProtoReflect() protoreflect.Message { return d }

// Interface implements protoreflect.Message.
func (d *tokensDecoder) Interface() protoreflect.ProtoMessage { return d }

// ProtoMethods implements protoreflect.Message.
func (d *tokensDecoder) ProtoMethods() *protoiface.Methods { return tokensDecoding }

// Reset is called before each message. It keeps the decoder's state.
func (d *tokensDecoder) Reset() {}

func (d *tokensDecoder) take() *workerv1.GenerateResponse {
	if !d.some {
		m := d.other
		d.other = nil
		return m
	}
	d.some = false
	d.tokens = workerv1.Tokens{Ids: d.ids}
	d.oneof.Tokens = &d.tokens
	d.resp = workerv1.GenerateResponse{Message: &d.oneof}
	return &d.resp
}

func (d *tokensDecoder) merges() bool { return d.some && d.other == nil && len(d.ids) < maxMerged }

func (d *tokensDecoder) merged() bool { return d.other == nil }

func (d *tokensDecoder) recycle() bool {
	d.tokens.Ids = nil
	return cap(d.ids) <= keptIDs
}

func (d *tokensDecoder) decode(b []byte) error {
	if d.add(b) {
		return nil
	}
	m := new(workerv1.GenerateResponse)
	if err := proto.Unmarshal(b, m); err != nil {
		return err
	}
	d.other = m
	return nil
}

// add adds the ids of a message that has no other fields. It returns false if b cannot be added.
func (d *tokensDecoder) add(b []byte) bool {
	tokens, ok := field(b, responseTokens)
	if !ok {
		return false
	}
	packed, ok := field(tokens, tokensIDs)
	if !ok {
		return false
	}
	before := d.ids[:0]
	if d.some {
		before = d.ids
	}
	ids, ok := appendIDs(before, packed)
	if !ok {
		return false
	}
	d.some, d.ids = true, ids
	return true
}

// A tokensEncoder encodes the messages of one call of Worker/Generate.
type tokensEncoder struct {
	encoding
	tokens *workerv1.Tokens
	ids    int // size of the ids in bytes
}

var tokensEncoding = &protoiface.Methods{
	Flags: protoiface.SupportMarshalDeterministic,
	Size: func(in protoiface.SizeInput) (out protoiface.SizeOutput) {
		e, _ := in.Message.(*tokensEncoder)
		out.Size = e.size
		return out
	},
	Marshal: func(in protoiface.MarshalInput) (out protoiface.MarshalOutput, err error) {
		e, _ := in.Message.(*tokensEncoder)
		b := protowire.AppendVarint(append(in.Buf, responseTokens), uint64(sizeField(e.ids)))
		if e.ids > 0 {
			b = appendPacked(b, tokensIDs, e.tokens.GetIds(), e.ids)
		}
		out.Buf = b
		return out, nil
	},
	CheckInitialized: initialized,
}

// Touched implements prefetch.Toucher.
func (e *tokensEncoder) Touched(to *prefetch.List) { to.Add(prefetch.Of(e)) }

// ProtoReflect implements proto.Message.
func (e *tokensEncoder) ProtoReflect() protoreflect.Message { return e }

// Interface implements protoreflect.Message.
func (e *tokensEncoder) Interface() protoreflect.ProtoMessage { return e }

// ProtoMethods implements protoreflect.Message.
func (e *tokensEncoder) ProtoMethods() *protoiface.Methods { return tokensEncoding }

func (e *tokensEncoder) hold(m *workerv1.GenerateResponse) bool {
	oneof, ok := m.GetMessage().(*workerv1.GenerateResponse_Tokens)
	if !ok {
		return false
	}
	t := oneof.Tokens
	if t == nil || m.Prompt != nil || t.CachedTokens != nil || t.Written != nil || len(t.GetLogprobs())+len(t.GetTopIds())+len(t.GetTopLogprobs()) > 0 {
		return false
	}
	e.Message = m.ProtoReflect()
	if len(e.GetUnknown())+len(t.ProtoReflect().GetUnknown()) > 0 {
		return false
	}
	e.tokens, e.ids = t, sizeIDs(t.GetIds())
	e.size = 1 + protowire.SizeBytes(sizeField(e.ids))
	return true
}
