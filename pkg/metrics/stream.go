package metrics

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/tally"
)

// A Stream has the metrics of one stream: the labels of its figures, which are in its Tally. A nil
// Stream accepts all calls. All methods are safe for concurrent use. Messages after End are not
// counted.
type Stream struct {
	hop   *Hop
	tally *tally.Tally
	op    Operation
	place func(streamerr.Reason) context.Context // the context of the stream's trace for an ending; nil if there is no trace
	model atomic.Pointer[modelOptions]           // nil until Started
}

// Link makes figures of the stream link to its trace, by exemplars. place returns a context with
// the trace of a stream with the given ending, if the trace is exported. Link must be called before
// any other goroutine knows s.
func (s *Stream) Link(place func(streamerr.Reason) context.Context) {
	if s != nil {
		s.place = place
	}
}

func (s *Stream) traceContext(reason streamerr.Reason) context.Context {
	if s.place == nil {
		return context.Background()
	}
	return s.place(reason)
}

// Does sets the stream's operation if it differs from its hop's; "" has no effect. An unknown
// operation is counted as other. Does must be called before the stream runs.
func (s *Stream) Does(op Operation) {
	if s != nil && op != "" {
		s.op = s.hop.operation(op)
	}
}

// Started records the model of an admitted stream. The model's name must come from the server, not
// from a request.
func (s *Stream) Started(model string) {
	if s != nil {
		s.model.Store(s.hop.model(s.op, model))
	}
}

// FirstToken records the time from the stream's request to the first token that was passed on.
func (s *Stream) FirstToken(after time.Duration) {
	if s != nil {
		s.hop.first.Record(s.traceContext(streamerr.Completed), after.Seconds(), s.options().plain...)
	}
}

// Late counts tokens that were generated below and reported to the Tally after End.
func (s *Stream) Late(tokens int) {
	if s != nil {
		s.hop.late(uint64(tokens))
	}
}

// Stopped records how long the hop below took to stop after the stop had arrived, and the reason of
// the stop.
func (s *Stream) Stopped(after time.Duration, why streamerr.Reason) {
	if s != nil {
		s.hop.stop.Record(s.traceContext(why), after.Seconds(), s.hop.record...)
	}
}

// Left counts a client that has left its stream. extent says how much of the answer it had, as a
// word of an enum.
func (s *Stream) Left(extent string) {
	if s != nil {
		s.hop.left.Add(context.Background(), 1, metric.WithAttributes(s.hop.name, attribute.String("extent", extent)))
	}
}

// Cached counts tokens of the prompt of a completed answer that the engine found in its KV cache.
func (s *Stream) Cached(tokens uint32) {
	if s != nil && tokens > 0 {
		s.hop.cached.Add(context.Background(), int64(tokens), s.hop.add...)
	}
}

// An Ending is how a stream has ended.
type Ending struct {
	At     time.Time
	Reason streamerr.Reason
	Origin string // the hop where the ending began
	Prompt uint32 // tokens of the prompt
}

// End records the ending. Only the first call has an effect.
func (s *Stream) End(e Ending) {
	if s == nil {
		return
	}
	h, ctx, options := s.hop, s.traceContext(e.Reason), s.options()
	figures, first := h.end(s, trace.SpanContextFromContext(ctx))
	if !first {
		return
	}
	took := (e.At.Sub(s.tally.Began()) - figures.Waited).Seconds()
	h.endings.Add(ctx, 1, metric.WithAttributes(h.name, reasonLabel(e.Reason), attribute.String("origin", h.origin(e.Origin))))
	if e.Reason == streamerr.Completed {
		h.duration.Record(ctx, took, options.plain...)
		if mean, ok := figures.Sent.PerToken(); ok {
			h.perToken.Record(ctx, mean.Seconds(), options.plain...)
		}
	} else {
		h.duration.Record(ctx, took, options.failed(e.Reason)...)
	}
	if options.known {
		h.usage.Record(ctx, int64(e.Prompt), options.input...)
		if s.op != Embeddings && s.op != Scores { // these have no output tokens
			h.usage.Record(ctx, int64(figures.Delivered()), options.output...)
		}
	}
}

func (s *Stream) options() *modelOptions {
	if o := s.model.Load(); o != nil {
		return o
	}
	return s.hop.unknown[s.op]
}

// totals has the figures of one direction of all streams of a hop.
type totals struct {
	tally.Counts
	examples [len(tally.Bounds) + 1]metricdata.Exemplar[float64] // one gap per bucket; TraceID is nil if there is none
}

// link makes the longest gap of a stream that has ended the exemplar of its bucket, if its trace is
// exported.
func (t *totals) link(gap time.Duration, at trace.SpanContext) {
	if gap == 0 || !at.IsValid() {
		return
	}
	id, span := at.TraceID(), at.SpanID()
	t.examples[tally.Bucket(gap)] = metricdata.Exemplar[float64]{Time: time.Now(), Value: gap.Seconds(), TraceID: id[:], SpanID: span[:]}
}

func reasonLabel(reason streamerr.Reason) attribute.KeyValue {
	return attribute.String("reason", reasonWord(reason))
}

// reasonWord returns the name of a reason. All numbers that this build does not know become other.
func reasonWord(reason streamerr.Reason) string {
	if _, known := streamv1.Reason_name[int32(reason)]; !known {
		return other
	}
	return reason.String()
}
