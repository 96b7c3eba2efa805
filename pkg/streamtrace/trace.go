package streamtrace

import (
	"slices"
	"sync"
	"time"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// maxStates is how many of the first events of state are kept, and how many of the last. A stream has six to eight on a hop,
// and some for each worker that it is moved to.
const maxStates = 16

// A Trace is what happened to one stream on one hop. A nil Trace takes everything and keeps nothing. All methods are safe for
// concurrent use, but for those of one who sends among themselves.
type Trace struct {
	// Static.
	began  time.Time
	parent Parent // what the caller said
	self   Parent // what this hop says to the one below
	method string // that was called; "" for none of gRPC
	shown  bool   // somebody is shown spans

	mu     sync.Mutex // guards the following fields
	states ends[state]
	reset  streamerr.Reason // of the last reset from above

	received, sent flow

	// Owned by the goroutine that sends.
	written   int    // bytes of the message whose Sent is to come
	operation string // what the stream does; "" for what most do
}

// A flow is the messages of one direction.
type flow struct {
	mu    sync.Mutex // guards the following fields
	kept  ends[message]
	token time.Duration // when the first token came; 0 for not yet
}

func (f *flow) message(began time.Time, at time.Duration, bytes, tokens int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := tokens > 0 && f.token == 0
	if at == 0 && (first || f.kept.keep > 0) {
		at = max(1, time.Since(began))
	}
	if first {
		f.token = at
	}
	f.kept.add(message{at: at, bytes: uint32(bytes), tokens: uint32(tokens)})
}

// firstToken returns when the first token came; 0 for not yet.
func (f *flow) firstToken() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.token
}

// Note notes an event of the stream's state.
func (t *Trace) Note(kind Kind, side Side, code string, reason streamerr.Reason, path streamerr.Path) {
	if t == nil {
		return
	}
	at := time.Since(t.began)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.states.add(state{at, kind, side, code, reason, path})
}

// Header notes a header. Path is the hops that the call has crossed so far.
func (t *Trace) Header(kind Kind, side Side, code string, path ...string) {
	t.Note(kind, side, code, streamerr.Unspecified, path)
}

// Stopping notes that the stream is to stop, if it was the neighbour above who said so: a decision of this hop's own has no
// path yet.
func (t *Trace) Stopping(cause *streamerr.Error) {
	if t != nil && len(cause.Path) > 0 {
		t.recvRst(cause, cause)
	}
}

// Reset notes that the caller is gone from a stream that was stopped before. Why it ends is still what it was.
func (t *Trace) Reset(gone, cause *streamerr.Error) {
	if t != nil && len(gone.Path) > 0 {
		t.recvRst(gone, cause)
	}
}

// recvRst notes a reset once: a broken call is noticed by more than one.
func (t *Trace) recvRst(how, why *streamerr.Error) {
	t.mu.Lock()
	known := t.reset == how.Reason
	t.reset = how.Reason
	t.mu.Unlock()
	if !known {
		t.Note(RecvRst, Up, resetCode(how), why.Reason, why.Path)
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

// Received notes a message from below, that came so long after the stream began; 0 is now.
func (t *Trace) Received(at time.Duration, tokens, bytes int) {
	if t != nil {
		t.received.message(t.began, at, bytes, tokens)
	}
}

// Wrote notes bytes of the message whose Sent is to come.
func (t *Trace) Wrote(bytes int) {
	if t != nil {
		t.written += bytes
	}
}

// Sent notes a message to the caller, likewise.
func (t *Trace) Sent(at time.Duration, tokens int) {
	if t != nil {
		t.sent.message(t.began, at, t.written, tokens)
		t.written = 0
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
	t.states.each(func(_ uint64, s *state) { add(s.proto()) })
	t.mu.Unlock()
	r.MessagesReceived = t.received.tell(Recv, Down, add)
	r.MessagesSent = t.sent.tell(Send, Up, add)
	// Stable, because a clock may stand still between two events.
	slices.SortStableFunc(r.GetEvents(), func(a, b *streamv1.Event) int {
		return int(a.GetAt().AsDuration() - b.GetAt().AsDuration())
	})
}

func (f *flow) tell(kind Kind, side Side, add func(*streamv1.Event)) (n uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept.each(func(i uint64, m *message) { add(m.proto(kind, side, i)) })
	return f.kept.n
}
