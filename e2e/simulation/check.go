package simulation

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/e2e/simulation/client"
	memory "github.com/whence-dev/whence/e2e/simulation/network"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A check looks for invariants that do not hold.
type check struct {
	*world
	visits     []*client.Visit
	wants      []client.Answer
	violations []string
	endings    map[string]int
	moves      int
}

func (c *check) fail(format string, args ...any) {
	c.violations = append(c.violations, fmt.Sprintf(format, args...))
}

// quiet checks that nothing is left of streams that have ended, while the services run, and within settle.
func (c *check) quiet() {
	before := len(c.violations)
	within := settle
	if c.net.AnyStalled() { // a callee learns that its caller has left when its keep-alive fails
		within += memory.CalleeGivesUp
	}
	for until := time.Now().Add(within); ; time.Sleep(settle / 50) {
		c.violations = c.violations[:before]
		c.remains()
		if len(c.violations) == before || time.Now().After(until) {
			return
		}
	}
}

// remains fails for all that is left of streams.
func (c *check) remains() {
	c.mu.Lock()
	all := slices.Clone(c.all)
	workers := slices.Clone(c.workers)
	chats := slices.Clone(c.chats)
	c.mu.Unlock()
	for _, p := range all {
		if n := p.hop.Live.Len(); n > 0 {
			c.fail("%s has %d live streams after all have ended", p.name, n)
		}
	}
	for _, k := range workers {
		if l := k.loop.Load(); l.GetRunning()+l.GetQueued() > 0 || l.GetKvUsedTokens() > 0 {
			c.fail("%s has %v after all streams have ended", k.name, l)
		}
	}
	for _, s := range chats {
		for _, known := range s.registry.Workers() {
			if known.GetStreams() > 0 {
				c.fail("%s counts %d streams at %s after all have ended", s.name, known.GetStreams(), known.GetTarget())
			}
		}
		if running, waiting := s.registry.Queue(); running+waiting > 0 {
			c.fail("%s has %d streams with a place and %d in its queue after all have ended", s.name, running, waiting)
		}
	}
	for _, call := range c.net.Calls() {
		if r := call.Report(); r.Served && r.Returned.IsZero() && !c.net.Stalled(call.From, call.To) {
			c.fail("the call of %s at %s is open after all streams have ended", call.From, call.To)
		}
	}
}

// closed checks that the services have left nothing behind.
func (c *check) closed() {
	if n := c.net.Open(); n > 0 {
		c.fail("%d calls are open after all services have ended", n)
	}
	panics := 0
	for _, f := range c.schedule.Faults {
		if f.Kind == EnginePanics {
			panics = c.journal.panics
		}
	}
	if c.journal.panics > panics {
		c.fail("%d handlers panicked", c.journal.panics)
	}
}

// A leg is one call of a stream, between two hops.
type leg struct {
	call   *memory.Call
	report memory.Report
	callee *process
	reason streamerr.Reason // the trailer's; Unspecified if there is none
	path   string
}

// legs returns the calls of all streams, by stream id and callee's method.
func (c *check) legs() map[string][]leg {
	all := map[string][]leg{}
	for _, call := range c.net.Calls() {
		r := call.Report()
		if !strings.HasSuffix(call.Method, "/Generate") || r.Request == nil {
			continue
		}
		var id string
		if strings.HasPrefix(call.Method, "/whence.chat.") {
			var in chatv1.GenerateRequest
			_ = proto.Unmarshal(r.Request, &in)
			id = in.GetChat().GetStreamId()
		} else {
			var in workerv1.GenerateRequest
			_ = proto.Unmarshal(r.Request, &in)
			id = in.GetTokens().GetStreamId()
		}
		l := leg{call: call, report: r, callee: c.at(call.Callee())}
		if v := r.Trailer.Get(streamerr.ReasonTrailer); len(v) > 0 {
			l.reason, l.path = streamerr.ParseReason(v[0]), strings.Join(r.Trailer.Get(streamerr.PathTrailer), "")
		}
		all[id] = append(all[id], l)
	}
	return all
}

