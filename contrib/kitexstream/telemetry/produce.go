package telemetry

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/whence-dev/whence/pkg/tally"
)

// scope names this package in exported metrics.
const scope = "github.com/whence-dev/whence/contrib/kitexstream/telemetry"

var processStarted = time.Now()

var _ sdkmetric.Producer = (*Monitor)(nil)

// Produce implements the SDK's Producer. Pass sdkmetric.WithProducer(monitor) to a reader of
// OpenTelemetry; Register is for Prometheus. The figures include the messages of live streams.
func (r *Monitor) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	r.mu.Lock()
	all := make([]*series, 0, len(r.series))
	for _, m := range r.series {
		all = append(all, m)
	}
	r.mu.Unlock()
	if len(all) == 0 {
		return nil, nil
	}
	p := points{now: time.Now()}
	for _, m := range all {
		p.add(m)
	}
	return []metricdata.ScopeMetrics{{Scope: instrumentation.Scope{Name: scope}, Metrics: []metricdata.Metrics{
		sum("stream.live", "{stream}", "Live streams.", p.live, false),
		sum("stream.endings", "{stream}", "Ended streams by the reason and the origin of the ending. Each stream counts once.", p.endings, true),
		sum("stream.messages", "{message}", "Messages received (recv) and sent (send), live streams included.", p.messages, true),
		sum("stream.bytes", "By", "Bytes of messages without framing.", p.bytes, true),
		times("stream.message.gap", "Time between two messages of a stream in one direction.", p.gaps),
		times("stream.first_message", "Time from the beginning of a stream to its first message: to the caller on servers, from the callee on clients.", p.first),
		times("stream.duration", "Time from the beginning of a stream to its ending.", p.duration),
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

func (p *points) add(m *series) {
	labels := []attribute.KeyValue{
		attribute.String("side", string(m.method.Side)), attribute.String("system", m.method.System), attribute.String("method", m.method.Name),
	}
	with := func(more ...attribute.KeyValue) attribute.Set {
		return attribute.NewSet(append(slices.Clip(labels), more...)...)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	in, out := m.in, m.out
	for s := range m.live {
		figures := s.tally.Snapshot()
		in.Add(&figures.Received.Counts)
		out.Add(&figures.Sent.Counts)
	}
	p.live = append(p.live, p.point(uint64(len(m.live)), with()))
	for e, n := range m.endings {
		p.endings = append(p.endings, p.point(n, with(attribute.String("reason", e.reason), attribute.String("origin", e.origin))))
	}
	for direction, counts := range map[string]*tally.Counts{"recv": &in, "send": &out} {
		set := with(attribute.String("direction", direction))
		p.messages = append(p.messages, p.point(counts.Messages, set))
		p.bytes = append(p.bytes, p.point(counts.Bytes, set))
		p.gaps = append(p.gaps, p.histogram(&histogram{gapBounds, counts.Gaps[:], counts.GapSum.Seconds()}, set))
	}
	p.first = append(p.first, p.histogram(&m.first, with()))
	p.duration = append(p.duration, p.histogram(&m.duration, with()))
}

func (p *points) point(n uint64, labels attribute.Set) metricdata.DataPoint[int64] {
	return metricdata.DataPoint[int64]{Attributes: labels, StartTime: processStarted, Time: p.now, Value: int64(n)}
}

func (p *points) histogram(h *histogram, labels attribute.Set) metricdata.HistogramDataPoint[float64] {
	point := metricdata.HistogramDataPoint[float64]{
		Attributes: labels, StartTime: processStarted, Time: p.now,
		Bounds: h.bounds, BucketCounts: slices.Clone(h.counts), Sum: h.sum,
	}
	for _, n := range h.counts {
		point.Count += n
	}
	return point
}
