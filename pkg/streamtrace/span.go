package streamtrace

import (
	"context"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/genproto/googleapis/rpc/code"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// scope is the instrumentation scope.
const scope = "github.com/whence-dev/whence/pkg/streamtrace"

// Export exports the spans of streams from now on, in the background and in batches. It must be
// called before t is used. The returned function exports the remaining spans within its context.
func (t *Tracer) Export(service string, exporters ...sdk.SpanExporter) (end func(context.Context) error) {
	limits := sdk.NewSpanLimits()
	limits.EventCountLimit = -1 // a Trace bounds its events
	options := []sdk.TracerProviderOption{
		sdk.WithResource(resource.NewSchemaless(semconv.ServiceName(service))),
		sdk.WithSampler(sdk.AlwaysSample()), // Ended has made the choice
		sdk.WithIDGenerator(fixedIDs{}),
		sdk.WithRawSpanLimits(limits),
	}
	for _, e := range exporters {
		options = append(options, sdk.WithBatcher(e)) // the batcher drops spans rather than block a stream
	}
	provider := sdk.NewTracerProvider(options...)
	t.spans = provider.Tracer(scope)
	return provider.Shutdown
}

// Ended exports the span of a stream that has ended, if the stream is chosen. record returns the
// stream's record.
func (t *Tracer) Ended(tr *Trace, reason streamerr.Reason, record func() *streamv1.Record) {
	if t == nil || !tr.exported(reason) {
		return
	}
	r := record()
	ctx := context.WithValue(context.Background(), selfKey{}, tr.self)
	if tr.parent.Valid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, tr.parent.context())
	}
	_, span := t.spans.Start(ctx, tr.name(r), trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(tr.tally.Began()), trace.WithAttributes(tr.attributes(r)...))
	for _, e := range r.GetEvents() {
		span.AddEvent(Kind(e.GetKind()).String(), trace.WithTimestamp(tr.tally.Began().Add(e.GetAt().AsDuration())), trace.WithAttributes(eventAttributes(e)...))
	}
	if failed(reason) {
		span.SetStatus(codes.Error, r.GetMessage())
	}
	span.End(trace.WithTimestamp(time.Now()))
}

// exported reports whether a stream with this ending is exported.
func (t *Trace) exported(reason streamerr.Reason) bool {
	return t != nil && t.shown && (reason != streamerr.Completed || t.self.flags.IsSampled() || t.kept.Load())
}

// Keep makes the stream's span exported, however the stream ends.
func (t *Trace) Keep() {
	if t != nil {
		t.kept.Store(true)
	}
}

// Place returns a context in which measurements link to the stream's span, if a stream with this
// ending has an exported span. Otherwise the context has no span, because a dead link is worse than
// none.
func (t *Trace) Place(reason streamerr.Reason) context.Context {
	ctx := context.Background()
	if !t.exported(reason) {
		return ctx
	}
	self := t.self
	self.flags |= trace.FlagsSampled
	return trace.ContextWithSpanContext(ctx, self.context())
}

// failed reports whether an ending is an error for the operator of the hop. A client that leaves or
// stops its stream is satisfied.
func failed(reason streamerr.Reason) bool {
	return reason != streamerr.Completed && reason != streamerr.ClientGone && reason != streamerr.UserStop
}

func (t *Trace) attributes(r *streamv1.Record) []attribute.KeyValue {
	reason := streamerr.Reason(r.GetReason())
	path := streamerr.Path(r.GetPath())
	all := []attribute.KeyValue{
		attribute.String("whence.hop", r.GetHop()),
		attribute.String("whence.reason", reason.String()),
		attribute.String("whence.origin", path.Origin()),
		attribute.String("whence.path", path.String()),
		attribute.Int64("whence.messages.received", int64(r.GetMessagesReceived())),
		attribute.Int64("whence.messages.sent", int64(r.GetMessagesSent())),
	}
	all = t.answerAttributes(all, r)
	if t.method != "" {
		all = append(all,
			semconv.RPCSystemNameGRPC, semconv.RPCMethod(t.method),
			semconv.RPCResponseStatusCode(code.Code(reason.Code()).String()))
	}
	if status, err := strconv.Atoi(answered(r)); err == nil {
		all = append(all, semconv.HTTPResponseStatusCode(status))
	}
	if failed(reason) {
		all = append(all, attribute.String("error.type", reason.String()))
	}
	return all
}

// answered returns the status that the caller got with the header.
func answered(r *streamv1.Record) string {
	for _, e := range r.GetEvents() {
		if Kind(e.GetKind()) == SendHeader && Side(e.GetSide()) == Up {
			return e.GetCode()
		}
	}
	return ""
}

func eventAttributes(e *streamv1.Event) []attribute.KeyValue {
	all := []attribute.KeyValue{attribute.String("whence.side", Side(e.GetSide()).String())}
	if kind := Kind(e.GetKind()); kind == Send || kind == Recv {
		return append(all,
			attribute.Int64("whence.index", int64(e.GetIndex())),
			attribute.Int64("whence.bytes", int64(e.GetBytes())),
			attribute.Int64("whence.tokens", int64(e.GetTokens())))
	}
	if e.GetCode() != "" {
		all = append(all, attribute.String("whence.code", e.GetCode()))
	}
	if e.GetReason() != streamv1.Reason_REASON_UNSPECIFIED {
		all = append(all, attribute.String("whence.reason", streamerr.Reason(e.GetReason()).String()))
	}
	if len(e.GetPath()) > 0 {
		all = append(all, attribute.String("whence.path", streamerr.Path(e.GetPath()).String()))
	}
	return all
}

// fixedIDs returns the ids that a stream got at its beginning, because the hop below already knows
// them.
type fixedIDs struct{}

type selfKey struct{}

// NewIDs implements the SDK's IDGenerator.
func (fixedIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	self, _ := ctx.Value(selfKey{}).(Parent)
	return self.trace, self.span
}

// NewSpanID implements the SDK's IDGenerator.
func (fixedIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	self, _ := ctx.Value(selfKey{}).(Parent)
	return self.span
}
