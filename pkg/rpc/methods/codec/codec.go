// Package codec encodes and decodes the messages that carry tokens: the Tokens of Worker/Generate
// and the Delta of Chat/Generate. It has the wire format of package proto, and takes a fraction of
// the time.
//
// It encodes and decodes only the fields that most of these messages have. Package proto handles
// all other messages: Started, End, log-probabilities, tool calls, fields of later versions,
// invalid messages.
//
// A caller's end decodes into a decoder's memory, so that a token needs no allocation. Therefore a
// message that Recv returns is valid until the next Recv; its strings remain valid. If Loops carry the
// call, a message is valid until the function that takes it returns: the decoder then serves other
// calls, so that a stream between two messages needs no memory for it.
//
// The caller's end also merges messages: if further messages with tokens have arrived when a message
// with tokens is received, Recv returns one message with the tokens of all. So a stream whose reader
// is slower than its writer costs less per token, and a lone token is not delayed. Messages with
// log-probabilities or tool calls are never merged.
package codec

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/runtime/protoiface"

	"github.com/whence-dev/whence/internal/prefetch"
	"github.com/whence-dev/whence/pkg/rpc/loop"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/stream"
)

// A message with at least maxMerged tokens is not merged with further messages, so that events stay
// small.
const maxMerged = 64

// An Open opens a call, such as the method of a stub generated for grpc-go.
type Open[In, Out any] = func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[In, Out], error)

// A decoder decodes the messages of one call at a time. RecvMsg gets it instead of a message. It holds
// at most one message with tokens, and after that one message that package proto has decoded.
type decoder[Out any] interface {
	proto.Message
	// take returns the next decoded message, or nil.
	take() *Out
	// merges reports whether the tokens of the next message may be added to the decoded message.
	merges() bool
	// merged reports whether the last message was decoded as tokens, and so is part of the current
	// message.
	merged() bool
	// recycle ends the use of the message that take has returned. It reports whether the decoder may
	// decode another call's messages, which a large one may not.
	recycle() bool
}

// The memory that a decoder may hold between two messages.
const (
	keptIDs  = 1 << 10 // number of ids
	keptText = 4 << 10 // bytes
)

// A peeker is a call whose transport knows whether RecvMsg would return at once.
type peeker interface{ More() bool }

// A caller is the caller's end of a call.
type caller[In, Out any] struct {
	grpc.BidiStreamingClient[In, Out]
	peek peeker
	flow observer.Flow
	free *sync.Pool   // of decoders
	in   decoder[Out] // nil while no message is decoded
	err  error        // of RecvMsg; follows the decoded messages
}

// open returns next with decoders for calls whose transport is a peeker.
func open[In, Out any](next Open[In, Out], newDecoder func() decoder[Out]) Open[In, Out] {
	free := &sync.Pool{New: func() any { return newDecoder() }}
	return func(ctx context.Context, opts ...grpc.CallOption) (grpc.BidiStreamingClient[In, Out], error) {
		c := &caller[In, Out]{flow: observer.Of(ctx), free: free}
		carried := &carriedCaller[In, Out]{caller: c}
		st, err := next(prefetch.With(ctx, prefetch.Of(c), prefetch.Of(carried)), opts...)
		if err != nil {
			return nil, err
		}
		generic, ok := st.(*grpc.GenericClientStream[In, Out])
		if !ok {
			return st, nil
		}
		peek, ok := generic.ClientStream.(peeker)
		if !ok {
			return st, nil
		}
		c.BidiStreamingClient, c.peek = st, peek
		if carried.source, ok = generic.ClientStream.(loop.Source); ok {
			return carried, nil
		}
		return c, nil
	}
}

// decoder returns the call's decoder.
func (c *caller[In, Out]) decoder() decoder[Out] {
	if c.in == nil {
		c.in = c.free.Get().(decoder[Out]) //nolint:forcetypeassert // the pool has nothing else
	}
	return c.in
}

// Recv implements grpc.BidiStreamingClient.
func (c *caller[In, Out]) Recv() (*Out, error) {
	if c.in != nil {
		if m := c.in.take(); m != nil { // package proto has decoded it, after tokens
			return m, nil
		}
	}
	if err := c.err; err != nil {
		c.err = nil
		return nil, err
	}
	if err := c.RecvMsg(c.decoder()); err != nil {
		return nil, err
	}
	c.merge()
	return c.in.take(), nil
}

// A carriedCaller is the caller's end of a call whose messages Loops carry.
type carriedCaller[In, Out any] struct {
	*caller[In, Out]
	source   loop.Source
	take     func(on *stream.Loop, m any) bool // of Attend
	messages int                               // in the current message
}

// Attend implements loop.Source. It does not use fresh.
func (c *carriedCaller[In, Out]) Attend(_ func() any, take func(on *stream.Loop, m any) bool, ended func(err error)) {
	c.take = take
	c.source.Attend(func() any { return c.decoder() }, c.decoded, func(err error) {
		if err != nil { // Recv returns it, after the tokens that came before
			c.tell(c.messages - 1)
			c.err = err
		}
		ended(nil)
	})
}

