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

// maxBelow is how many endings of its calls a server's stream remembers. The oldest is forgotten.
const maxBelow = 8

// A Stream is one side of one stream. All methods are safe for concurrent use.
type Stream struct {
	// Static.
	call    Call
	monitor *Monitor
	series  *series
	tally   *tally.Tally
	trace   *streamtrace.Trace

	mu     sync.Mutex // guards the following fields
	ending *streamerr.Error
	below  []belowEnding
}

// A belowEnding is how a call of a server's stream ended.
type belowEnding struct {
	err    error // that the handler got
	ending *streamerr.Error
}

// Begin begins a stream. It is live until End.
func (r *Monitor) Begin(ctx context.Context, c Call) *Stream {
	s := &Stream{call: c, monitor: r, tally: tally.New(time.Now())}
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

// via returns the hops that a call of this stream has crossed, this one included.
func (s *Stream) via() streamerr.Path { return through(s.call.Via, s.monitor.config.Name) }

// through returns a path that ends at hop.
func through(p streamerr.Path, hop string) streamerr.Path {
	if len(p) > 0 && p[len(p)-1] == hop {
		return p
	}
	return p.Append(hop)
}

// Headers calls set with the headers of a client's call, which tell the callee the hops before it and the trace.
func (s *Stream) Headers(set func(key, value string)) {
	set(streamerr.ViaHeader, s.via().String())
	s.trace.Parent().Each(set)
}

// Received counts a message from the peer, of a size in bytes.
func (s *Stream) Received(size int) {
	s.tally.Read(size)
	s.tally.Received(1, nil)
}

// Sent counts a message to the peer, of a size in bytes.
func (s *Stream) Sent(size int) {
	s.tally.Wrote(size)
	s.tally.Sent(1, nil)
}

// Note notes a header, reset or trailer. why is its cause, or nil for none.
func (s *Stream) Note(kind streamtrace.Kind, code string, why *streamerr.Error) {
	if why == nil {
		why = &streamerr.Error{}
	}
	s.trace.Note(kind, s.side(), code, why.Reason, why.Path)
}

// side is where the peer is.
func (s *Stream) side() streamtrace.Side {
	if s.call.Side == Client {
		return streamtrace.Down
	}
	return streamtrace.Up
}

// Peer returns the name of the other end.
func (s *Stream) Peer() string { return s.call.Peer }

// Stopped returns why the caller has ended a server's stream, with the path up to here, or nil.
func (s *Stream) Stopped() *streamerr.Error {
	if s.call.Stopped == nil {
		return nil
	}
	e := s.call.Stopped()
	if e == nil {
		return nil
	}
	return s.Arrived(e)
}

// Arrived returns an ending whose path ends at this hop.
func (s *Stream) Arrived(e *streamerr.Error) *streamerr.Error {
	c := *e
	c.Path = through(e.Path, s.monitor.config.Name)
	return &c
}

// Below remembers that a call of this server's stream gave the handler err, and ended so. The path of a handler that returns err,
// or an error that wraps it, then begins where the call was ended.
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

// Known returns the ending that err stands for: an Error itself, or the ending of a call below; nil if err is neither.
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

// Completed is the ending of a stream that ended as it should, with the hops that the ending has crossed before this one.
func Completed(path ...string) *streamerr.Error {
	return &streamerr.Error{Reason: streamerr.Completed, Path: streamerr.NewPath(path...)}
}

// Ending returns how the stream has ended, with the path up to here, or nil while it runs.
func (s *Stream) Ending() *streamerr.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// End ends the stream. Only the first call counts.
func (s *Stream) End(e *streamerr.Error) {
	e = s.Arrived(e)
	s.mu.Lock()
	again := s.ending != nil
	if !again {
		s.ending = e
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
	s.trace.Describe(s.span(first, &figures))
	s.monitor.tracer.Ended(s.trace, e.Reason, func() *streamv1.Record {
		r := &streamv1.Record{Hop: c.Name, Reason: e.Reason.Proto(), Path: e.Path}
		if e.Reason != streamerr.Completed {
			r.Message = e.Text()
		}
		s.trace.Tell(r)
		return r
	})
	s.series.end(s, e, first, &figures)
	defer s.monitor.ended()
	if c.Log != nil && e.Reason != streamerr.Completed {
		c.Log.LogAttrs(context.Background(), slog.LevelWarn, "stream ended",
			slog.String("side", string(s.call.Side)), slog.String("system", s.call.System), slog.String("method", s.call.Name),
			slog.String("trace_id", s.trace.ID()), slog.Any("ending", e))
	}
}

// first returns the time of the first message of a stream: to the caller on servers, from the callee on clients.
func (s *Stream) first() time.Duration {
	if s.call.Side == Client {
		return s.tally.FirstReceived()
	}
	return s.tally.FirstSent()
}

// span returns what the stream's span looks like.
func (s *Stream) span(first time.Duration, figures *tally.Snapshot) streamtrace.Span {
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
