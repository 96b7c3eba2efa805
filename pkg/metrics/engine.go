package metrics

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// An Engine has the metrics of the engine that a hop owns.
type Engine struct {
	hop             *Hop
	prefill, decode []metric.RecordOption
}

// Engine returns the metrics of the hop's engine, or nil if the hop is nil.
func (h *Hop) Engine() *Engine {
	if h == nil {
		return nil
	}
	phase := func(name string) []metric.RecordOption {
		return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(h.name, attribute.String("phase", name)))}
	}
	return &Engine{hop: h, prefill: phase("prefill"), decode: phase("decode")}
}

// Admitted records that a stream has got its place in the batch, and how long it waited for that.
func (e *Engine) Admitted(waited time.Duration) {
	e.hop.Admitted(waited)
}

// Stepped records one step of the engine with the given number of streams. prefill reports that at
// least one stream was still reading its prompt.
func (e *Engine) Stepped(took time.Duration, streams int, prefill bool) {
	phase := e.decode
	if prefill {
		phase = e.prefill
	}
	e.hop.step.Record(context.Background(), took.Seconds(), phase...)
	e.hop.batch.Record(context.Background(), int64(streams), e.hop.record...)
}

// Paused records that a stream was paused, because the KV cache had no room for it, and for how long.
func (e *Engine) Paused(took time.Duration) {
	e.hop.pause.Record(context.Background(), took.Seconds(), e.hop.record...)
}

// A Load is the current load of an engine.
type Load struct {
	Running, Queued int64 // streams
	KVUsed, KVLimit int64 // token positions
	KVCached        int64 // of KVUsed, the positions with prefixes that can be found again
	Block           int64 // token positions of a block of the KV cache; 0 if they are not known
	Model           string
}

// Load registers load, which each collection calls. The returned function unregisters it.
func (h *Hop) Load(load func() Load) (end func() error, err error) {
	if h == nil {
		return func() error { return nil }, nil
	}
	hop := metric.WithAttributeSet(attribute.NewSet(h.name))
	asked, err := h.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		l := load()
		o.ObserveInt64(h.running, l.Running, hop)
		o.ObserveInt64(h.queued, l.Queued, hop)
		o.ObserveInt64(h.kvUsed, l.KVUsed, hop)
		o.ObserveInt64(h.kvLimit, l.KVLimit, hop)
		o.ObserveInt64(h.kvCached, l.KVCached, hop)
		return nil
	}, h.running, h.queued, h.kvUsed, h.kvLimit, h.kvCached)
	if err != nil {
		return nil, fmt.Errorf("metrics of the engine's load: %w", err)
	}
	leave := h.pool.addEngine(&engineLoad{hop: h.name.Value.AsString(), load: load})
	return func() error {
		leave()
		return asked.Unregister()
	}, nil
}

// Dropped counts blocks of the engine's KV cache that could not be named. reason is a word of a
// fixed set.
func (h *Hop) Dropped(reason string, blocks int) {
	if h != nil {
		h.dropped.Add(context.Background(), int64(blocks), metric.WithAttributes(h.name, attribute.String("reason", reason)))
	}
}