func (c *check) at(h *memory.Host) *process {
	for _, p := range c.all {
		if p.host == h {
			return p
		}
	}
	return nil
}

// streams checks each stream, from its client to its workers.
func (c *check) streams() {
	c.endings = map[string]int{}
	legs := c.legs()
	for id, all := range legs {
		c.endsOnce(id, all)
	}
	for i, v := range c.visits {
		id, got := c.schedule.Name(i), v.Answer()
		ended := c.journal.of(c.edge, id)
		switch {
		case len(ended) > 1:
			c.fail("%s ended %d times at %s: %v", id, len(ended), c.edge.name, ended)
		case len(ended) == 0:
			c.refused(id, got)
		default:
			c.endings[ended[0].reason.String()]++
			c.answer(i, got, ended[0])
			c.descend(id, c.edge, ended[0], legs)
		}
		c.text(i, got)
	}
}

// endsOnce checks that every call of a stream has one line in its callee's log, with what its trailers say.
func (c *check) endsOnce(id string, all []leg) {
	lines := map[*process][]string{}
	trailers := map[*process][]string{}
	for _, l := range all {
		if l.callee.dead.Load() {
			continue
		}
		if _, seen := lines[l.callee]; !seen {
			lines[l.callee] = []string{}
			for _, e := range c.journal.of(l.callee, id) {
				lines[l.callee] = append(lines[l.callee], e.reason.String()+" "+e.path)
			}
		}
		if l.reason != streamerr.Unspecified {
			trailers[l.callee] = append(trailers[l.callee], l.reason.String()+" "+l.path)
		}
	}
	for p, logged := range lines {
		slices.Sort(logged)
		slices.Sort(trailers[p])
		if !slices.Equal(logged, trailers[p]) {
			c.fail("%s at %s: the log has the endings %q, the trailers have %q", id, p.name, logged, trailers[p])
		}
	}
}

// refused checks the answer to a request that did not become a stream.
func (c *check) refused(id string, got client.Answer) {
	if got.Left || got.Error != nil && got.Status >= http.StatusBadRequest || got.Status == 0 && c.edgeEnded() {
		return
	}
	c.fail("%s has no ending at %s, and its client got %d %q", id, c.edge.name, got.Status, got.Body)
}

func (c *check) edgeEnded() bool {
	return slices.ContainsFunc(c.schedule.Faults, func(f Fault) bool { return f.Kind == DrainEdge || f.Kind == HurryEdge })
}

// answer compares what a client got with the ending that the edge logged.
func (c *check) answer(i int, got client.Answer, e ending) {
	r, id := &c.schedule.Requests[i], c.schedule.Name(i)
	completed := e.reason == streamerr.Completed
	if got.Done && !completed {
		c.fail("%s is complete for its client, but %v", id, e)
	}
	if got.Left {
		return
	}
	switch {
	case completed && !got.Done:
		c.fail("%v, but the client of %s got no complete answer: %+v", e, id, got)
	case completed && got.Error != nil:
		c.fail("%v, but the client of %s got %v", e, id, got.Error)
	case completed:
	case got.Error == nil:
		if got.Clean {
			c.fail("%v, but the body for the client of %s ended like a complete one: %+v", e, id, got)
		} else if !got.Stalled && r.Pace == 0 {
			c.fail("%v, but the client of %s, which reads, was not told: %+v", e, id, got)
		}
	case got.Error.Reason != e.reason || got.Error.Path.String() != e.path:
		c.fail("%v, but the client of %s got %s %v", e, id, got.Error.Reason, got.Error.Path)
	case got.Status != http.StatusOK && got.Status != e.reason.HTTPStatus():
		c.fail("%v, but the client of %s got the status %d", e, id, got.Status)
	}
}

