// Package telemetry measures and traces the streams of any service, over any transport.
//
// A Monitor belongs to a process. A Stream is one side of one stream. The suite of a framework
// begins the Stream, records each message, header, reset and trailer, and ends the Stream with a
// typed cause and a path. The Monitor exports counts, first-message times, gaps and endings to
// OpenTelemetry and Prometheus. It exports a span when a stream ends: always if the stream was
// broken or slow, otherwise by a ratio of trace ids.
//
// A message takes no lock that streams share, reads the clock once and allocates nothing. The
// events of a stream are bounded: the first and the last messages, and the first and the last 16
// headers, resets and trailers.
package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/otlptranslator"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/whence-dev/whence/pkg/streamtrace"
)

// A Config configures a Monitor. Only Name must be set.
type Config struct {
	// Name of this service in paths, such as "checkout" or "checkout/0".
	Name string
	// Messages is the number of first and of last messages that a span lists in each direction. 0
	// means streamtrace.DefaultMessages; a negative number means none.
	Messages int
	// Ratio is the fraction of completed streams to export, 0 to 1. Broken streams are always
	// exported.
	Ratio float64
	// SlowFirst and SlowGap are limits for the first message and for the gap between two messages:
	// to the caller on servers, from the callee on clients. A completed stream past a limit is
	// always exported. 0 means no limit.
	SlowFirst, SlowGap time.Duration
	// ErrorTexts adds the texts of errors to spans and to the log. Errors may quote requests and
	// secrets: the default is to export only the reason and the path.
	ErrorTexts bool
	// Exporters receive the spans, in the background and in batches.
	Exporters []sdktrace.SpanExporter
	// Log receives one line for each stream that did not complete. nil turns the log off.
	Log *slog.Logger
}

// A Monitor measures and traces the streams of a process. All methods are safe for concurrent use.
type Monitor struct {
	config Config
	tracer *streamtrace.Tracer
	flush  func(context.Context) error

	mu      sync.Mutex // guards the following fields
	series  map[Method]*series
	methods int // in series, without those named Other
	live    int
	idle    chan struct{} // closed when live becomes 0; nil while Close does not wait
}

// New returns a monitor. The caller must close it.
func New(c Config) *Monitor {
	messages := c.Messages
	switch {
	case messages == 0:
		messages = streamtrace.DefaultMessages
	case messages < 0:
		messages = 0
	}
	r := &Monitor{
		config: c,
		tracer: &streamtrace.Tracer{Messages: messages, Ratio: c.Ratio},
		flush:  func(context.Context) error { return nil },
		series: map[Method]*series{},
	}
	if len(c.Exporters) > 0 {
		r.flush = r.tracer.Export(c.Name, c.Exporters...)
	}
	return r
}

// Close waits for live streams and then exports the remaining spans, both within ctx. Streams that
// end after Close are not exported.
func (r *Monitor) Close(ctx context.Context) error {
	r.mu.Lock()
	idle := r.idle
	if idle == nil {
		idle = make(chan struct{})
		if r.live == 0 {
			close(idle)
		} else {
			r.idle = idle
		}
	}
	r.mu.Unlock()
	select {
	case <-idle:
		return r.flush(ctx)
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), r.flush(ctx))
	}
}

// ended removes one stream from the count of live streams.
func (r *Monitor) ended() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live--
	if r.live == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// Register registers the metrics with Prometheus.
func (r *Monitor) Register(to prometheus.Registerer) error {
	pull, err := otelprom.New(
		otelprom.WithRegisterer(to),
		otelprom.WithProducer(r),
		otelprom.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes),
		otelprom.WithoutScopeInfo(),
		otelprom.WithoutTargetInfo(),
	)
	if err != nil {
		return err
	}
	sdkmetric.NewMeterProvider(sdkmetric.WithReader(pull)) // a reader without a provider collects nothing
	return nil
}
