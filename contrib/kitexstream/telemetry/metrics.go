package telemetry

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
)

var processStarted = time.Now()

// Register registers the metrics of m with Prometheus.
func Register(m *monitor.Monitor, to prometheus.Registerer) error {
	pull, err := otelprom.New(
		otelprom.WithRegisterer(to),
		otelprom.WithProducer(Producer(m)),
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

// Producer returns the metrics of m for a reader of OpenTelemetry: pass it with
// sdkmetric.WithProducer. The figures include the messages of live streams.
func Producer(m *monitor.Monitor) sdkmetric.Producer { return producer{m} }

type producer struct{ monitor *monitor.Monitor }

// Produce implements the SDK's Producer.
func (p producer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	figures := p.monitor.Figures()
	if len(figures) == 0 {
		return nil, nil
	}
	all := points{now: time.Now()}
	for i := range figures {
		all.add(&figures[i])
	}
	return []metricdata.ScopeMetrics{{Scope: instrumentation.Scope{Name: scope}, Metrics: []metricdata.Metrics{
		sum("stream.live", "{stream}", "Live streams.", all.live, false),
		sum("stream.endings", "{stream}", "Ended streams by the reason and the origin of the ending. Each stream counts once.", all.endings, true),
		sum("stream.messages", "{message}", "Messages received (recv) and sent (send), live streams included.", all.messages, true),
		sum("stream.bytes", "By", "Bytes of messages without framing.", all.bytes, true),
		times("stream.message.gap", "Time between two messages of a stream in one direction.", all.gaps),
		times("stream.first_message", "Time from the beginning of a stream to its first message: to the caller on servers, from the callee on clients.", all.first),
		times("stream.duration", "Time from the beginning of a stream to its ending.", all.duration),
	}}}, nil
}

func sum(name, unit, help string, points []metricdata.DataPoint[int64], monotonic bool) metricdata.Metrics {
	return metricdata.Metrics{Name: name, Unit: unit, Description: help, Data: metricdata.Sum[int64]{
		DataPoints: points, Temporality: metricdata.CumulativeTemporality, IsMonotonic: monotonic,
	}}
}

func times(name, help string, points []metricdata.HistogramDataPoint[float64]) metricdata.Metrics {
	return metricdata.Metrics{Name: name, Unit: "s", Description: help, Data: metricdata.Histogram[float64]{
		DataPoints: points, Temporality: metricdata.CumulativeTemporality,
	}}
}

// points are the data points of all methods at one time.
type points struct {
	now                            time.Time
	live, endings, messages, bytes []metricdata.DataPoint[int64]
	gaps, first, duration          []metricdata.HistogramDataPoint[float64]
}

func (p *points) add(f *monitor.Figures) {
	labels := []attribute.KeyValue{
		attribute.String("side", string(f.Side)), attribute.String("system", f.System), attribute.String("method", f.Name),
	}
	with := func(more ...attribute.KeyValue) attribute.Set {
		return attribute.NewSet(append(slices.Clip(labels), more...)...)
	}
	p.live = append(p.live, p.point(uint64(f.Live), with()))
	for _, e := range f.Endings {
		p.endings = append(p.endings, p.point(e.N, with(attribute.String("reason", e.Reason), attribute.String("origin", e.Origin))))
	}
	for direction, m := range map[string]*monitor.Messages{"recv": &f.Received, "send": &f.Sent} {
		set := with(attribute.String("direction", direction))
		p.messages = append(p.messages, p.point(m.Messages, set))
		p.bytes = append(p.bytes, p.point(m.Bytes, set))
		p.gaps = append(p.gaps, p.histogram(&m.Gaps, set))
	}
	p.first = append(p.first, p.histogram(&f.First, with()))
	p.duration = append(p.duration, p.histogram(&f.Duration, with()))
}

func (p *points) point(n uint64, labels attribute.Set) metricdata.DataPoint[int64] {
	return metricdata.DataPoint[int64]{Attributes: labels, StartTime: processStarted, Time: p.now, Value: int64(n)}
}

func (p *points) histogram(h *monitor.Histogram, labels attribute.Set) metricdata.HistogramDataPoint[float64] {
	point := metricdata.HistogramDataPoint[float64]{
		Attributes: labels, StartTime: processStarted, Time: p.now, Bounds: h.Bounds, BucketCounts: h.Counts, Sum: h.Sum,
	}
	for _, n := range h.Counts {
		point.Count += n
	}
	return point
}
