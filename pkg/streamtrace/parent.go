package streamtrace

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// A Parent is a place in a trace, as in W3C's Trace Context: the trace and the parent span. The
// zero value means no parent.
type Parent struct {
	trace trace.TraceID
	span  trace.SpanID
	flags trace.TraceFlags
	state trace.TraceState
}

// w3c reads and writes traceparent and tracestate. It is strict: malformed headers are ignored.
var w3c propagation.TraceContext

// Headers of W3C's Trace Context.
const (
	Traceparent = "traceparent"
	Tracestate  = "tracestate"
)

// StreamPrefix is the prefix of the Traceparent and Tracestate headers that carry the trace of a
// stream, in addition to the trace of the application. The application's spans must ignore the
// sampled flag of a stream.
const StreamPrefix = "whence-"

// ReadParent reads a caller's headers: the headers of its stream if present, otherwise those of its
// application.
func ReadParent(header func(key string) string) Parent {
	if p := ParseParent(header(StreamPrefix+Traceparent), header(StreamPrefix+Tracestate)); p.Valid() {
		return p
	}
	return ParseParent(header(Traceparent), header(Tracestate))
}

// ParseParent parses a caller's headers.
func ParseParent(traceparent, tracestate string) Parent {
	if traceparent == "" {
		return Parent{} // a tracestate alone is ignored
	}
	if p, ok := parseVersion0(traceparent); ok && tracestate == "" {
		return p
	}
	c := propagation.MapCarrier{Traceparent: traceparent, Tracestate: tracestate}
	sc := trace.SpanContextFromContext(w3c.Extract(context.Background(), c))
	return Parent{sc.TraceID(), sc.SpanID(), sc.TraceFlags(), sc.TraceState()}
}

// version0 is the form of a traceparent of version 00.
const version0 = "00-tttttttttttttttttttttttttttttttt-ssssssssssssssss-ff"

// parseVersion0 parses a traceparent of version 00, as our hops send it, without the allocations of
// w3c. ok is false for other versions, and for headers that w3c refuses.
func parseVersion0(traceparent string) (p Parent, ok bool) {
	if len(traceparent) != len(version0) {
		return p, false
	}
	for i, want := range []byte(version0) {
		switch c := traceparent[i]; want {
		case '0', '-':
			if c != want {
				return p, false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return p, false
			}
		}
	}
	var flags [1]byte
	_, _ = hex.Decode(p.trace[:], []byte(traceparent[3:35]))
	_, _ = hex.Decode(p.span[:], []byte(traceparent[36:52]))
	_, _ = hex.Decode(flags[:], []byte(traceparent[53:]))
	p.flags = trace.TraceFlags(flags[0])
	return p, p.Valid() && p.flags&^knownFlags == 0
}

// knownFlags are the flags of version 00.
const knownFlags = trace.FlagsSampled | trace.FlagsRandom

// header returns the traceparent of p, which must be valid.
func (p Parent) header() string {
	b := make([]byte, 0, len(version0))
	b = hex.AppendEncode(append(b, "00-"...), p.trace[:])
	b = hex.AppendEncode(append(b, '-'), p.span[:])
	b = hex.AppendEncode(append(b, '-'), []byte{byte(p.flags & knownFlags)})
	return string(b)
}

// Valid reports whether p is a parent.
func (p Parent) Valid() bool { return p.trace.IsValid() && p.span.IsValid() }

func (p Parent) context() trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: p.trace, SpanID: p.span, TraceFlags: p.flags, TraceState: p.state, Remote: true})
}

// Each calls set with the headers that send p to a callee. It does nothing if p is not valid.
func (p Parent) Each(set func(key, value string)) {
	if !p.Valid() {
		return
	}
	if p.state.Len() == 0 {
		set(Traceparent, p.header())
		return
	}
	c := propagation.MapCarrier{}
	w3c.Inject(trace.ContextWithSpanContext(context.Background(), p.context()), c)
	for _, key := range []string{Traceparent, Tracestate} {
		if v := c[key]; v != "" {
			set(key, v)
		}
	}
}

type parentKey struct{}

// WithParent returns a context whose stream is below p in the trace.
func WithParent(ctx context.Context, p Parent) context.Context {
	if !p.Valid() {
		return ctx
	}
	return context.WithValue(ctx, parentKey{}, p)
}

// ParentOf returns the Parent of WithParent, or the zero Parent.
func ParentOf(ctx context.Context) Parent {
	p, _ := ctx.Value(parentKey{}).(Parent)
	return p
}

func newTraceID() (id trace.TraceID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}

func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}
