package monitor

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// maxStates is the number of first and of last headers, resets and trailers that are kept. A stream
// has six to eight.
const maxStates = 16

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
	began   time.Time
	parent  Parent // from the caller
	self    Parent // for callees

	received, sent tally

	mu      sync.Mutex // guards the following fields
	states  ends[Event]
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
	now := time.Now()
	s := &Stream{base: ctx, call: c, monitor: r, began: now, states: ends[Event]{keep: maxStates}}
	for _, t := range []*tally{&s.received, &s.sent} {
		t.began, t.kept = now, ends[message]{keep: r.config.Messages}
	}
	s.parent = r.config.Span(ctx)
	if above := From(ctx); above != nil && c.Side == Client {
		s.call.Via = above.via()
		if !s.parent.Valid() {
			s.parent = above.self
		}
	}
	if !s.parent.Valid() {
		s.parent = c.Parent
	}
	s.self = s.parent.below(r.config.Ratio)
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
	s.self.each(func(key, value string) { set(streamPrefix+key, value) })
}

// HeaderNames returns the names of the headers that Headers may set.
func HeaderNames() []string {
	return []string{streamerr.ViaHeader, streamPrefix + traceparent, streamPrefix + tracestate}
}

// Received counts a message from the peer. size is in bytes.
func (s *Stream) Received(size int) { s.received.count(size) }

// Sent counts a message to the peer. size is in bytes.
func (s *Stream) Sent(size int) { s.sent.count(size) }

// Note records a header, reset or trailer. why is its cause, or nil for none.
func (s *Stream) Note(kind Kind, code string, why *streamerr.Error) {
	e := Event{At: time.Since(s.began), Kind: kind, Code: code}
	if why != nil {
		e.Reason, e.Path = why.Reason, why.Path
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states.add(e)
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
	var e *streamerr.Error
	if errors.As(err, &e) {
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
	record := s.record(e, biz)
	s.series.end(s, record)
	c := &s.monitor.config
	if c.Exporter != nil && s.exported(record) {
		record.Events = s.events()
		c.Exporter.Export(record)
	}
	defer s.monitor.ended()
	if c.Log != nil && e.Reason != streamerr.Completed {
		c.Log.LogAttrs(context.Background(), slog.LevelWarn, "stream ended",
			slog.String("side", string(s.call.Side)), slog.String("system", s.call.System), slog.String("method", s.call.Name),
			slog.String("trace_id", hex.EncodeToString(s.self.Trace[:])), s.logged(e))
	}
}

// logged returns an ending for the log.
func (s *Stream) logged(e *streamerr.Error) slog.Attr {
	if s.monitor.config.ErrorTexts {
		return slog.Any("ending", e)
	}
	return slog.Group("ending", slog.String("reason", e.Reason.String()), slog.String("origin", e.Path.Origin()), slog.String("path", e.Path.String()))
}

// record returns the record of the stream, without its events.
func (s *Stream) record(e *streamerr.Error, biz *int32) *Record {
	r := &Record{
		Method: s.call.Method, Hop: s.monitor.config.Name, Peer: s.call.Peer, Self: s.self, Parent: s.parent,
		Began: s.began, Ended: time.Now(), Reason: e.Reason, Path: e.Path, BizStatus: biz,
		Received: s.received.traffic(), Sent: s.sent.traffic(),
	}
	if s.monitor.config.ErrorTexts && e.Reason != streamerr.Completed {
		r.Message = e.Text()
	}
	return r
}

// exported reports whether the record of a stream is exported.
func (s *Stream) exported(r *Record) bool {
	gap := r.Sent.LongestGap
	if r.Side == Client {
		gap = r.Received.LongestGap
	}
	c := &s.monitor.config
	return r.Reason != streamerr.Completed || s.self.Flags&Sampled != 0 ||
		c.SlowFirst > 0 && r.First() > c.SlowFirst || c.SlowGap > 0 && gap > c.SlowGap
}
