package codec

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/runtime/protoiface"

	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/prefetch"
)

// Tags of fields of whence.chat.v1.
const (
	responseDelta  = 2<<3 | byte(protowire.BytesType)
	deltaText      = 1<<3 | byte(protowire.BytesType)
	deltaTokens    = 2<<3 | byte(protowire.VarintType)
	deltaChoice    = 3<<3 | byte(protowire.VarintType)
	deltaReasoning = 10<<3 | byte(protowire.BytesType)
	deltaIDs       = 12<<3 | byte(protowire.BytesType)
)

// Deltas returns the calls of Chat/Generate with this package's decoder.
func Deltas(next Open[chatv1.GenerateRequest, chatv1.GenerateResponse]) Open[chatv1.GenerateRequest, chatv1.GenerateResponse] {
	return open(next, func() decoder[chatv1.GenerateResponse] { return newDeltaDecoder() })
}

// SendDeltas returns the callee's end of a call of Chat/Generate with this package's encoder.
func SendDeltas(st grpc.BidiStreamingServer[chatv1.GenerateRequest, chatv1.GenerateResponse]) grpc.BidiStreamingServer[chatv1.GenerateRequest, chatv1.GenerateResponse] {
	return encoded(st, encoder[chatv1.GenerateResponse](&deltaEncoder{}))
}

// A deltaDecoder decodes the messages of calls of Chat/Generate.
type deltaDecoder struct {
	protoreflect.Message // an empty message, which names the type

	some  bool // last holds a delta that take has not returned yet
	last  piece
	ids   []uint32 // of last
	texts texts
	resp  chatv1.GenerateResponse
	oneof chatv1.GenerateResponse_Delta
	delta chatv1.Delta

	other *chatv1.GenerateResponse // decoded by package proto after last; nil for none
}

// A piece has the fields of a delta, except its ids.
type piece struct {
	text           []byte // of the message being decoded; otherwise in texts
	reasoning      bool   // text is reasoning
	tokens, choice uint32
}

func newDeltaDecoder() *deltaDecoder {
	return &deltaDecoder{Message: (*chatv1.GenerateResponse)(nil).ProtoReflect()}
}

var deltaDecoding = &protoiface.Methods{
	Unmarshal: func(in protoiface.UnmarshalInput) (out protoiface.UnmarshalOutput, err error) {
		out.Flags = protoiface.UnmarshalInitialized
		d, _ := in.Message.(*deltaDecoder)
		return out, d.decode(in.Buf)
	},
}

// ProtoReflect implements proto.Message.
func (d *deltaDecoder) ProtoReflect() protoreflect.Message { return d }

// Interface implements protoreflect.Message.
func (d *deltaDecoder) Interface() protoreflect.ProtoMessage { return d }

// ProtoMethods implements protoreflect.Message.
func (d *deltaDecoder) ProtoMethods() *protoiface.Methods { return deltaDecoding }

// Reset is called before each message. It keeps the decoder's state.
func (d *deltaDecoder) Reset() {}

func (d *deltaDecoder) take() *chatv1.GenerateResponse {
	if !d.some {
		m := d.other
		d.other = nil
		return m
	}
	d.some = false
	d.delta = chatv1.Delta{Tokens: d.last.tokens, Choice: d.last.choice, Ids: d.ids}
	if d.last.reasoning {
		d.delta.Reasoning = d.texts.last()
	} else {
		d.delta.Text = d.texts.last()
	}
	d.oneof.Delta = &d.delta
	d.resp = chatv1.GenerateResponse{Message: &d.oneof}
	return &d.resp
}

func (d *deltaDecoder) merges() bool { return d.some && d.other == nil && d.last.tokens < maxMerged }

func (d *deltaDecoder) merged() bool { return d.other == nil }

func (d *deltaDecoder) recycle() bool {
	d.delta.Text, d.delta.Reasoning, d.delta.Ids = "", "", nil
	return cap(d.ids) <= keptIDs && d.texts.all.Cap() <= keptText
}

func (d *deltaDecoder) decode(b []byte) error {
	if d.add(b) {
		return nil
	}
	m := new(chatv1.GenerateResponse)
	if err := proto.Unmarshal(b, m); err != nil {
		return err
	}
	d.other = m
	return nil
}

// add adds a delta of text or of reasoning. It returns false if b cannot be added.
func (d *deltaDecoder) add(b []byte) bool {
	delta, ok := field(b, responseDelta)
	if !ok {
		return false
	}
	ids := d.ids[:0]
	if d.some {
		ids = d.ids
	}
	next, ids, ok := parsePiece(delta, ids)
	switch {
	case !ok:
		return false
	case !d.some:
		d.texts.begin()
	case next.choice != d.last.choice || next.reasoning != d.last.reasoning:
		return false
	default:
		next.tokens += d.last.tokens
	}
	d.texts.add(next.text)
	next.text = nil
	d.some, d.last, d.ids = true, next, ids
	return true
}