// text compares the text that a client got with the undisturbed one.
func (c *check) text(i int, got client.Answer) {
	if c.wants == nil || c.schedule.Requests[i].N > 1 {
		return
	}
	want := c.wants[i]
	if !strings.HasPrefix(want.Text, got.Text) {
		c.fail("%s: the client has %q, which is no beginning of %q", c.schedule.Name(i), got.Text, want.Text)
	}
	if got.Done && (got.Text != want.Text || got.Tokens != want.Tokens) {
		c.fail("%s: the complete answer is %q with %d tokens; undisturbed it is %q with %d", c.schedule.Name(i), got.Text, got.Tokens, want.Text, want.Tokens)
	}
}

// descend compares the ending of a stream on a hop with that of the last call that the hop made for it.
func (c *check) descend(id string, p *process, e ending, legs map[string][]leg) {
	record := ledger.At(p.hop).Get(id)
	c.moves += len(record.GetMoves())
	c.accounts(id, p, record, legs[id])
	var last *leg
	for i, l := range legs[id] {
		if c.at(l.call.Caller()) != p {
			continue
		}
		// A call that waited for its connection may have been opened after the call that replaced it.
		if last == nil || strings.Contains(e.path, l.callee.name) || !strings.Contains(e.path, last.callee.name) {
			last = &legs[id][i]
		}
	}
	if last == nil || !last.report.Served || last.callee.dead.Load() || last.report.Broke || last.reason == streamerr.Unspecified {
		return // the connection did not hold, or there was no stream below
	}
	below := ending{process: last.callee, stream: id, reason: last.reason, path: last.path, at: last.report.Returned}
	if !agree(p, e, below) && !c.crossed(record, e, below) {
		c.fail("%s: %v, but %v, and the connection held", id, e, below)
	}
	for _, f := range c.journal.of(last.callee, id) {
		if f.reason == last.reason && f.path == last.path {
			c.descend(id, last.callee, f, legs)
			return
		}
	}
}

// crossed reports whether the upper hop ended the stream by itself, and the lower hop had ended it before it could hear
// that.
func (c *check) crossed(record *streamv1.Record, e, below ending) bool {
	if strings.Contains(e.path, below.process.name) {
		return false // the ending came from below
	}
	decided := e.at
	if heard := record.GetStopHeard(); heard != nil {
		decided = heard.AsTime()
	}
	at := below.at
	if heard := ledger.At(below.process.hop).Get(below.stream).GetStopHeard(); heard != nil {
		at = heard.AsTime()
	}
	return !at.After(decided.Add(c.schedule.MaxDelay + slowest))
}

// agree reports whether two hops tell one ending.
func agree(upper *process, e, below ending) bool {
	if e.reason != below.reason {
		return false
	}
	if e.reason == streamerr.Completed && e.path == upper.name {
		return true // upper had what it needed, and the callee may have completed by itself just before it heard that
	}
	return e.path == below.path+" > "+upper.name || below.path == e.path+" > "+below.process.name
}

// accounts compares the counts of tokens of a hop with those of the hops below, if all of them could tell it.
func (c *check) accounts(id string, p *process, record *streamv1.Record, legs []leg) {
	if record.GetTokensIn() < record.GetTokensOut() {
		c.fail("%s at %s: %d tokens generated, %d delivered", id, p.name, record.GetTokensIn(), record.GetTokensOut())
	}
	below, calls := uint32(0), 0
	for _, l := range legs {
		if c.at(l.call.Caller()) != p || !l.report.Served || l.call.Opened.Before(record.GetBegan().AsTime()) {
			continue // the last: of an earlier stream of this id, which has come back
		}
		if calls++; l.report.Broke || l.callee.dead.Load() || l.reason == streamerr.Unspecified || !l.report.Reset.IsZero() {
			return
		}
		n, _ := strconv.Atoi(strings.Join(l.report.Trailer.Get("whence-tokens-generated"), ""))
		below += uint32(n)
	}
	if calls > 0 && below != record.GetTokensIn() {
		c.fail("%s at %s: %d tokens generated, but the hops below say %d", id, p.name, record.GetTokensIn(), below)
	}
}
