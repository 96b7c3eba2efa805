package check

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	memory "github.com/whence-dev/whence/e2e/simulation/network"
	"github.com/whence-dev/whence/e2e/simulation/world"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A leg is one call of a stream, between two hops.
type leg struct {
	memory.Report
	call           *memory.Call
	id             string // of the stream at the callee
	caller, callee *world.Process
	reason         streamerr.Reason // the trailer's; Unspecified if there is none
	path           streamerr.Path
	refused        *streamerr.Error // the status of a call without trailers; nil for none
	ended          *hop             // the callee's ending; nil if the callee was killed, or has refused the stream
	ending         streamerr.Path   // of the message with the ending, which the caller has received; nil if there was none
}

// held reports whether all messages of the call reached the other side in time.
func (l *leg) held() bool {
	return l.Broke.IsZero() && !l.Late && !l.callee.Dead() && !l.caller.Dead() && l.Reset.IsZero()
}

// heard reports whether the end of the call, sent by the callee, reached the caller.
func (l *leg) heard() bool { return !l.Known.IsZero() && l.Broke.IsZero() && l.Reset.IsZero() }

// A hop is the ending of one stream in one process.
type hop struct {
	world.Ending
	id      string
	path    streamerr.Path
	record  *streamv1.Record // nil if a later stream of this id has replaced it
	decided time.Time        // when the process learnt that the stream must end
	below   []*leg           // the stream's calls, in order
}

// collect finds the calls of all streams.
func (c *Check) collect() {
	c.legs = map[string][]*leg{}
	for _, call := range c.world.Net.Calls() {
		r := call.Report()
		if !strings.HasSuffix(call.Method, "/Generate") || r.Request == nil {
			continue
		}
		l := &leg{Report: r, call: call, caller: c.world.At(call.Caller()), callee: c.world.At(call.Callee())}
		if strings.HasPrefix(call.Method, "/whence.chat.") {
			var in chatv1.GenerateRequest
			_ = proto.Unmarshal(r.Request, &in)
			var out chatv1.GenerateResponse
			_ = proto.Unmarshal(r.Last, &out)
			l.id, l.ending = in.GetChat().GetStreamId(), streamerr.Path(out.GetEnd().GetPath())
		} else {
			var in workerv1.GenerateRequest
			_ = proto.Unmarshal(r.Request, &in)
			var out workerv1.GenerateResponse
			_ = proto.Unmarshal(r.Last, &out)
			l.id, l.ending = in.GetTokens().GetStreamId(), streamerr.Path(out.GetEnd().GetPath())
		}
		if v := r.Trailer.Get(streamerr.ReasonTrailer); len(v) > 0 {
			l.reason, l.path = streamerr.ParseReason(v[0]), streamerr.ParsePath(strings.Join(r.Trailer.Get(streamerr.PathTrailer), ""))
		} else if !r.Returned.IsZero() {
			l.refused = streamerr.FromGRPC(l.callee.Name, r.Err)
		}
		c.legs[l.id] = append(c.legs[l.id], l)
	}
}

