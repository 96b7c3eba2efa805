package streamtrace

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// A Parent is a place in a trace, as W3C's Trace Context has it: of which trace, and under which span. The zero value is none.
type Parent struct {
	trace trace.TraceID
	span  trace.SpanID
	flags trace.TraceFlags
	state trace.TraceState
}

// w3c reads and writes traceparent and tracestate, strictly: what is malformed is as if it were not there.
var w3c propagation.TraceContext

// Headers of W3C's Trace Context.
const (
	Traceparent = "traceparent"
	Tracestate  = "tracestate"
)

// StreamPrefix precedes Traceparent and Tracestate in the headers that carry the trace of a stream beside the trace of the
// application. The sampled flag of a stream says nothing about the spans of the application, which must not obey it.
const StreamPrefix = "whence-"

// ReadParent reads a caller's headers: those of its stream if it sent them, otherwise those of its application.
func ReadParent(header func(key string) string) Parent {
	if p := ParseParent(header(StreamPrefix+Traceparent), header(StreamPrefix+Tracestate)); p.Valid() {
		return p
	}
	return ParseParent(header(Traceparent), header(Tracestate))
}

// ParseParent reads a caller's headers.
func ParseParent(traceparent, tracestate string) Parent {
	if traceparent == "" {
		return Parent{} // a tracestate alone says nothing
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

// parseVersion0 reads a traceparent of version 00, as our own hops send it, without the allocations of w3c. ok is false for all
// others, and for those that w3c refuses.
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

// knownFlags are the flags that version 00 has.
const knownFlags = trace.FlagsSampled | trace.FlagsRandom

// header returns the traceparent of p, which must be valid.
func (p Parent) header() string {
	b := make([]byte, 0, len(version0))
	b = hex.AppendEncode(append(b, "00-"...), p.trace[:])
	b = hex.AppendEncode(append(b, '-'), p.span[:])
	b = hex.AppendEncode(append(b, '-'), []byte{byte(p.flags & knownFlags)})
	return string(b)
}

// Valid reports whether there is a parent.
func (p Parent) Valid() bool { return p.trace.IsValid() && p.span.IsValid() }

func (p Parent) context() trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: p.trace, SpanID: p.span, TraceFlags: p.flags, TraceState: p.state, Remote: true})
}

// Each calls set with the headers that tell p to a callee, if there is anything to tell.
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

// WithParent returns a context whose stream belongs where its caller said.
func WithParent(ctx context.Context, p Parent) context.Context {
	if !p.Valid() {
		return ctx
	}
	return context.WithValue(ctx, parentKey{}, p)
}

// ParentOf returns what WithParent was given, or none.
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