// parsePiece parses a delta and appends its ids to ids. It returns ok false for a delta that has
// other fields, or both text and reasoning, or is invalid.
func parsePiece(b []byte, ids []uint32) (p piece, _ []uint32, ok bool) {
	text := false
	for len(b) > 0 {
		var n int
		var number uint64
		var payload []byte
		switch b[0] {
		case deltaTokens:
			number, n = protowire.ConsumeVarint(b[1:])
			p.tokens = uint32(number)
		case deltaChoice:
			number, n = protowire.ConsumeVarint(b[1:])
			p.choice = uint32(number)
		case deltaText, deltaReasoning:
			payload, n = protowire.ConsumeBytes(b[1:])
			if text || !utf8.Valid(payload) {
				return p, ids, false
			}
			text, p.text, p.reasoning = true, payload, b[0] == deltaReasoning
		case deltaIDs:
			if payload, n = protowire.ConsumeBytes(b[1:]); n >= 0 {
				if ids, ok = appendIDs(ids, payload); !ok {
					return p, ids, false
				}
			}
		default:
			return p, ids, false
		}
		if n < 0 {
			return p, ids, false
		}
		b = b[1+n:]
	}
	return p, ids, true
}

// The numbers of bytes per allocation of texts. The first allocation of a decoder is small, and each
// following one twice as large: without Loops, a decoder serves one call, and most answers are short.
const (
	firstTexts = 1 << 6
	mostTexts  = 1 << 9
)

// texts makes strings, many of which share one allocation. The strings never change.
type texts struct {
	all   strings.Builder
	start int // of the last string in all
}

// begin begins another string.
func (t *texts) begin() { t.start = t.all.Len() }

// add appends to the last string.
func (t *texts) add(b []byte) {
	if t.all.Cap()-t.all.Len() < len(b) {
		last, size := t.last(), min(max(firstTexts, 2*t.all.Cap()), mostTexts)
		t.all.Reset()
		t.all.Grow(max(size, 2*(len(last)+len(b))))
		t.all.WriteString(last)
		t.start = 0
	}
	t.all.Write(b)
}

func (t *texts) last() string { return t.all.String()[t.start:] }

// A deltaEncoder encodes the messages of one call of Chat/Generate.
type deltaEncoder struct {
	encoding
	delta    *chatv1.Delta
	ids, own int // sizes in bytes of the ids and of the delta
}

var deltaEncoding = &protoiface.Methods{
	Flags: protoiface.SupportMarshalDeterministic,
	Size: func(in protoiface.SizeInput) (out protoiface.SizeOutput) {
		e, _ := in.Message.(*deltaEncoder)
		out.Size = e.size
		return out
	},
	Marshal: func(in protoiface.MarshalInput) (out protoiface.MarshalOutput, err error) {
		e, _ := in.Message.(*deltaEncoder)
		out.Buf = e.append(in.Buf)
		return out, nil
	},
	CheckInitialized: initialized,
}

// Touched implements prefetch.Toucher.
func (e *deltaEncoder) Touched(to *prefetch.List) { to.Add(prefetch.Of(e)) }

// ProtoReflect implements proto.Message.
func (e *deltaEncoder) ProtoReflect() protoreflect.Message { return e }

// Interface implements protoreflect.Message.
func (e *deltaEncoder) Interface() protoreflect.ProtoMessage { return e }

// ProtoMethods implements protoreflect.Message.
func (e *deltaEncoder) ProtoMethods() *protoiface.Methods { return deltaEncoding }

func (e *deltaEncoder) hold(m *chatv1.GenerateResponse) bool {
	oneof, ok := m.GetMessage().(*chatv1.GenerateResponse_Delta)
	if !ok {
		return false
	}
	d := oneof.Delta
	if d == nil || len(d.GetLogprobs())+len(d.GetToolCalls()) > 0 || d.GetRemainder() || d.GetLast() || d.CachedTokens != nil || !utf8.ValidString(d.GetText()) || !utf8.ValidString(d.GetReasoning()) {
		return false
	}
	e.Message = m.ProtoReflect()
	if len(e.GetUnknown())+len(d.ProtoReflect().GetUnknown()) > 0 {
		return false
	}
	e.delta, e.ids = d, sizeIDs(d.GetIds())
	e.own = sizeField(len(d.GetText())) + sizeNumber(d.GetTokens()) + sizeNumber(d.GetChoice()) + sizeField(len(d.GetReasoning())) + sizeField(e.ids)
	e.size = 1 + protowire.SizeBytes(e.own)
	return true
}

// append appends the encoding of the message.
func (e *deltaEncoder) append(b []byte) []byte {
	d := e.delta
	b = protowire.AppendVarint(append(b, responseDelta), uint64(e.own))
	b = appendText(b, deltaText, d.GetText())
	b = appendNumber(b, deltaTokens, d.GetTokens())
	b = appendNumber(b, deltaChoice, d.GetChoice())
	b = appendText(b, deltaReasoning, d.GetReasoning())
	if e.ids > 0 {
		b = appendPacked(b, deltaIDs, d.GetIds(), e.ids)
	}
	return b
}

func appendText(b []byte, tag byte, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(append(b, tag), text)
}

func appendNumber(b []byte, tag byte, v uint32) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(append(b, tag), uint64(v))
}

// sizeNumber returns the size of a field with a tag of one byte.
func sizeNumber(v uint32) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(uint64(v))
}
