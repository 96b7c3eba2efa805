// Package streamtrace keeps the events of a stream on a hop: every header, reset, trailer and move,
// and the first and the last messages of each direction, with their times. They are part of the
// stream's record, and are exported as a span of OpenTelemetry when the stream has ended.
//
// A nil Tracer or Trace accepts all calls and keeps nothing, so that callers need not check whether
// traces are enabled. The events of a stream are bounded, and a message allocates nothing. The span
// is made at the end from the kept events. Until then a stream costs the same whether it is
// exported or not, and at the end it is known whether it should be. Streams that did not complete
// are always exported. Completed streams are chosen by a ratio of trace ids, so that all hops
// choose the same streams.
package streamtrace

import (
	"encoding/binary"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"

	"github.com/whence-dev/whence/pkg/tally"
)

// DefaultMessages is the default number of messages kept at each end of each direction.
const DefaultMessages = 4

// A Tracer makes the traces of a process. Its fields must not change while it is in use.
type Tracer struct {
	// Messages is the number of messages kept at each end of each direction. 0 keeps only state
	// events.
	Messages int
	// Ratio is the share of the completed streams that are exported, 0 to 1.
	Ratio float64

	spans  trace.Tracer // nil if no spans are exported
	paused atomic.Bool
}

// Pause makes the tracer ignore streams that begin while on is true. It serves to compare the cost
// with and without traces on the same servers.
func (t *Tracer) Pause(on bool) { t.paused.Store(on) }

// Begin begins the trace of a stream, below parent if that is valid, and makes the stream's tally
// keep messages for the trace. method is the method of the call, or "".
func (t *Tracer) Begin(count *tally.Tally, parent Parent, method string) *Trace {
	if t == nil || t.paused.Load() {
		return nil
	}
	self := Parent{trace: parent.trace, span: newSpanID(), state: parent.state}
	if !parent.Valid() {
		self.trace = newTraceID()
	}
	// A caller's sampled flag is ignored: other parties do not decide what is exported here.
	if t.chosen(self.trace) {
		self.flags = trace.FlagsSampled
	}
	count.Keep(t.Messages)
	return &Trace{tally: count, parent: parent, self: self, method: method, shown: t.spans != nil, states: tally.GrowingEnds[state](maxStates)}
}

// chosen reports whether the ratio includes a trace. It uses the algorithm of OpenTelemetry's
// sampler by ratio.
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

// Parent returns the place in the trace for callees of the stream.
func (t *Trace) Parent() Parent {
	if t == nil {
		return Parent{}
	}
	return t.self
}
