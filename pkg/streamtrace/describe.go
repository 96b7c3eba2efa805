package streamtrace

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// A Span describes the span of a stream that is no answer of a language model.
type Span struct {
	Name string
	Kind trace.SpanKind
	// Peer is the side of the neighbour that the stream's messages come from and go to: the caller of a server's stream, the
	// callee of a client's.
	Peer Side
	// Attributes are added to those of all streams: reason, origin, path, and the numbers of messages.
	Attributes []attribute.KeyValue
}

// Describe says what the stream's span looks like. It must be called before the stream's trace is told to anybody.
func (t *Trace) Describe(s Span) {
	if t != nil {
		t.described = &s
	}
}

// LocalParent returns the span of a context as a Parent, or none.
func LocalParent(ctx context.Context) Parent {
	sc := trace.SpanContextFromContext(ctx)
	return Parent{sc.TraceID(), sc.SpanID(), sc.TraceFlags(), sc.TraceState()}
}
