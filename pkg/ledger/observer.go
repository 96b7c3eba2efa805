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
	owner := b.Owner // a pointer into b would keep the call's metadata for as long as the record
	r.owner, r.parent = &owner, parent
	r.open(b.First)
	r.trace = l.Traces.Begin(r.tally, parent, b.Method)
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

// Received records a message from the hop below, and how many tokens it counts.
func (r *Record) Received(tokens int, message any) {
	if r != nil {
		r.tally.Received(tokens, message)
	}
}

// Sent records a message that was passed to the caller, and how many tokens it counts. If message is nil, its size is what
// OutBytes was told.
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
		r.claimed(e.Message)
	case observer.Calling:
		r.trace.Header(streamtrace.SendHeader, streamtrace.Down, "", e.Path...)
		r.called(e.Kind)
	case observer.CalleeAnswered:
		r.trace.Header(streamtrace.RecvHeader, streamtrace.Down, "", e.Path...)
	case observer.Announced:
		r.Read(e.Message)
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
	case observer.CallerTold:
		r.settle(func(a *account) { a.told = true })
		r.trace.Note(streamtrace.SendTrailer, streamtrace.Up, e.Code, e.Reason, e.Path)
	}
}

// called records what became of a call. A stop is confirmed when all calls that were open when it came are over, and each of them
// was ended by its callee; a callee that was left before has no say.
func (r *Record) called(kind observer.Kind) {
	r.mu.Lock()
	switch kind {
	case observer.Calling:
		r.calls++
		if r.account != nil {
			r.account.called = true
		}
	case observer.Confirmed:
		r.owned = true
	case observer.Unconfirmed:
		r.unsure = true
	case observer.CalleeLeft:
		r.calls--
		if r.account != nil {
			r.account.left++
		}
	case observer.CallOver:
		r.calls--
	default:
	}
	confirmed := r.calls == 0 && r.owned && !r.unsure
	r.mu.Unlock()
	if confirmed {
		r.Confirmed()
	}
}

// Headers implements observer.Flow: a callee is told its place in the trace. A hop without traces passes on the place that it was
// told.
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

// has returns how much of the answer the client had when it left.
func (r *Record) has() streamv1.Extent {
	if r == nil {
		return streamv1.Extent_EXTENT_UNSPECIFIED
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.extent
}

// Close implements observer.Flow: it exports the trace of the ended stream, and its usage record unless calls that the stream has
// left may still count tokens.
func (r *Record) Close() {
	if r != nil {
		r.ledger.Traces.Ended(r.trace, r.Reason(), r.Told)
		r.settle(func(a *account) { a.closed = true })
	}
}
