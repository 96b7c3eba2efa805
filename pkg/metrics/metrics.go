// Package metrics counts what the streams of a hop do, and shows it to Prometheus and, if asked, to an OTLP collector.
//
// All hops have the same instruments, told apart by the label hop. Every other label is a word of an enum or of the
// configuration; nothing that a request says becomes one. A Metrics, a Hop and a Stream that are nil take everything and
// keep nothing, so that nobody asks whether metrics are on.
//
// What happens once per stream is recorded by instruments of OpenTelemetry. Messages are counted by the
// Tally of their stream, which costs almost nothing. A collection sums the tallies of the live streams,
// so its figures are up to date, and no message waits for a message of another stream.
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

// A Metrics is what one process measures. All methods are safe for concurrent use.
type Metrics struct {
	registry    *prometheus.Registry
	provider    *sdk.MeterProvider
	instruments *instruments
	paused      atomic.Bool

	mu   sync.Mutex // guards the following field
	hops []*Hop
}

// scope is who measures.
const scope = "github.com/whence-dev/whence/pkg/metrics"

// runtimeMetrics matches the metrics of Go's runtime that are shown beside the collector's own: how long goroutines wait for a
// processor, and how long garbage collection stops the process.
var runtimeMetrics = regexp.MustCompile(`^/sched/(latencies|pauses/total/gc):seconds$`)

// New returns the metrics of a process. push are further readers' makers, each given the source of what is counted per
// message. The caller closes it.
func New(service string, push ...func(sdk.Producer) (sdk.Reader, error)) (*Metrics, error) {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.GoRuntimeMetricsRule{Matcher: runtimeMetrics})),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	pull, err := otelprom.New(
		otelprom.WithRegisterer(m.registry),
		otelprom.WithProducer(producer{m}),
		otelprom.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes),
		otelprom.WithoutScopeInfo(), // there is but one scope
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
	m.provider = sdk.NewMeterProvider(options...)
	if m.instruments, err = newInstruments(m.provider.Meter(scope)); err != nil {
		return nil, errors.Join(err, m.provider.Shutdown(context.Background()))
	}
	return m, nil
}

// Close pushes what has not been pushed yet, within ctx, and ends the readers.
func (m *Metrics) Close(ctx context.Context) error { return m.provider.Shutdown(ctx) }

// maxScrapes is how many scrapes are answered at once; further ones get 503.
const maxScrapes = 4

// Handler answers scrapes. OpenMetrics is spoken to those who ask for it, because only there exemplars have a place.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes})
}

// Hop returns the metrics of a hop of this process. Its name is the label hop.
func (m *Metrics) Hop(name string, op Operation) *Hop {
	if m == nil {
		return nil
	}
	h := newHop(m.instruments, &m.paused, name, op)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hops = append(m.hops, h)
	return h
}

// Recorded counts usage records that were written, or lost. sink is a word of an enum.
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

// Pause has streams that begin from now on not be measured, until it is ended. It is there to compare the one with the other on
// the same servers.
func (m *Metrics) Pause(on bool) { m.paused.Store(on) }

func (m *Metrics) all() []*Hop {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.hops)
}
