package metrics

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Admitted records that a stream no longer waits for admission, and how long it waited.
func (h *Hop) Admitted(waited time.Duration) {
	if h != nil {
		h.queue.Record(context.Background(), waited.Seconds(), h.record...)
	}
}

// Queue registers load, which returns how many streams of the hop are admitted and how many wait
// for admission. Each collection calls load. The returned function unregisters it.
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
	leave := h.pool.addQueue(&queueLoad{load})
	return func() error {
		leave()
		return asked.Unregister()
	}, nil
}
