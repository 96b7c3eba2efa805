package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/trace"

	"github.com/whence-dev/whence/contrib/kitexstream/telemetry"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

var served = telemetry.Method{Side: telemetry.Server, System: telemetry.GRPC, Name: "prices.Prices/Watch"}

func TestPrometheusSeesLiveAndEndedStreams(t *testing.T) {
	r := telemetry.New(telemetry.Config{Name: "exchange"})
	registry := prometheus.NewPedanticRegistry()
	if err := r.Register(registry); err != nil {
		t.Fatal(err)
	}
	done := r.Begin(t.Context(), telemetry.Call{Method: served})
	done.Received(10)
	done.Sent(5)
	done.Sent(6)
	for _, e := range []*streamerr.Error{
		telemetry.Completed(),
		{Reason: streamerr.PeerReset, Path: streamerr.NewPath("shop")},
		{Reason: streamerr.Overloaded, Path: streamerr.NewPath("leaf", "exchange")},
		{Reason: streamerr.Overloaded, Path: streamerr.NewPath("leaf", "below")},
	} {
		if done.Ending() != nil {
			t.Error("the stream had ended")
		}
		done.End(e)
		done.End(&streamerr.Error{Reason: streamerr.Internal}) // does not count
		if got := done.Ending(); got.Reason != e.Reason || got.Path[len(got.Path)-1] != "exchange" {
			t.Errorf("the ending is %v", got)
		}
		done = r.Begin(t.Context(), telemetry.Call{Method: served})
	}
	done.Sent(7)
	got := scrape(registry)
	for _, want := range []string{
		`stream_bytes_total{direction="recv",method="prices.Prices/Watch",side="server",system="grpc"} 10`,
		`stream_bytes_total{direction="send",method="prices.Prices/Watch",side="server",system="grpc"} 18`,
		`stream_endings_total{method="prices.Prices/Watch",origin="beyond",reason="overloaded",side="server",system="grpc"} 1`,
		`stream_endings_total{method="prices.Prices/Watch",origin="peer",reason="overloaded",side="server",system="grpc"} 1`,
		`stream_endings_total{method="prices.Prices/Watch",origin="peer",reason="peer_reset",side="server",system="grpc"} 1`,
		`stream_endings_total{method="prices.Prices/Watch",origin="self",reason="completed",side="server",system="grpc"} 1`,
		`stream_live{method="prices.Prices/Watch",side="server",system="grpc"} 1`,
		`stream_messages_total{direction="recv",method="prices.Prices/Watch",side="server",system="grpc"} 1`,
		`stream_messages_total{direction="send",method="prices.Prices/Watch",side="server",system="grpc"} 3`,
		`stream_message_gap_seconds_count{direction="send",method="prices.Prices/Watch",side="server",system="grpc"} 1`,
		`stream_first_message_seconds_count{method="prices.Prices/Watch",side="server",system="grpc"} 1`,
		`stream_duration_seconds_count{method="prices.Prices/Watch",side="server",system="grpc"} 4`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("a scrape lacks %s:\n%s", want, got)
		}
	}
}

func scrape(registry *prometheus.Registry) string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	return w.Body.String()
}

func TestUnboundedNamesShareALabel(t *testing.T) {
	r := telemetry.New(telemetry.Config{Name: "exchange"})
	registry := prometheus.NewPedanticRegistry()
	if err := r.Register(registry); err != nil {
		t.Fatal(err)
	}
	for n := range 500 {
		m := served
		m.Name = fmt.Sprint("made up ", n)
		r.Begin(t.Context(), telemetry.Call{Method: m}).End(telemetry.Completed())
	}
	for n := range 100 { // peers may send reasons of a later version, or any number
		r.Begin(t.Context(), telemetry.Call{Method: served}).End(&streamerr.Error{Reason: streamerr.Reason(1000 + n)})
	}
	got := scrape(registry)
	if n := strings.Count(got, `reason="other"`); n != 1 || strings.Contains(got, "reason_10") {
		t.Errorf("%d series have unknown reasons, not one", n)
	}
	if n := strings.Count(got, "\nstream_live{"); n != 201 {
		t.Errorf("%d methods have series, not 200 and the series of all other methods", n)
	}
	if want := `stream_endings_total{method="other",origin="self",reason="completed",side="server",system="grpc"} 300`; !strings.Contains(got, want+"\n") {
		t.Errorf("a scrape lacks %s", want)
	}
}

