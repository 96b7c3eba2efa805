package observe_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	colmetricpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/observe"
	"github.com/whence-dev/whence/internal/otlp"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
	"github.com/whence-dev/whence/pkg/tally"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A collector counts the metrics and spans that it receives.
type collector struct {
	colmetricpb.UnimplementedMetricsServiceServer
	spans, metrics atomic.Int32
}

func (c *collector) Export(_ context.Context, req *colmetricpb.ExportMetricsServiceRequest) (*colmetricpb.ExportMetricsServiceResponse, error) {
	for _, resource := range req.GetResourceMetrics() {
		for _, scope := range resource.GetScopeMetrics() {
			c.metrics.Add(int32(len(scope.GetMetrics())))
		}
	}
	return &colmetricpb.ExportMetricsServiceResponse{}, nil
}

// A tracer is the other half of a collector, because both halves have a method Export.
type tracer struct {
	coltracepb.UnimplementedTraceServiceServer
	*collector
}

func (t tracer) Export(_ context.Context, req *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	for _, resource := range req.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			t.spans.Add(int32(len(scope.GetSpans())))
		}
	}
	return &coltracepb.ExportTraceServiceResponse{}, nil
}

func (c *collector) overGRPC(t *testing.T) otlp.Collector {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	colmetricpb.RegisterMetricsServiceServer(s, c)
	coltracepb.RegisterTraceServiceServer(s, tracer{collector: c})
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Stop()
		<-served
	})
	return otlp.Collector("grpc://" + ln.Addr().String())
}

func (c *collector) overHTTP(t *testing.T) otlp.Collector {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/v1/metrics":
			c.metrics.Add(1)
		case "/v1/traces":
			c.spans.Add(1)
		}
	}))
	t.Cleanup(s.Close)
	return otlp.Collector("http://" + s.Listener.Addr().String())
}

// TestCollectorGetsBothBeforeTheEnd: metrics and spans, over both protocols, also of a stream that
// ended just before the process.
func TestCollectorGetsBothBeforeTheEnd(t *testing.T) {
	for name, over := range map[string]func(*collector, *testing.T) otlp.Collector{"grpc": (*collector).overGRPC, "http": (*collector).overHTTP} {
		t.Run(name, func(t *testing.T) {
			got := &collector{}
			c := observe.Config{OTLP: over(got, t)}
			if err := c.Run("whence", slog.New(slog.DiscardHandler), func(out observe.Outputs) error {
				m, traces := out.Metrics, out.Traces
				count := tally.New(time.Now())
				s, trace := m.Hop("h", metrics.Chat).Begin(count), traces.Begin(count, streamtrace.Parent{}, "")
				count.Received(1, nil)
				s.End(metrics.Ending{At: time.Now(), Reason: streamerr.Internal, Origin: "h"})
				traces.Ended(trace, streamerr.Internal, func() *streamv1.Record { return &streamv1.Record{} })
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if got.spans.Load() != 1 || got.metrics.Load() == 0 {
				t.Errorf("%d spans, %d metrics", got.spans.Load(), got.metrics.Load())
			}
		})
	}
}

func TestWrongAddressIsReported(t *testing.T) {
	c := observe.Config{OTLP: "ftp://host:1"}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "--otlp") {
		t.Error(err)
	}
}
