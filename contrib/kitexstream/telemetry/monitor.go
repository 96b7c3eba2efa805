// Package telemetry measures and traces the streams of any service, whatever carries them.
//
// A Monitor belongs to a process. A Stream is one side of one stream: the suite of a framework begins it, tells it each message,
// header, reset and trailer, and ends it with a typed cause and a path. The Monitor shows OpenTelemetry and Prometheus counts,
// first-message times, gaps and endings of all streams, and exports the span of a stream when the stream has ended: always if it
// was broken or slow, else by a ratio of trace ids.
//
// A message waits for no other stream, and costs one look at the clock and no allocation. What a stream keeps is bounded.
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
	// Messages is how many of the first messages of a stream a span has in each direction, and how many of the last. 0 is
	// streamtrace.DefaultMessages, and a negative number none.
	Messages int
	// Ratio is the part of the completed streams that are exported, 0 to 1. Broken streams always are.
	Ratio float64
	// SlowFirst and SlowGap export completed streams, too, whose first message came later, or which had a longer gap between two
	// messages; 0 is off. They look at messages to the caller on servers, and from the callee on clients.
	SlowFirst, SlowGap time.Duration
	// Exporters get the spans, in the background and in batches.
	Exporters []sdktrace.SpanExporter
	// Log gets one line for each stream that did not complete; nil for none.
	Log *slog.Logger
}

// A Monitor measures and traces the streams of a process. All methods are safe for concurrent use.
type Monitor struct {
	config Config
	tracer *streamtrace.Tracer
	flush  func(context.Context) error

	mu     sync.Mutex // guards the following fields
	series map[Method]*series
	live   int
	idle   chan struct{} // closed when live becomes 0; nil while no goroutine waits for that
}

// New returns a monitor. The caller closes it.
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

// Close waits for the streams that run, and exports the spans that have not been exported yet, both within ctx. Streams that end
// later are not exported.
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

// ended counts a stream that has ended.
func (r *Monitor) ended() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live--
	if r.live == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// Register shows the metrics to Prometheus.
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
	sdkmetric.NewMeterProvider(sdkmetric.WithReader(pull)) // which a reader needs to be asked
	return nil
}
