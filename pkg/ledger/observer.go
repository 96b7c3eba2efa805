package ledger

import (
	"context"
	"log/slog"
	"strings"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

var (
	_ observer.Observer = (*Ledger)(nil)
	_ observer.Flow     = (*Record)(nil)
)

// At returns the ledger that observes a hop, or an empty one.
func At(h *rpc.Hop) *Ledger {
	if l, ok := h.Observer.(*Ledger); ok {
		return l
	}
	return &Ledger{}
}

// Begin implements observer.Observer.
func (l *Ledger) Begin(ctx context.Context, b observer.Beginning) observer.Flow {
	parent := streamtrace.ParentOf(ctx)
	if !parent.Valid() && b.Header != nil {
		parent = streamtrace.ReadParent(func(key string) string { return strings.Join(b.Header(key), ",") })
	}
	r := l.record(b.ID, b.Hop, b.Peer)
	owner := b.Owner // a pointer into b would retain the call's metadata as long as the record
	r.owner, r.parent = &owner, parent
	r.open(b.First)
	r.trace = l.Traces.Begin(r.tally, parent, b.Method)
	if r.trace != nil {
		r.tally.Time() // the console shows the gaps of every stream, also without metrics
	}
	r.trace.Header(streamtrace.RecvHeader, streamtrace.Up, "", b.Path...)
	r.seen.Link(r.trace.Place)
	l.add(r)
	return r
}

// Refused implements observer.Observer.
func (l *Ledger) Refused(reason streamerr.Reason) { l.Metrics.Refused(reason) }

// Ending implements observer.Observer.
func (l *Ledger) Ending(id string, owners ...string) streamerr.Reason {
	if r := l.Get(id); r != nil && OwnedBy(r, owners...) {
		return streamerr.Reason(r.GetReason())
	}
	return streamerr.Unspecified
}

// Received records a message from the hop below with the given number of tokens.
func (r *Record) Received(tokens int, message any) {
	if r != nil {
		r.tally.Received(tokens, message)
	}
}

// Sent records a message with the given number of tokens that was passed to the caller. If message
// is nil, its size is the number of bytes passed to OutBytes.
func (r *Record) Sent(tokens int, message any) {
	if r == nil {
		return
	}
	if first := r.tally.Sent(tokens, message); first > 0 {
		r.seen.FirstToken(first)
	}
}

// Note implements observer.Flow.
func (r *Record) Note(e observer.Event) {
	if r == nil {
		return
	}
	switch e.Kind {
	case observer.Running:
		r.seen.Does(metrics.Operation(e.Text))
		r.trace.Does(e.Text)
		r.trace.Asks(request(e.Message))
		r.claimed(e.Message)
	case observer.Calling:
		r.trace.Header(streamtrace.SendHeader, streamtrace.Down, "", e.Path...)
		r.called(e.Kind)
	case observer.CalleeAnswered:
		r.trace.Header(streamtrace.RecvHeader, streamtrace.Down, "", e.Path...)
	case observer.Announced:
		r.Read(e.Message)
		r.finished(e.Message)
	case observer.Answering:
		r.trace.Header(streamtrace.SendHeader, streamtrace.Up, "", r.hop)
	case observer.StopHeard:
		r.Stopping(e.Err)
	case observer.CallerGone:
		r.trace.Reset(e.Err, &streamerr.Error{Reason: e.Reason, Path: e.Path})
	case observer.StopSent:
		r.trace.Note(streamtrace.SendRst, streamtrace.Down, streamtrace.CodeStop, e.Reason, e.Path)
	case observer.CallReset:
		r.trace.Note(streamtrace.SendRst, streamtrace.Down, streamtrace.CodeCancel, e.Reason, e.Path)
	case observer.CalleeReset:
		code := streamtrace.CodeLost
		if e.Reason == streamerr.PeerReset {
			code = streamtrace.CodeCancel
		}
		r.trace.Note(streamtrace.RecvRst, streamtrace.Down, code, e.Reason, e.Path)
	case observer.CalleeEnded:
		r.trace.Note(streamtrace.RecvTrailer, streamtrace.Down, e.Code, e.Reason, e.Path)
	case observer.Confirmed, observer.Unconfirmed, observer.CallOver, observer.CalleeLeft:
		r.called(e.Kind)
	case observer.Unreceived:
		r.Unreceived(e.Tokens)
	case observer.Consumed:
		r.consumedBelow(e.Tokens)
	case observer.Merged:
		r.tally.Merged(e.Messages)
	case observer.Waited:
		r.tally.Waited(e.Took)
	case observer.Ended:
		r.End(e.Reason, e.Path, e.Text)
	case observer.CallerLost:
		r.settle(func(a *account) { a.orphaned = e.Err.Reason == streamerr.PeerLost })
	case observer.CalleeGone:
		r.settle(func(a *account) { a.left-- })
	case observer.EndingSent:
		r.settle(func(a *account) { a.endingSent = true })
		r.trace.Note(streamtrace.SendTrailer, streamtrace.Up, e.Code, e.Reason, e.Path)
	}
}

// called records an event of a call. A stop is confirmed when all calls that were open at the time
// of the stop are over, and their callees have ended them. A callee that was abandoned before does
// not count.
func (r *Record) called(kind observer.Kind) {
	r.mu.Lock()
	switch kind {
	case observer.Calling:
		r.calls++
		if r.account != nil {
			r.account.called = true
		}
	case observer.Confirmed:
		r.oneConfirmed = true
	case observer.Unconfirmed:
		r.oneUnconfirmed = true
	case observer.CalleeLeft:
		r.calls--
		if r.account != nil {
			r.account.left++
		}
	case observer.CallOver:
		r.calls--
	default:
	}
	confirmed := r.calls == 0 && r.oneConfirmed && !r.oneUnconfirmed
	r.mu.Unlock()
	if confirmed {
		r.Confirmed()
	}
}

// Headers implements observer.Flow: it sends a callee its place in the trace. A hop without traces
// passes on the place that its caller sent.
func (r *Record) Headers(set func(key, value string)) {
	if r == nil {
		return
	}
	if p := r.trace.Parent(); p.Valid() {
		p.Each(set)
		return
	}
	r.parent.Each(set)
}

// LogAttrs implements observer.Flow.
func (r *Record) LogAttrs() (attrs []slog.Attr) {
	if id := r.Events().ID(); id != "" {
		attrs = append(attrs, slog.String("trace", id))
	}
	if has := r.has(); has != streamv1.Extent_EXTENT_UNSPECIFIED {
		attrs = append(attrs, slog.String("extent", Word(has)))
	}
	return attrs
}

// has returned how much of the answer the client had when it left.
func (r *Record) has() streamv1.Extent {
	if r == nil {
		return streamv1.Extent_EXTENT_UNSPECIFIED
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.extent
}

// Close implements observer.Flow. It exports the trace of the ended stream. It also exports the
// usage record, unless abandoned calls of the stream may still count tokens.
func (r *Record) Close() {
	if r != nil {
		r.ledger.Traces.Ended(r.trace, r.Reason(), r.protoWithEvents)
		r.settle(func(a *account) { a.closed = true })
	}
}