// decoded takes a decoded message, and passes it on unless tokens of the next message are added to
// it. It returns false if the reader wants no more messages.
func (c *carriedCaller[In, Out]) decoded(on *stream.Loop, _ any) (more bool) {
	if c.in.merged() {
		c.messages++
	}
	if c.in.merges() && c.peek.More() {
		return true
	}
	c.tell(c.messages - 1)
	c.messages = 0
	for m := c.in.take(); m != nil; m = c.in.take() {
		if !c.take(on, m) {
			return false
		}
	}
	if c.in.recycle() {
		c.free.Put(c.in)
	}
	c.in = nil
	return true
}

// SendLast implements loop.Source.
func (c *carriedCaller[In, Out]) SendLast(m any) error { return c.source.SendLast(m) }

// merge adds the messages that have arrived to the current message. An error follows that message.
func (c *caller[In, Out]) merge() {
	n := 0
	for c.in.merges() && c.peek.More() {
		if c.err = c.RecvMsg(c.in); c.err != nil {
			break
		}
		if c.in.merged() {
			n++
		}
	}
	c.tell(n)
}

// tell reports to the stream's flow how many messages were merged into the current message.
func (c *caller[In, Out]) tell(merged int) {
	if merged > 0 {
		c.flow.Note(observer.Event{Kind: observer.Merged, Messages: merged})
	}
}

// An encoder encodes a message that a call sends.
type encoder[Out any] interface {
	proto.Message
	prefetch.Toucher
	// hold prepares the encoding of m. It returns false for a message that package proto must
	// encode.
	hold(m *Out) bool
}

// A callee is the callee's end of a call.
type callee[Out any] struct {
	grpc.ServerStream
	out encoder[Out]
}

// encoded returns st with an encoder, if st is a call of generated code.
func encoded[In, Out any](st grpc.BidiStreamingServer[In, Out], out encoder[Out]) grpc.BidiStreamingServer[In, Out] {
	generic, ok := st.(*grpc.GenericServerStream[In, Out])
	if !ok {
		return st
	}
	return &grpc.GenericServerStream[In, Out]{ServerStream: &callee[Out]{ServerStream: generic.ServerStream, out: out}}
}

// Unwrap returns the call behind the encoder.
func (c *callee[Out]) Unwrap() grpc.ServerStream { return c.ServerStream }

// Touched implements prefetch.Toucher.
func (c *callee[Out]) Touched(to *prefetch.List) {
	prefetch.Touched(c.ServerStream, to)
	c.out.Touched(to)
	to.Add(prefetch.Of(c))
}

// SendMsg implements grpc.ServerStream.
func (c *callee[Out]) SendMsg(m any) error {
	if out, ok := m.(*Out); ok && c.out.hold(out) {
		return c.ServerStream.SendMsg(c.out)
	}
	return c.ServerStream.SendMsg(m)
}

// An encoding is the common part of all encoders: a message with methods of its own. Size computes
// size, and Marshal appends size bytes.
type encoding struct {
	protoreflect.Message // the message that is sent
	size                 int
}

// initialized implements protoiface's CheckInitialized for messages without required fields.
func initialized(protoiface.CheckInitializedInput) (out protoiface.CheckInitializedOutput, err error) {
	return out, nil
}

// field returns the payload of a message whose only field has the given tag. It returns ok false
// for any other message.
func field(b []byte, tag byte) (payload []byte, ok bool) {
	if len(b) == 0 || b[0] != tag {
		return nil, false
	}
	payload, n := protowire.ConsumeBytes(b[1:])
	return payload, n == len(b)-1
}

// appendIDs appends packed ids to ids, and reports whether the packed ids are valid.
func appendIDs(ids []uint32, packed []byte) ([]uint32, bool) {
	for len(packed) > 0 {
		id, n := protowire.ConsumeVarint(packed)
		if n < 0 {
			return ids, false
		}
		ids, packed = append(ids, uint32(id)), packed[n:]
	}
	return ids, true
}

// sizeIDs returns the size of packed ids.
func sizeIDs(ids []uint32) (size int) {
	for _, id := range ids {
		size += protowire.SizeVarint(uint64(id))
	}
	return size
}

// appendPacked appends a field of packed ids, whose payload has size bytes.
func appendPacked(b []byte, tag byte, ids []uint32, size int) []byte {
	b = protowire.AppendVarint(append(b, tag), uint64(size))
	for _, id := range ids {
		b = protowire.AppendVarint(b, uint64(id))
	}
	return b
}

// sizeField returns the size of a field with a tag of one byte, its length, and a payload of size
// bytes. It returns 0 if size is 0.
func sizeField(size int) int {
	if size == 0 {
		return 0
	}
	return 1 + protowire.SizeBytes(size)
}
