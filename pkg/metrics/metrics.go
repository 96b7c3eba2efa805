// Package metrics has the metrics of a hop's streams, and exports them to Prometheus and, if
// configured, to an OTLP collector.
//
// All hops have the same metrics, distinguished by the label hop. The value of every other label is
// a word of an enum or of the configuration, never data of a request. A nil Metrics, Hop or Stream
// accepts all calls and records nothing, so that callers need not check whether metrics are
// enabled.
//
// Instruments of OpenTelemetry record the events that happen once per stream. The Tally of a stream
// counts its messages, which costs almost nothing. A collection sums the tallies of the live
// streams, so its figures are up to date, and no message waits for a message of another stream.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// A Metrics has the metrics of one process. All methods are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	// shutdown is the method of the SDK's MeterProvider. The MeterProvider itself is no field, because
	// every package that knows a type with such a field compiles the SDK's generic aggregations anew,
	// which takes 1.7 s of CPU time in each of twelve packages.
	shutdown    func(context.Context) error
	instruments *instruments
	paused      atomic.Bool
	pool        pool

	mu   sync.Mutex // guards the following field
	hops []*Hop
}

// scope is the instrumentation scope.
const scope = "github.com/whence-dev/whence/pkg/metrics"

// runtimeMetrics matches the metrics of Go's runtime that are exported in addition to the
// collector's own: how long goroutines wait for a processor, and how long garbage collection stops
// the process.
var runtimeMetrics = regexp.MustCompile(`^/sched/(latencies|pauses/total/gc):seconds$`)

// New returns the metrics of a process. push has the constructors of further readers, which get the
// producer of the metrics per message. The caller must call Close.
func New(service string, push ...func(sdk.Producer) (sdk.Reader, error)) (*Metrics, error) {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.pool.hops = m.all
	m.registry.MustRegister(
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.GoRuntimeMetricsRule{Matcher: runtimeMetrics})),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	pull, err := otelprom.New(
		otelprom.WithRegisterer(m.registry),
		otelprom.WithProducer(producer{m}),
		otelprom.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes),
		otelprom.WithoutScopeInfo(), // there is only one scope
	)
	if err != nil {
		return nil, fmt.Errorf("prometheus exporter: %w", err)
	}
	options := []sdk.Option{
		sdk.WithReader(pull),
		sdk.WithResource(resource.NewSchemaless(semconv.ServiceName(service))),
	}
	for _, reader := range push {
		r, err := reader(producer{m})
		if err != nil {
			return nil, err
		}
		options = append(options, sdk.WithReader(r))
	}
	provider := sdk.NewMeterProvider(options...)
	m.shutdown = provider.Shutdown
	if m.instruments, err = newInstruments(provider.Meter(scope)); err != nil {
		return nil, errors.Join(err, m.shutdown(context.Background()))
	}
	return m, nil
}

// Close pushes the remaining metrics within ctx, and shuts down the readers.
func (m *Metrics) Close(ctx context.Context) error { return m.shutdown(ctx) }

// maxScrapes is the number of concurrent scrapes; further scrapes get status 503.
const maxScrapes = 4

// Handler answers scrapes, also under vLLM's names (aliased). It uses OpenMetrics for scrapers that ask for it, because only
// OpenMetrics has exemplars.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(aliaser{m.registry, &m.pool}, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes})
}

// Hop returns the metrics of a hop of this process. The label hop has its name.
func (m *Metrics) Hop(name string, op Operation) *Hop {
	if m == nil {
		return nil
	}
	h := newHop(m, name, op)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hops = append(m.hops, h)
	return h
}

// Recorded counts usage records that were written or lost. sink is a word of an enum.
func (m *Metrics) Recorded(sink string, lost bool, n int) {
	if m == nil {
		return
	}
	result := "written"
	if lost {
		result = "lost"
	}
	m.instruments.recorded.Add(context.Background(), int64(n), metric.WithAttributes(attribute.String("sink", sink), attribute.String("result", result)))
}

// Pause makes the metrics ignore streams that begin while on is true. It serves to compare the cost
// with and without metrics on the same servers.
func (m *Metrics) Pause(on bool) { m.paused.Store(on) }

func (m *Metrics) all() []*Hop {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.hops)
}
