// Package telemetry exports the records and figures of package monitor to OpenTelemetry and
// Prometheus. It is a module of its own: a service that needs neither gets the modules of neither.
//
//	m := monitor.New(monitor.Config{Name: "exchange", Exporter: telemetry.Spans("exchange", exporters...), Span: telemetry.Span})
//	telemetry.Register(m, registry)
//
// A span is made when its stream ends, from the stream's record: until then it costs nothing, and it
// is known then whether to export the stream.
package telemetry

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// scope names this package in spans and metrics.
const scope = "github.com/whence-dev/whence/contrib/kitexstream/telemetry"

// Span returns the span of a context, for Config.Span of a monitor.
func Span(ctx context.Context) monitor.Parent {
	sc := trace.SpanContextFromContext(ctx)
	return monitor.Parent{Trace: sc.TraceID(), Span: sc.SpanID(), Flags: byte(sc.TraceFlags()), State: sc.TraceState().String()}
}

// Spans returns an exporter of a monitor that makes a span of each record, and exports the spans in
// the background and in batches. service is their service.name.
func Spans(service string, exporters ...sdktrace.SpanExporter) monitor.Exporter {
	limits := sdktrace.NewSpanLimits()
	limits.EventCountLimit = -1 // a record bounds its events
	options := []sdktrace.TracerProviderOption{
		sdktrace.WithResource(resource.NewSchemaless(semconv.ServiceName(service))),
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // the monitor has made the choice
		sdktrace.WithIDGenerator(fixedIDs{}),
		sdktrace.WithRawSpanLimits(limits),
	}
	for _, e := range exporters {
		options = append(options, sdktrace.WithBatcher(e)) // the batcher drops spans rather than block a stream
	}
	provider := sdktrace.NewTracerProvider(options...)
	return &spans{provider.Tracer(scope), provider.Shutdown}
}

type spans struct {
	tracer   trace.Tracer
	shutdown func(context.Context) error
}

// Close implements monitor.Exporter.
func (s *spans) Close(ctx context.Context) error { return s.shutdown(ctx) }

// Export implements monitor.Exporter.
func (s *spans) Export(r *monitor.Record) {
	ctx := context.WithValue(context.Background(), selfKey{}, r.Self)
	if r.Parent.Valid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, spanContext(r.Parent))
	}
	kind := trace.SpanKindServer
	if r.Side == monitor.Client {
		kind = trace.SpanKindClient
	}
	_, span := s.tracer.Start(ctx, strings.TrimPrefix(r.Name, "/"), trace.WithSpanKind(kind), trace.WithTimestamp(r.Began), trace.WithAttributes(attributes(r)...))
	for i := range r.Events {
		e := &r.Events[i]
		span.AddEvent(string(e.Kind), trace.WithTimestamp(r.Began.Add(e.At)), trace.WithAttributes(eventAttributes(e)...))
	}
	if r.Failed() {
		span.SetStatus(codes.Error, r.Message)
	}
	span.End(trace.WithTimestamp(r.Ended))
}

func spanContext(p monitor.Parent) trace.SpanContext {
	state, _ := trace.ParseTraceState(p.State) // a state that cannot be parsed is left out
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: p.Trace, SpanID: p.Span, TraceFlags: trace.TraceFlags(p.Flags), TraceState: state, Remote: true})
}

func attributes(r *monitor.Record) []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("whence.hop", r.Hop),
		attribute.String("whence.reason", r.Reason.String()),
		attribute.String("whence.origin", r.Path.Origin()),
		attribute.String("whence.path", r.Path.String()),
		attribute.String("whence.peer", r.Peer),
		semconv.RPCSystemNameKey.String(r.System), semconv.RPCMethod(r.Name),
	}
	took := r.Ended.Sub(r.Began).Seconds()
	for direction, t := range map[string]*monitor.Traffic{"received": &r.Received, "sent": &r.Sent} {
		all = append(all,
			attribute.Int64("whence.messages."+direction, int64(t.Messages)),
			attribute.Int64("whence.bytes."+direction, int64(t.Bytes)))
		if took > 0 {
			all = append(all, attribute.Float64("whence.messages."+direction+"_per_second", float64(t.Messages)/took))
		}
		all = appendTime(all, "whence.longest_gap."+direction, t.LongestGap)
	}
	all = appendTime(all, "whence.time_to_first_message", r.First())
	if r.BizStatus != nil {
		all = append(all, attribute.Int64("whence.biz_status", int64(*r.BizStatus)))
	}
	if r.Failed() {
		all = append(all, attribute.String("error.type", r.Reason.String()))
	}
	return all
}

// appendTime appends a time in seconds, unless it is 0.
func appendTime(all []attribute.KeyValue, name string, d time.Duration) []attribute.KeyValue {
	if d == 0 {
		return all
	}
	return append(all, attribute.Float64(name, d.Seconds()))
}

func eventAttributes(e *monitor.Event) (all []attribute.KeyValue) {
	if e.IsMessage() {
		return []attribute.KeyValue{attribute.Int64("whence.index", int64(e.Index)), attribute.Int64("whence.bytes", int64(e.Bytes))}
	}
	if e.Code != "" {
		all = append(all, attribute.String("whence.code", e.Code))
	}
	if e.Reason != streamerr.Unspecified {
		all = append(all, attribute.String("whence.reason", e.Reason.String()))
	}
	if len(e.Path) > 0 {
		all = append(all, attribute.String("whence.path", e.Path.String()))
	}
	return all
}

// fixedIDs returns the ids that a stream got at its beginning, because the callee already knows them.
type fixedIDs struct{}

type selfKey struct{}

// NewIDs implements the SDK's IDGenerator.
func (fixedIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	self, _ := ctx.Value(selfKey{}).(monitor.Parent)
	return self.Trace, self.Span
}

// NewSpanID implements the SDK's IDGenerator.
func (fixedIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	self, _ := ctx.Value(selfKey{}).(monitor.Parent)
	return self.Span
}
