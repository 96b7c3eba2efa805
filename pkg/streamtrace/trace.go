package streamtrace

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/tally"
)

// maxStates is how many of the first events of state are kept, and how many of the last. A stream has six to eight on a hop,
// and some for each worker that it is moved to.
const maxStates = 16

// A Trace is what happened to one stream on one hop. Its messages are those that the stream's Tally has kept. A nil Trace takes
// everything and keeps nothing. All methods but Does and Describe are safe for concurrent use.
type Trace struct {
	// Static.
	tally     *tally.Tally
	parent    Parent // what the caller said
	self      Parent // what this hop says to the one below
	method    string // that was called; "" for none of gRPC
	shown     bool   // somebody is shown spans
	operation string // what the stream does; "" for what most do
	described *Span  // nil for an answer of a language model

	kept atomic.Bool // exported, however the stream ends

	mu     sync.Mutex // guards the following fields
	states tally.Ends[state]
	reset  streamerr.Reason // of the last reset from above
}

// Note notes an event of the stream's state.
func (t *Trace) Note(kind Kind, side Side, code string, reason streamerr.Reason, path streamerr.Path) {
	if t != nil {
		t.NoteAt(time.Now(), kind, side, code, reason, path)
	}
}

// NoteAt is Note for an event whose time is known.
func (t *Trace) NoteAt(at time.Time, kind Kind, side Side, code string, reason streamerr.Reason, path streamerr.Path) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.states.Add(state{at.Sub(t.tally.Began()), kind, side, code, reason, path})
}

// Header notes a header. Path is the hops that the call has crossed so far.
func (t *Trace) Header(kind Kind, side Side, code string, path ...string) {
	t.Note(kind, side, code, streamerr.Unspecified, path)
}

// Stopping notes that the stream is to stop, if it was the neighbour above who said so: a decision of this hop's own has no
// path yet.
func (t *Trace) Stopping(at time.Time, cause *streamerr.Error) {
	if t != nil && len(cause.Path) > 0 {
		t.recvRst(at, cause, cause)
	}
}

// Reset notes that the caller is gone from a stream that was stopped before. Why it ends is still what it was.
func (t *Trace) Reset(gone, cause *streamerr.Error) {
	if t != nil && len(gone.Path) > 0 {
		t.recvRst(time.Now(), gone, cause)
	}
}

// recvRst notes a reset once: a broken call is noticed by more than one.
func (t *Trace) recvRst(at time.Time, how, why *streamerr.Error) {
	t.mu.Lock()
	known := t.reset == how.Reason
	t.reset = how.Reason
	t.mu.Unlock()
	if !known {
		t.NoteAt(at, RecvRst, Up, resetCode(how), why.Reason, why.Path)
	}
}

// resetCode is the form in which a cause came from above. What comes without a message names nobody but the neighbour.
func resetCode(cause *streamerr.Error) string {
	switch {
	case len(cause.Path) > 1:
		return CodeStop
	case cause.Reason == streamerr.PeerLost:
		return CodeLost
	case cause.Reason == streamerr.PeerReset, cause.Reason == streamerr.ClientGone:
		return CodeCancel
	default:
		return CodeStop
	}
}

// Tell adds what happened so far to the record of the stream.
func (t *Trace) Tell(r *streamv1.Record) {
	if t == nil {
		return
	}
	r.TraceId = t.self.trace.String()
	add := func(e *streamv1.Event) { r.Events = append(r.Events, e) }
	t.mu.Lock()
	t.states.Each(func(_ uint64, s *state) { add(s.proto()) })
	t.mu.Unlock()
	from, to := Down, Up
	if t.described != nil {
		from, to = t.described.Peer, t.described.Peer
	}
	r.MessagesReceived = t.tally.EachReceived(func(i uint64, m *tally.Message) { add(messageProto(m, Recv, from, i)) })
	r.MessagesSent = t.tally.EachSent(func(i uint64, m *tally.Message) { add(messageProto(m, Send, to, i)) })
	// Stable, because a clock may stand still between two events.
	slices.SortStableFunc(r.GetEvents(), func(a, b *streamv1.Event) int {
		return int(a.GetAt().AsDuration() - b.GetAt().AsDuration())
	})
}
