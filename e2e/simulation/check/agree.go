package check

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whence-dev/whence/e2e/simulation/schedule"
	"github.com/whence-dev/whence/e2e/simulation/world"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/link/mux"
	"github.com/whence-dev/whence/pkg/rpc/protocol"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// This file checks that the hops of a stream agree on its ending, and end it in time.

// agree compares the ending of a stream on a hop with the endings of the calls that were open at
// that time.
func (c *Check) agree(h *hop) {
	stopped := h.record.GetStopHeard() != nil
	open, confirmed, ended := 0, 0, 0
	for _, l := range h.below {
		if l.Served && (l.Returned.IsZero() || !l.Returned.Before(h.decided)) {
			open++
		}
		if l.heard() {
			ended++ // perhaps before the stop: a hop that waits for its caller has not processed the end yet
			if stopped && !l.Known.Before(h.decided) && !l.leftBy(h) && inTime(l, h) {
				confirmed++
			}
		}
		if l.ended == nil || l.ended.record == nil || !l.held() || c.delayed(l) || c.slowClient(h.id) { // a hop that waits for its caller decides later than the end arrives
			continue
		}
		// A callee that ends the stream by itself after the caller has sent a stop has not received
		// the stop.
		heard := h.decided
		if l.call.Opened.After(heard) { // the stop came while the call was dialed
			heard = l.call.Opened
		}
		heard = heard.Add(c.trip())
		fromCaller := len(l.path) > 1 && l.path[len(l.path)-2] == h.Process.Name
		switch {
		case fromCaller && l.reason == h.Reason && l.ended.decided.After(heard):
			c.Fail("%s: %v was decided at +%v, and %v at +%v", h.id, h, c.since(h.decided), l.ended, c.since(l.ended.decided))
		case !fromCaller && l.ended.decided.After(heard):
			c.Fail("%s: %v, but %v, which was decided %v later", h.id, h, l.ended, l.ended.decided.Sub(h.decided))
		}
	}
	if all := c.choices(h); stopped && len(h.below) == all && open == all && confirmed == all && !c.dials(h) && len(h.record.GetMoves()) == 0 && h.record.GetStopConfirmed() == nil && h.Reason != streamerr.Completed && !c.backpressure(h) {
		c.Fail("%s: %v was decided at +%v, and is not confirmed at +%v, though the end of %v was known at +%v", h.id, h, c.since(h.decided), c.since(h.At), h.below[0].ended, c.since(h.below[0].Known))
	}
	if at := h.record.GetStopConfirmed(); at != nil && ended == 0 && !isWorker(h.Process) {
		c.Fail("%s: %v is confirmed, though no callee has ended the stream when it was stopped", h.id, h)
	}
	if by := c.endsBy(h); h.At.After(by) {
		c.Fail("%s: %v was decided at +%v, and came %v too late", h.id, h, c.since(h.decided), h.At.Sub(by))
	}
}

// leftBy reports whether a hop left a call because it had what it needed.
func (l *leg) leftBy(h *hop) bool {
	return l.reason == streamerr.Completed && len(l.path) > 1 && l.path[0] == h.Process.Name
}

// inTime reports whether a hop must have processed the end of a call when it ended the stream. It has
// not if its grace was over while the end waited for the messages before it, which need credit.
func inTime(l *leg, h *hop) bool {
	return l.Known.Equal(h.At) || l.Known.Before(h.At) && h.At.Sub(h.decided) < protocol.Below(rpc.DefaultGrace)
}

// choices returns the number of calls that a hop makes for a stream that does not move: chat-service
// makes one for each choice.
func (c *Check) choices(h *hop) int {
	if r := c.request(h.id); r != nil && h.Process != c.world.Edge && !isWorker(h.Process) {
		return max(1, r.N)
	}
	return 1
}

// dials reports whether a process was dialing a call when it decided to end a stream.
func (c *Check) dials(h *hop) bool {
	for _, k := range c.contacts {
		if k.From == h.Process.Host && !k.Probe && !k.Began.After(h.decided) && !k.At.Before(h.decided) {
			return true
		}
	}
	return false
}

