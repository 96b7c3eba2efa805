package metrics

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Admitted notes that a stream need not wait any more, and how long it has waited.
func (h *Hop) Admitted(waited time.Duration) {
	if h != nil {
		h.queue.Record(context.Background(), waited.Seconds(), h.record...)
	}
}

// Queue has load asked whenever somebody collects: how many streams of the hop have their place, and how many wait for one. It
// returns how to end that.
func (h *Hop) Queue(load func() (running, waiting int)) (end func() error, err error) {
	if h == nil {
		return func() error { return nil }, nil
	}
	hop := metric.WithAttributeSet(attribute.NewSet(h.name))
	asked, err := h.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		running, waiting := load()
		o.ObserveInt64(h.running, int64(running), hop)
		o.ObserveInt64(h.queued, int64(waiting), hop)
		return nil
	}, h.running, h.queued)
	if err != nil {
		return nil, fmt.Errorf("metrics of the queue: %w", err)
	}
	return asked.Unregister, nil
}
