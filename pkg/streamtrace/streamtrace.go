// Package streamtrace keeps what happened to a stream on a hop: every header, reset, trailer and move, and the first and the
// last messages in each direction, with their times. It is told with the stream's record, and exported as a span of
// OpenTelemetry when the stream has ended.
//
// A Tracer, a Hop and a Trace that are nil take everything and keep nothing, so that nobody asks whether traces are on. What a
// stream keeps is bounded, and a message allocates nothing. A span is made at the end, of what was kept: until then a stream
// costs the same whether it will be exported or not, and by then it is known whether it should be. Streams that did not
// complete always are, others by a ratio of trace ids, so that all hops choose the same ones.
package streamtrace

import (
	"encoding/binary"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"github.com/whence-dev/whence/pkg/tally"
)

// DefaultMessages is how many messages are kept, first and last, in each direction.
const DefaultMessages = 4

// A Tracer makes the traces of a process. Its fields must not change while it is in use.
type Tracer struct {
	// Messages is how many of the first messages are kept in each direction, and how many of the last; 0 keeps events of state
	// only.
	Messages int
	// Ratio is the part of the completed streams that are exported, 0 to 1.
	Ratio float64

	spans  trace.Tracer // nil if nobody is shown any
	paused atomic.Bool
}

// Pause has streams that begin from now on not be traced, until it is ended. It is there to compare the one with the other on the
// same servers.
func (t *Tracer) Pause(on bool) { t.paused.Store(on) }

// Begin begins the trace of a stream, below the place in a trace that its caller has given it, if it has, and makes the
// stream's tally keep messages for the trace. method is what was called, or "".
func (t *Tracer) Begin(count *tally.Tally, parent Parent, method string) *Trace {
	if t == nil || t.paused.Load() {
		return nil
	}
	self := Parent{trace: parent.trace, span: newSpanID(), state: parent.state}
	if !parent.Valid() {
		self.trace = newTraceID()
	}
	// A caller's sampled flag is not taken over: strangers do not decide what is exported here.
	if t.chosen(self.trace) {
		self.flags = trace.FlagsSampled
	}
	count.Keep(t.Messages)
	return &Trace{tally: count, parent: parent, self: self, method: method, shown: t.spans != nil, states: tally.GrowingEnds[state](maxStates)}
}

// chosen reports whether a trace is among those of the ratio, as OpenTelemetry's own sampler by ratio does.
func (t *Tracer) chosen(id trace.TraceID) bool {
	return t.Ratio >= 1 || float64(binary.BigEndian.Uint64(id[8:])>>1) < t.Ratio*(1<<63)
}

// ID returns the trace's id, or "".
func (t *Trace) ID() string {
	if t == nil {
		return ""
	}
	return t.self.trace.String()
}

// Parent returns what a callee of the stream is told.
func (t *Trace) Parent() Parent {
	if t == nil {
		return Parent{}
	}
	return t.self
}
