package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
	"github.com/whence-dev/whence/pkg/tally"
)

// maxBelow bounds the endings of calls that a server's stream remembers. A further ending replaces
// the oldest.
const maxBelow = 8

// A Stream is one side of one stream. All methods are safe for concurrent use.
type Stream struct {
	// Static.
	base    context.Context //nolint:containedctx // the framework's context of the handler, or the context of a call
	call    Call
	monitor *Monitor
	series  *series
	tally   *tally.Tally
	trace   *streamtrace.Trace

	mu      sync.Mutex // guards the following fields
	ending  *streamerr.Error
	stopped *streamerr.Error // the result of Stopped at the ending
	biz     *int32           // the status code of the application's own answer; nil for none
	below   []belowEnding
}

// A belowEnding is the ending of a call that a handler made.
type belowEnding struct {
	err    error // the error that the handler received
	ending *streamerr.Error
}

// Begin begins a stream, which is live until End or Discard. ctx is the framework's context of the
// handler, or the context of a client's call.
func (r *Monitor) Begin(ctx context.Context, c Call) *Stream {
	s := &Stream{base: ctx, call: c, monitor: r, tally: tally.New(time.Now())}
	parent := streamtrace.LocalParent(ctx)
	if above := From(ctx); above != nil && c.Side == Client {
		s.call.Via = above.via()
		if !parent.Valid() {
			parent = above.trace.Parent()
		}
	}
	if !parent.Valid() {
		parent = c.Parent
	}
	s.tally.Time()
	s.trace = r.tracer.Begin(s.tally, parent, "")
	s.series = r.begin(s)
	return s
}

// via returns the path of the call, this hop included.
func (s *Stream) via() streamerr.Path { return through(s.call.Via, s.monitor.config.Name) }

// through appends hop to p unless p ends with hop.
func through(p streamerr.Path, hop string) streamerr.Path {
	if len(p) > 0 && p[len(p)-1] == hop {
		return p
	}
	return p.Append(hop)
}

// Headers calls set for each header of a client's call: the path up to this hop, and the place in
// the trace. The application's own traceparent is a different header.
func (s *Stream) Headers(set func(key, value string)) {
	set(streamerr.ViaHeader, s.via().String())
	s.trace.Parent().Each(func(key, value string) { set(streamtrace.StreamPrefix+key, value) })
}

// Received counts a message from the peer. size is in bytes.
func (s *Stream) Received(size int) {
	s.tally.Read(size)
	s.tally.Received(1, nil)
}

// Sent counts a message to the peer. size is in bytes.
func (s *Stream) Sent(size int) {
	s.tally.Wrote(size)
	s.tally.Sent(1, nil)
}

// Note records a header, reset or trailer. why is its cause, or nil for none.
func (s *Stream) Note(kind streamtrace.Kind, code string, why *streamerr.Error) {
	if why == nil {
		why = &streamerr.Error{}
	}
	s.trace.Note(kind, s.side(), code, why.Reason, why.Path)
}

// side returns the side of the peer.
func (s *Stream) side() streamtrace.Side {
	if s.call.Side == Client {
		return streamtrace.Down
	}
	return streamtrace.Up
}

// Peer returns the name of the peer.
func (s *Stream) Peer() string { return s.call.Peer }

// Stopped returns why the context of a server's handler ended before the handler returned, with the
// path up to this hop, or nil. The frameworks cancel that context when the handler has returned:
// the result does not change after End.
func (s *Stream) Stopped() *streamerr.Error {
	s.mu.Lock()
	ended, stopped := s.ending != nil, s.stopped
	s.mu.Unlock()
	switch {
	case ended:
		return stopped
	case s.call.Stopped == nil:
		return nil
	}
	e := s.call.Stopped()
	if e == nil {
		return nil
	}
	return s.Arrived(e)
}

// Arrived returns a copy of an ending whose path ends at this hop.
func (s *Stream) Arrived(e *streamerr.Error) *streamerr.Error {
	c := *e
	c.Path = through(e.Path, s.monitor.config.Name)
	return &c
}

// Below remembers the ending of a call that the handler made, and the error that the handler
// received from the call. If the handler returns that error, or an error that wraps it, its own
// path begins with the path of the call.
func (s *Stream) Below(err error, ending *streamerr.Error) {
	if s == nil || err == nil || ending == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.below) == maxBelow {
		s.below = append(s.below[:0], s.below[1:]...)
	}
	s.below = append(s.below, belowEnding{err, ending})
}

// Known returns err if it is an Error, or the ending of the call that returned err to the handler,
// or nil.
func (s *Stream) Known(err error) *streamerr.Error {
	if e, ok := errors.AsType[*streamerr.Error](err); ok {
		return e
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.below) - 1; i >= 0; i-- {
		if errors.Is(err, s.below[i].err) {
			return s.below[i].ending
		}
	}
	return nil
}

