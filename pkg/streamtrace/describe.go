package streamtrace

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// A Span describes the span of a stream that is not an answer of a language model.
type Span struct {
	Name string
	Kind trace.SpanKind
	// Peer is the side of the neighbour that sends and receives the stream's messages: the caller
	// for a server's stream, the callee for a client's.
	Peer Side
	// Attributes are added to the attributes of all streams: reason, origin, path, and the numbers
	// of messages.
	Attributes []attribute.KeyValue
}

// Describe sets the name, kind and attributes of the stream's span. It must be called before the
// trace is read.
func (t *Trace) Describe(s Span) {
	if t != nil {
		t.described = &s
	}
}

// LocalParent returns the span of a context as a Parent, or the zero Parent.
func LocalParent(ctx context.Context) Parent {
	sc := trace.SpanContextFromContext(ctx)
	return Parent{sc.TraceID(), sc.SpanID(), sc.TraceFlags(), sc.TraceState()}
}