// endsOnce checks that every call of a stream has one line in its callee's log, which agrees with
// its trailers and its status. It sets the ending of each leg.
func (c *Check) endsOnce(id string, all []*leg) {
	lines := map[*world.Process][]world.Ending{}
	for _, l := range all {
		p := l.callee
		if l.Stops > 1 {
			c.Fail("%s at %s: the caller has sent %d stops", id, p.Name, l.Stops)
		}
		if p.Dead() { // a killed process has written nothing
			continue
		}
		if _, seen := lines[p]; !seen {
			lines[p] = c.world.Journal.Of(p, id)
			if n := len(lines[p]); n > 0 {
				c.recorded(lines[p][n-1])
			}
		}
		switch status := streamerr.FromGRPC(p.Name, l.Err); {
		case l.Returned.IsZero():
		case l.reason == streamerr.Unspecified:
			if l.Served && (status == nil || status.Reason == streamerr.Unspecified) {
				c.Fail("%s at %s: a call ended with neither trailers nor a reason: %v", id, p.Name, l.Err)
			}
		case status == nil && l.reason != streamerr.Completed, status != nil && (status.Reason != l.reason || status.Path.String() != l.path.String()):
			c.Fail("%s at %s: the status is %v, and the trailers say %s %s", id, p.Name, l.Err, l.reason, l.path)
			fallthrough
		default:
			at := slices.IndexFunc(lines[p], func(e world.Ending) bool { return e.Reason == l.reason && e.Path == l.path.String() })
			if at < 0 {
				c.Fail("%s at %s: the trailers say %s %s, and the log has the endings %v", id, p.Name, l.reason, l.path, lines[p])
				continue
			}
			l.ended = c.hop(id, lines[p][at])
			if l.reason == streamerr.Completed && l.ended.record.GetStopHeard() == nil && l.Said.Before(l.ended.decided) && !l.Said.IsZero() {
				l.ended.decided = l.Said // the ending is its last message
			}
			lines[p] = slices.Delete(slices.Clone(lines[p]), at, at+1)
		}
	}
	for _, l := range all { // a callee does not send the end of a call that is reset, or whose connection broke
		p := l.callee
		if !l.Served || !l.Returned.IsZero() || l.Broke.IsZero() && l.Reset.IsZero() {
			continue
		}
		if at := slices.IndexFunc(lines[p], func(e world.Ending) bool { return !e.At.Before(l.call.Opened) }); at >= 0 {
			l.ended = c.hop(id, lines[p][at])
			lines[p] = slices.Delete(slices.Clone(lines[p]), at, at+1)
		}
	}
	for p, left := range lines {
		if len(left) > 0 {
			c.Fail("%s at %s: no call has the endings %v", id, p.Name, left)
		}
	}
}

// recorded checks that the ledger of a hop has the ending of the last stream of an id.
func (c *Check) recorded(e world.Ending) {
	r := ledger.At(e.Process.Hop).Get(e.Stream)
	if r.GetState() != streamv1.State_STATE_ENDED || streamerr.Reason(r.GetReason()) != e.Reason || streamerr.NewPath(r.GetPath()...).String() != e.Path {
		c.Fail("%v, but the ledger says of %s: %s, %s %v", e, e.Stream, r.GetState(), streamerr.Reason(r.GetReason()), r.GetPath())
	}
	if r.GetTokensIn() < r.GetTokensOut() {
		c.Fail("%s at %s: %d tokens generated, %d delivered", e.Stream, e.Process.Name, r.GetTokensIn(), r.GetTokensOut())
	}
}

// hop returns the known facts about the ending e of a stream.
func (c *Check) hop(id string, e world.Ending) *hop {
	h := &hop{Ending: e, id: id, path: streamerr.ParsePath(e.Path), decided: e.At}
	began := time.Time{}
	if r := ledger.At(e.Process.Hop).Get(id); r.GetEnded().AsTime().Equal(e.At) {
		h.record, began = r, r.GetBegan().AsTime()
		if heard := r.GetStopHeard(); heard != nil {
			h.decided = heard.AsTime()
		}
	}
	for of, all := range c.legs {
		if of != id && !strings.HasPrefix(of, id+".") { // an id with this prefix is a choice's
			continue
		}
		for _, l := range all {
			if l.caller == e.Process && !l.call.Opened.Before(began) && !l.call.Opened.After(e.At) {
				h.below = append(h.below, l)
			}
		}
	}
	slices.SortStableFunc(h.below, func(a, b *leg) int { return a.call.Opened.Compare(b.call.Opened) })
	if wanted(h.Reason) && len(h.path) > 1 && h.record != nil && h.record.GetStopHeard() == nil { // the callee sent it
		for _, l := range h.below {
			if l.says(h, h.path[:len(h.path)-1]) && l.Known.Before(h.decided) {
				h.decided = l.Known
			}
		}
	}
	return h
}

// wanted reports whether a reason means that the stream was ended on purpose, so it does not move.
func wanted(reason streamerr.Reason) bool {
	switch reason {
	case streamerr.ClientGone, streamerr.UserStop, streamerr.OperatorStop, streamerr.SlowReader:
		return true
	default:
		return false
	}
}
