package metrics

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Stream is what a hop measures of one stream. A nil Stream takes everything. All methods are safe for concurrent use,
// though gaps are those between messages, whoever of several receives them; what comes after End is not counted.
type Stream struct {
	hop   *Hop
	op    Operation
	began time.Time
	place func(streamerr.Reason) context.Context // of the stream's trace, by how the stream ends; nil for none

	in, out flow                         // from below, and to the caller
	waited  atomic.Int64                 // for the caller, of a stream that has begun
	back    atomic.Uint64                // tokens to the caller that were taken back
	prompt  atomic.Uint32                // tokens
	model   atomic.Pointer[modelOptions] // nil until Started
	ended   atomic.Bool
}

// Link has figures of the stream link to its trace, in exemplars. place returns a context with the trace of a stream that ends so,
// if there is one to look at. It must be called before anybody else knows s.
func (s *Stream) Link(place func(streamerr.Reason) context.Context) {
	if s != nil {
		s.place = place
	}
}

func (s *Stream) placed(reason streamerr.Reason) context.Context {
	if s.place == nil {
		return context.Background()
	}
	return s.place(reason)
}

// Does sets the stream's operation if it differs from its hop's; "" changes nothing. An unknown operation is counted
// as other. Does must be called before the stream runs.
func (s *Stream) Does(op Operation) {
	if s != nil && op != "" {
		s.op = s.hop.operation(op)
	}
}

// Started notes what was admitted. The model's name must come from who serves it.
func (s *Stream) Started(model string, promptTokens uint32) {
	if s == nil {
		return
	}
	s.prompt.Store(promptTokens)
	s.model.Store(s.hop.model(s.op, model))
}

// Waited notes time that the stream has spent waiting for its caller. It counts nowhere: not for the first token, nor between
// two of them, nor for the whole.
func (s *Stream) Waited(d time.Duration) {
	if s != nil {
		s.waited.Add(int64(d))
	}
}

// since is when the stream would have begun had its caller not been waited for.
func (s *Stream) since() time.Time { return s.began.Add(time.Duration(s.waited.Load())) }

// In notes a message from below, and returns when it came since the stream began, for whoever wants to know, too: to read the
// clock costs as much as the rest. 0 is not known.
func (s *Stream) In(tokens int) (at time.Duration) {
	if s == nil {
		return 0
	}
	at, _ = s.in.message(tokens, s.since())
	return s.sinceBegan(at)
}

// sinceBegan adds what the stream has waited for its caller, if the time is known.
func (s *Stream) sinceBegan(at time.Duration) time.Duration {
	if at > 0 {
		at += time.Duration(s.waited.Load())
	}
	return at
}

// Out notes a message to the caller, and returns what In does.
func (s *Stream) Out(tokens int) (at time.Duration) {
	if s == nil {
		return 0
	}
	at, first := s.out.message(tokens, s.since())
	if first {
		s.hop.first.Record(s.placed(streamerr.Completed), at.Seconds(), s.options().plain...)
	}
	return s.sinceBegan(at)
}

// InBytes notes the size of a message from below.
func (s *Stream) InBytes(n int) {
	if s != nil {
		s.in.bytes.Add(uint64(n))
	}
}

// OutBytes notes bytes to the caller.
func (s *Stream) OutBytes(n int) {
	if s != nil {
		s.out.bytes.Add(uint64(n))
	}
}

// Unreceived counts tokens that were generated below and never reached this hop, even after the stream has ended.
func (s *Stream) Unreceived(tokens int) {
	if s != nil {
		s.hop.unreceived(s, uint64(tokens))
	}
}

// TakenBack uncounts tokens that were sent to the caller, because the answer was restarted.
func (s *Stream) TakenBack(tokens int) {
	if s != nil {
		s.back.Add(uint64(tokens))
	}
}

// Stopped notes how long after the stop was heard, and why, what is below had stopped.
func (s *Stream) Stopped(after time.Duration, why streamerr.Reason) {
	if s != nil {
		s.hop.stop.Record(s.placed(why), after.Seconds(), s.hop.record...)
	}
}

// Used notes how many tokens the prompt of a completed answer has, and how many of them the engine found in its KV cache.
func (s *Stream) Used(prompt, cached uint32) {
	if s == nil {
		return
	}
	s.prompt.Store(prompt)
	if cached > 0 {
		s.hop.cached.Add(context.Background(), int64(cached), s.hop.add...)
	}
}

// End notes the ending. The first time counts.
func (s *Stream) End(reason streamerr.Reason, origin string) {
	if s == nil || s.ended.Swap(true) {
		return
	}
	h, ctx, options := s.hop, s.placed(reason), s.options()
	h.endings.Add(ctx, 1, metric.WithAttributes(h.name, reasonLabel(reason), attribute.String("origin", h.origin(origin))))
	if reason == streamerr.Completed {
		h.duration.Record(ctx, time.Since(s.since()).Seconds(), options.plain...)
		if mean, ok := s.out.perToken(); ok {
			h.perToken.Record(ctx, mean.Seconds(), options.plain...)
		}
	} else {
		h.duration.Record(ctx, time.Since(s.since()).Seconds(), options.failed(reason)...)
	}
	if options.known {
		h.usage.Record(ctx, int64(s.prompt.Load()), options.input...)
		if s.op != Embeddings { // which have none
			h.usage.Record(ctx, s.delivered(), options.output...)
		}
	}
	h.end(s, trace.SpanContextFromContext(ctx))
}

// delivered is how many tokens were passed on and not taken back.
func (s *Stream) delivered() int64 { return int64(s.out.tokens.Load()) - int64(s.back.Load()) }

func (s *Stream) options() *modelOptions {
	if o := s.model.Load(); o != nil {
		return o
	}
	return s.hop.unknown[s.op]
}

func reasonLabel(reason streamerr.Reason) attribute.KeyValue {
	return attribute.String("reason", reasonWord(reason))
}

// reasonWord is a word of the enum: the numbers that this build does not know share one.
func reasonWord(reason streamerr.Reason) string {
	if _, known := streamv1.Reason_name[int32(reason)]; !known {
		return other
	}
	return reason.String()
}