// endsBy returns the time by which a hop must have ended a stream after the decision: the end of
// its open calls, or of their grace; later if the hop waits for a reader, or for an engine that
// ignores stops.
func (c *Check) endsBy(h *hop) time.Time {
	by := h.decided
	for _, l := range h.below {
		if l.call.Opened.After(h.At) || !l.Known.IsZero() && l.Known.Before(by) { // a call that is being dialed is opened after the decision
			continue
		}
		over := h.decided.Add(rpc.DefaultGrace)
		if !l.Known.IsZero() && l.Known.Before(over) {
			over = l.Known
		}
		if over.After(by) {
			by = over
		}
	}
	for _, k := range c.contacts { // a stop waits for a call that is being dialed
		if k.From == h.Process.Host && !k.Probe && !k.Began.After(h.decided) && k.At.After(by) {
			by = earliest(k.At, h.decided.Add(rpc.DefaultGrace))
		}
	}
	if c.slowClient(h.id) || c.struck(h.At, stalls...) {
		by = h.decided.Add(rpc.DefaultGrace)
	}
	if c.slowClient(h.id) && h.record.GetStopHeard() == nil { // the ending from below waits behind messages for the client, which reads at its pace
		at, _ := c.index(h.id)
		pauses := len(slices.DeleteFunc(slices.Clone(c.streams[at].Answer.Reads), func(t time.Time) bool { return t.Before(h.decided) || t.After(h.At) }))
		by = h.decided.Add(world.WriteTimeout + time.Duration(pauses)*c.pace(at))
	}
	if c.world.Schedule.Links != schedule.Only { // a call that is being opened may wait for a link
		by = by.Add(linkPatience)
	}
	return by.Add(c.farewell(h))
}

// backpressure reports whether the caller of a hop may have stopped reading: then the hop cannot
// read the ending of its callee, and ends when the grace is over.
func (c *Check) backpressure(h *hop) bool {
	return h.Reason == streamerr.SlowReader || c.slowClient(h.id) || c.struck(h.At, stalls...)
}

// linkPatience is the time for which a new call waits for a link (package link).
const linkPatience = 100 * time.Millisecond

// parts is the number of times that the longest message fills the buffers of a connection.
const parts = 6

// trip returns the longest travel time of a message on a connection that is not stalled. The two ends
// of a link may hold the message back for a write with others.
func (c *Check) trip() time.Duration {
	trip := c.world.Schedule.MaxDelay + moment + 2*mux.DefaultFlushEvery
	if c.struck(time.Now(), schedule.SlowChat, schedule.SlowWorker) {
		trip += slowest
	}
	if slices.ContainsFunc(c.world.Schedule.Requests, func(r schedule.Request) bool { return r.Prompt == schedule.Long }) {
		trip *= parts // behind a message that does not fit into the buffers
	}
	return trip
}

// delayed reports whether the connection of a call was stalled at some time, or the call waited for
// a stalled connection.
func (c *Check) delayed(l *leg) bool { return c.world.Net.EverStalled(l.call.From, l.call.To) }

// farewell returns the time beyond the grace that a hop may take to end a stopped stream: the
// message in hand may wait for credit, which the caller grants after it has read earlier ones.
func (c *Check) farewell(h *hop) time.Duration {
	credit := 2 * c.trip()
	switch {
	case h.Process == c.world.Edge && c.slowClient(h.id): // the message in hand and the ending may each wait for a slow client
		return 2*late(rpc.DefaultGrace) + moment
	case h.Process == c.world.Edge:
		return moment
	case isWorker(h.Process) && c.struck(h.At, schedule.EngineIsDeaf):
		return world.Deafest + step + credit
	case isWorker(h.Process):
		return step + credit
	default:
		return moment + credit
	}
}

func (c *Check) since(t time.Time) time.Duration { return c.world.Journal.Since(t) }

// accounts compares the token counts of a hop with those of the hops below, if all of them could
// report.
func (c *Check) accounts(h *hop) {
	if h.record == nil {
		return
	}
	below, calls := uint32(0), 0
	for _, l := range h.below {
		if !l.Served {
			continue
		}
		if calls++; !l.held() || l.reason == streamerr.Unspecified || l.Known.After(h.At) || h.record.GetStopHeard() != nil && !inTime(l, h) { // otherwise the hop has reset the call
			return
		}
		n, _ := strconv.Atoi(strings.Join(l.Trailer.Get("whence-tokens-generated"), ""))
		below += uint32(n)
	}
	if calls > 0 && below != h.record.GetTokensIn() {
		c.Fail("%s at %s: %d tokens generated, but the hops below say %d", h.id, h.Process.Name, h.record.GetTokensIn(), below)
	}
}