func TestACauseSurvivesWrappedContexts(t *testing.T) {
	r := telemetry.New(telemetry.Config{Name: "exchange"})
	base, cancel := context.WithCancel(t.Context())
	s := r.Begin(base, telemetry.Call{Method: served, Peer: "shop", Stopped: func() *streamerr.Error {
		if base.Err() == nil {
			return nil
		}
		return &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("user", "shop")}
	}})
	ctx, release := context.WithCancelCause(telemetry.With(base, s))
	defer release(nil)
	if e := telemetry.Cause(ctx); e != nil {
		t.Errorf("the context is not done, and its cause is %v", e)
	}
	cancel()
	if e := telemetry.Cause(ctx); e == nil || e.Path.String() != "user > shop > exchange" {
		t.Errorf("the cause is %v", e)
	}
	mine, stop := context.WithCancelCause(t.Context())
	stop(streamerr.New(streamerr.UserStop, "enough"))
	if e := telemetry.Cause(mine); e == nil || e.Reason != streamerr.UserStop {
		t.Errorf("the cause is %v", e)
	}
}

func TestAnErrorIsRecognizedAsTheEndingOfACall(t *testing.T) {
	r := telemetry.New(telemetry.Config{Name: "exchange"})
	s := r.Begin(t.Context(), telemetry.Call{Method: served})
	failed := errors.New("it failed")
	s.Below(failed, &streamerr.Error{Reason: streamerr.Overloaded, Path: streamerr.NewPath("leaf", "exchange")})
	for range 7 {
		s.Below(errors.New("another"), telemetry.Completed())
	}
	if e := s.Known(fmt.Errorf("leaf: %w", failed)); e == nil || e.Path.Origin() != "leaf" {
		t.Errorf("the error has the ending %v", e)
	}
	s.Below(errors.New("one more"), telemetry.Completed())
	if e := s.Known(failed); e != nil {
		t.Errorf("more than 8 endings are kept: %v", e)
	}
}

// BenchmarkMessage measures the cost of a message, with metrics and a trace.
func BenchmarkMessage(b *testing.B) {
	s := telemetry.New(telemetry.Config{Name: "exchange"}).Begin(b.Context(), telemetry.Call{Method: served})
	b.ReportAllocs()
	for b.Loop() {
		s.Sent(100)
	}
}

// BenchmarkStream measures the cost of a stream of one message that is not exported.
func BenchmarkStream(b *testing.B) {
	r := telemetry.New(telemetry.Config{Name: "exchange"})
	b.ReportAllocs()
	for b.Loop() {
		s := r.Begin(b.Context(), telemetry.Call{Method: served})
		s.Sent(100)
		s.End(telemetry.Completed())
	}
}

// TestASpanOfTheApplicationIsTheParent: another tracer's span in the context takes precedence over
// the caller's headers, and the handler still sees that span.
func TestASpanOfTheApplicationIsTheParent(t *testing.T) {
	r := telemetry.New(telemetry.Config{Name: "exchange"})
	own := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	ctx := trace.ContextWithSpanContext(t.Context(), own)
	s := r.Begin(ctx, telemetry.Call{Method: served, Parent: streamtrace.ParseParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "")})
	if got := trace.SpanContextFromContext(telemetry.With(ctx, s)); !got.Equal(own) {
		t.Errorf("the handler's span is %v", got.SpanID())
	}
	var headers []string
	child := r.Begin(telemetry.With(t.Context(), s), telemetry.Call{Method: telemetry.Method{Side: telemetry.Client}})
	child.Headers(func(key, value string) { headers = append(headers, key+": "+value) })
	if strings.Contains(strings.Join(headers, "\n"), "\ntraceparent: ") || !strings.Contains(strings.Join(headers, "\n"), "whence-traceparent: 00-01000000000000000000000000000000-") {
		t.Errorf("a call of the handler has the headers %q", headers)
	}
}
