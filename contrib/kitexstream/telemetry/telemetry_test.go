package telemetry_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
	"github.com/whence-dev/whence/contrib/kitexstream/telemetry"
)

var served = monitor.Method{Side: monitor.Server, System: monitor.GRPC, Name: "prices.Prices/Watch"}

// A lastingExporter keeps its spans when it is shut down.
type lastingExporter struct{ *tracetest.InMemoryExporter }

// Shutdown implements the SDK's SpanExporter.
func (lastingExporter) Shutdown(context.Context) error { return nil }

// exported returns the spans of the streams that run begins and ends.
func exported(t *testing.T, run func(m *monitor.Monitor)) tracetest.SpanStubs {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	m := monitor.New(monitor.Config{Name: "exchange", ErrorTexts: true, Span: telemetry.Span, Exporter: telemetry.Spans("exchange", lastingExporter{spans})})
	run(m)
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return spans.GetSpans()
}

func attributes(s *tracetest.SpanStub) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

func TestASpanHasTheRecordOfItsStream(t *testing.T) {
	var header string
	spans := exported(t, func(m *monitor.Monitor) {
		s := m.Begin(t.Context(), monitor.Call{
			Method: served, Peer: "shop", Parent: monitor.ParseParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=x"),
		})
		s.Headers(func(key, value string) {
			if key == "whence-traceparent" {
				header = value
			}
		})
		s.Note(monitor.RecvHeader, "", &streamerr.Error{Path: streamerr.NewPath("shop")})
		s.Received(7)
		s.Sent(5)
		s.Sent(6)
		s.Note(monitor.RecvRst, monitor.CodeCancel, &streamerr.Error{Reason: streamerr.PeerReset, Path: streamerr.NewPath("shop")})
		s.Answered(404)
		s.End(&streamerr.Error{Reason: streamerr.Internal, Cause: errors.New("the feed broke")})
	})
	if len(spans) != 1 {
		t.Fatalf("there are %d spans, not 1", len(spans))
	}
	span := &spans[0]
	if span.Name != "prices.Prices/Watch" || span.SpanKind != trace.SpanKindServer || span.Status.Code != codes.Error || span.Status.Description != "the feed broke" {
		t.Errorf("the span is %+v", span)
	}
	if got := "00-" + span.SpanContext.TraceID().String() + "-" + span.SpanContext.SpanID().String(); !strings.HasPrefix(header, got) || span.Parent.SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("the span is %s below %s, and its callees got %s", got, span.Parent.SpanID(), header)
	}
	has := attributes(span)
	for key, want := range map[string]string{
		"whence.hop": "exchange", "whence.reason": "internal", "whence.origin": "exchange", "whence.path": "exchange", "whence.peer": "shop",
		"whence.messages.received": "1", "whence.messages.sent": "2", "whence.bytes.sent": "11", "whence.biz_status": "404", "error.type": "internal",
		"rpc.system.name": "grpc", "rpc.method": "prices.Prices/Watch",
	} {
		if has[key] != want {
			t.Errorf("%s is %q, not %q", key, has[key], want)
		}
	}
	for _, key := range []string{"whence.time_to_first_message", "whence.longest_gap.sent", "whence.messages.sent_per_second"} {
		if has[key] == "" {
			t.Errorf("the span has no %s", key)
		}
	}
	var events []string
	for _, e := range span.Events {
		text := e.Name
		for _, a := range e.Attributes {
			text += " " + strings.TrimPrefix(string(a.Key), "whence.") + "=" + a.Value.String()
		}
		events = append(events, text)
	}
	if got, want := strings.Join(events, ", "), "recv_header path=shop, recv index=0 bytes=7, send index=0 bytes=5, send index=1 bytes=6, recv_rst code=CANCEL reason=peer_reset path=shop"; got != want {
		t.Errorf("the events are %s, not %s", got, want)
	}
}

// TestTheSpansOfTheApplicationAreUnaffected: a sampler that follows the parent sees no parent of the
// monitor, and a span of the application is the parent of its streams.
func TestTheSpansOfTheApplicationAreUnaffected(t *testing.T) {
	own := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())), sdktrace.WithSyncer(own))
	spans := exported(t, func(m *monitor.Monitor) {
		s := m.Begin(t.Context(), monitor.Call{Method: served})
		ctx, span := provider.Tracer("application").Start(monitor.With(t.Context(), s), "work")
		below := m.Begin(ctx, monitor.Call{Method: monitor.Method{Side: monitor.Client, System: monitor.GRPC, Name: "below"}})
		below.End(&streamerr.Error{Reason: streamerr.Overloaded})
		span.End()
		s.End(&streamerr.Error{Reason: streamerr.Overloaded})
	})
	work := own.GetSpans()
	if len(work) != 1 || work[0].Parent.IsValid() {
		t.Fatalf("the application's spans are %v", work)
	}
	for i := range spans {
		if s := &spans[i]; s.SpanKind == trace.SpanKindClient && s.Parent.SpanID() != work[0].SpanContext.SpanID() {
			t.Errorf("the call's parent is %s, not the application's span", s.Parent.SpanID())
		}
	}
}

func TestPrometheusSeesLiveAndEndedStreams(t *testing.T) {
	m := monitor.New(monitor.Config{Name: "exchange"})
	registry := prometheus.NewPedanticRegistry()
	if err := telemetry.Register(m, registry); err != nil {
		t.Fatal(err)
	}
	s := m.Begin(t.Context(), monitor.Call{Method: served})
	s.Received(10)
	s.Sent(5)
	s.Sent(6)
	s.End(&streamerr.Error{Reason: streamerr.Overloaded, Path: streamerr.NewPath("leaf", "below")})
	m.Begin(t.Context(), monitor.Call{Method: served}).Sent(7)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	for _, want := range []string{
		`stream_bytes_total{direction="recv",method="prices.Prices/Watch",side="server",system="grpc"} 10`,
		`stream_bytes_total{direction="send",method="prices.Prices/Watch",side="server",system="grpc"} 18`,
		`stream_endings_total{method="prices.Prices/Watch",origin="beyond",reason="overloaded",side="server",system="grpc"} 1`,
		`stream_live{method="prices.Prices/Watch",side="server",system="grpc"} 1`,
		`stream_messages_total{direction="recv",method="prices.Prices/Watch",side="server",system="grpc"} 1`,
		`stream_messages_total{direction="send",method="prices.Prices/Watch",side="server",system="grpc"} 3`,
		`stream_message_gap_seconds_count{direction="send",method="prices.Prices/Watch",side="server",system="grpc"} 1`,
		`stream_first_message_seconds_count{method="prices.Prices/Watch",side="server",system="grpc"} 1`,
		`stream_duration_seconds_count{method="prices.Prices/Watch",side="server",system="grpc"} 1`,
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("a scrape lacks %s:\n%s", want, w.Body)
		}
	}
}
