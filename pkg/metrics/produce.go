package metrics

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/whence-dev/whence/pkg/tally"
)

// A producer sums the counts of messages when metrics are collected. Instruments of OpenTelemetry
// would need a lock and a lookup for each of a message's six figures, a microsecond in all.
type producer struct{ m *Metrics }

var processStarted = time.Now()

// Directions, from the hop's point of view.
var (
	fromBelow = attribute.String("direction", "recv")
	toCaller  = attribute.String("direction", "send")
)

// Produce implements the SDK's Producer.
func (p producer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	var live, open, waiting, clients []metricdata.DataPoint[int64]
	var counted, size, tokensOf []metricdata.DataPoint[int64]
	var gaps []metricdata.HistogramDataPoint[float64]
	now := time.Now()
	point := func(n uint64, labels attribute.Set) metricdata.DataPoint[int64] {
		return metricdata.DataPoint[int64]{Attributes: labels, StartTime: processStarted, Time: now, Value: int64(n)}
	}
	for _, h := range p.m.all() {
		in, out, n := h.sum()
		live = append(live, point(uint64(n), attribute.NewSet(h.name)))
		if h.calls.served.Load() {
			open = append(open, point(uint64(max(h.calls.open.Load(), 0)), attribute.NewSet(h.name)))
			waiting = append(waiting, point(uint64(max(h.calls.waiting.Load(), 0)), attribute.NewSet(h.name)))
		}
		if h.connections.served.Load() {
			clients = append(clients, point(uint64(max(h.connections.open.Load(), 0)), attribute.NewSet(h.name)))
		}
		for _, side := range []struct {
			direction attribute.KeyValue
			*totals
		}{{fromBelow, &in}, {toCaller, &out}} {
			labels, t := attribute.NewSet(h.name, side.direction), side.totals
			counted = append(counted, point(t.Messages, labels))
			size = append(size, point(t.Bytes, labels))
			tokensOf = append(tokensOf, point(t.Tokens, labels))
			gaps = append(gaps, gapPoint(t, labels, now))
		}
	}
	if len(live) == 0 {
		return nil, nil
	}
	sum := func(name, unit, help string, points []metricdata.DataPoint[int64], monotonic bool) metricdata.Metrics {
		return metricdata.Metrics{Name: name, Unit: unit, Description: help, Data: metricdata.Sum[int64]{
			DataPoints: points, Temporality: metricdata.CumulativeTemporality, IsMonotonic: monotonic,
		}}
	}
	all := []metricdata.Metrics{
		sum("whence.streams.live", streams, "Live streams.", live, false),
		sum("whence.messages", messages, "Messages from below (recv) and to the caller (send).", counted, true),
		sum("whence.bytes", octets, "Bytes of messages: of protobuf without framing, or on api-service of the response body.", size, true),
		sum("whence.tokens", tokens, "Tokens generated below (recv) and passed on to the caller (send).", tokensOf, true),
		{Name: "whence.message.gap", Unit: seconds, Description: "Time between two messages of a stream that carry tokens: the inter-token latency.",
			Data: metricdata.Histogram[float64]{DataPoints: gaps, Temporality: metricdata.CumulativeTemporality}},
	}
	if len(open) > 0 {
		all = append(all,
			sum("whence.calls.open", rpcs, "Open gRPC calls.", open, false),
			sum("whence.calls.waiting", rpcs, "Open gRPC calls whose first message has not arrived.", waiting, false))
	}
	if len(clients) > 0 {
		all = append(all, sum("whence.connections.open", sockets, "Connections of clients that are open.", clients, false))
	}
	return []metricdata.ScopeMetrics{{Scope: instrumentation.Scope{Name: scope}, Metrics: all}}, nil
}

var gapBounds = func() (bounds []float64) {
	for _, d := range tally.Bounds {
		bounds = append(bounds, d.Seconds())
	}
	return bounds
}()

func gapPoint(t *totals, labels attribute.Set, now time.Time) metricdata.HistogramDataPoint[float64] {
	p := metricdata.HistogramDataPoint[float64]{
		Attributes: labels, StartTime: processStarted, Time: now,
		Bounds: gapBounds, BucketCounts: t.Gaps[:], Sum: t.GapSum.Seconds(),
	}
	for i, n := range t.Gaps {
		p.Count += n
		if t.examples[i].TraceID != nil {
			p.Exemplars = append(p.Exemplars, t.examples[i])
		}
	}
	return p
}