// Completed returns the ending of a completed stream. path is the path before this hop.
func Completed(path ...string) *streamerr.Error {
	return &streamerr.Error{Reason: streamerr.Completed, Path: streamerr.NewPath(path...)}
}

// Answered records that the application answered the stream with a BizStatusError. Such an answer
// is not a failure: the ending is Completed, the label reason of the metrics is BizStatus, and the
// span has the code. Call Answered before End.
func (s *Stream) Answered(code int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.biz = &code
}

// Discard ends the stream without counting or exporting it: the call turned out not to be a stream.
func (s *Stream) Discard() {
	s.mu.Lock()
	again := s.ending != nil
	if !again {
		s.ending = Completed(s.monitor.config.Name)
	}
	s.mu.Unlock()
	if !again {
		s.tally.Close()
		s.series.discard(s)
		s.monitor.ended()
	}
}

// Ending returns how the stream ended, with the path up to this hop, or nil while the stream is
// live.
func (s *Stream) Ending() *streamerr.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// End ends the stream. Only the first call has an effect.
func (s *Stream) End(e *streamerr.Error) {
	e = s.Arrived(e)
	stopped := s.Stopped()
	s.mu.Lock()
	again, biz := s.ending != nil, s.biz
	if !again {
		s.ending, s.stopped = e, stopped
	}
	s.mu.Unlock()
	if again {
		return
	}
	figures := s.tally.Close()
	first, gap := s.first(), figures.Sent.Longest
	if s.call.Side == Client {
		gap = figures.Received.Longest
	}
	c := &s.monitor.config
	if c.SlowFirst > 0 && first > c.SlowFirst || c.SlowGap > 0 && gap > c.SlowGap {
		s.trace.Keep()
	}
	s.trace.Describe(s.span(first, &figures, biz))
	s.monitor.tracer.Ended(s.trace, e.Reason, func() *streamv1.Record {
		r := &streamv1.Record{Hop: c.Name, Reason: e.Reason.Proto(), Path: e.Path}
		if c.ErrorTexts && e.Reason != streamerr.Completed {
			r.Message = e.Text()
		}
		s.trace.Tell(r)
		return r
	})
	reason := e.Reason.String()
	if _, known := streamv1.Reason_name[int32(e.Reason)]; !known { // a peer may send any number
		reason = Other
	}
	if biz != nil {
		reason = BizStatus
	}
	s.series.end(s, reason, e.Path, first, &figures)
	defer s.monitor.ended()
	if c.Log != nil && e.Reason != streamerr.Completed {
		c.Log.LogAttrs(context.Background(), slog.LevelWarn, "stream ended",
			slog.String("side", string(s.call.Side)), slog.String("system", s.call.System), slog.String("method", s.call.Name),
			slog.String("trace_id", s.trace.ID()), s.logged(e))
	}
}

// logged returns an ending for the log.
func (s *Stream) logged(e *streamerr.Error) slog.Attr {
	if s.monitor.config.ErrorTexts {
		return slog.Any("ending", e)
	}
	return slog.Group("ending", slog.String("reason", e.Reason.String()), slog.String("origin", e.Path.Origin()), slog.String("path", e.Path.String()))
}

// first returns the time of the first message to the caller on servers, or from the callee on
// clients.
func (s *Stream) first() time.Duration {
	if s.call.Side == Client {
		return s.tally.FirstReceived()
	}
	return s.tally.FirstSent()
}

// span describes the stream's span.
func (s *Stream) span(first time.Duration, figures *tally.Snapshot, biz *int32) streamtrace.Span {
	kind := trace.SpanKindServer
	if s.call.Side == Client {
		kind = trace.SpanKindClient
	}
	all := []attribute.KeyValue{
		semconv.RPCSystemNameKey.String(s.call.System), semconv.RPCMethod(s.call.Name),
		attribute.String("whence.peer", s.call.Peer),
		attribute.Int64("whence.bytes.received", int64(figures.Received.Bytes)),
		attribute.Int64("whence.bytes.sent", int64(figures.Sent.Bytes)),
	}
	if took := time.Since(s.tally.Began()).Seconds(); took > 0 {
		all = append(all,
			attribute.Float64("whence.messages.received_per_second", float64(figures.Received.Messages)/took),
			attribute.Float64("whence.messages.sent_per_second", float64(figures.Sent.Messages)/took))
	}
	if biz != nil {
		all = append(all, attribute.Int64("whence.biz_status", int64(*biz)))
	}
	if first > 0 {
		all = append(all, attribute.Float64("whence.time_to_first_message", first.Seconds()))
	}
	for direction, longest := range map[string]time.Duration{"received": figures.Received.Longest, "sent": figures.Sent.Longest} {
		if longest > 0 {
			all = append(all, attribute.Float64("whence.longest_gap."+direction, longest.Seconds()))
		}
	}
	return streamtrace.Span{Name: strings.TrimPrefix(s.call.Name, "/"), Kind: kind, Peer: s.side(), Attributes: all}
}
