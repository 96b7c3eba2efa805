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

// maxStates is the number of first and of last state events that are kept. A stream has six to
// eight on a hop, and some more for each worker that it is moved to.
const maxStates = 16

// A Trace has the events of one stream on one hop. Its messages are those kept by the stream's
// Tally. A nil Trace accepts all calls and keeps nothing. All methods except Does, Asks and
// Serves are safe for concurrent use.
type Trace struct {
	// Static.
	tally     *tally.Tally
	parent    Parent // from the caller
	self      Parent // for the hop below
	method    string // the called method; "" without gRPC
	shown     bool   // spans are exported
	operation string // "" for the default
	request   request

	kept atomic.Bool // export, however the stream ends

	mu     sync.Mutex // guards the following fields
	states tally.Ends[state]
	reset  streamerr.Reason // of the last reset from above
	finish []string         // of the choices that have ended, by their number; "" for the others
}

// Note records a state event of the stream.
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
	t.states.Add(state{at: at.Sub(t.tally.Began()), path: path, code: code, reason: reason, kind: kind, side: side})
}

// Header records a header. path has the hops that the call has crossed so far.
func (t *Trace) Header(kind Kind, side Side, code string, path ...string) {
	t.Note(kind, side, code, streamerr.Unspecified, path)
}

// Stopping records a stop from the neighbour above. A stop by this hop itself, whose cause has no
// path yet, is not recorded.
func (t *Trace) Stopping(at time.Time, cause *streamerr.Error) {
	if t != nil && len(cause.Path) > 0 {
		t.recvRst(at, cause, cause)
	}
}

// Reset records that the caller has left a stream that was stopped before. The cause of the ending
// remains.
func (t *Trace) Reset(gone, cause *streamerr.Error) {
	if t != nil && len(gone.Path) > 0 {
		t.recvRst(time.Now(), gone, cause)
	}
}

// recvRst records a reset once, because several goroutines may notice a broken call.
func (t *Trace) recvRst(at time.Time, how, why *streamerr.Error) {
	t.mu.Lock()
	known := t.reset == how.Reason
	t.reset = how.Reason
	t.mu.Unlock()
	if !known {
		t.NoteAt(at, RecvRst, Up, resetCode(how), why.Reason, why.Path)
	}
}

// resetCode returns the form in which a cause came from above. A cause without a message names only
// the neighbour.
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

// Tell adds the events so far to the record of the stream.
func (t *Trace) Tell(r *streamv1.Record) {
	if t == nil {
		return
	}
	r.TraceId = t.self.trace.String()
	add := func(e *streamv1.Event) { r.Events = append(r.Events, e) }
	t.mu.Lock()
	t.states.Each(func(_ uint64, s *state) { add(s.proto()) })
	t.mu.Unlock()
	r.MessagesReceived = t.tally.EachReceived(func(i uint64, m *tally.Message) { add(messageProto(m, Recv, Down, i)) })
	r.MessagesSent = t.tally.EachSent(func(i uint64, m *tally.Message) { add(messageProto(m, Send, Up, i)) })
	// Stable, because two events may have the same time.
	slices.SortStableFunc(r.GetEvents(), func(a, b *streamv1.Event) int {
		return int(a.GetAt().AsDuration() - b.GetAt().AsDuration())
	})
}
