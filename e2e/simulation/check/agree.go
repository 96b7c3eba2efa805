package check

import (
	"strconv"
	"strings"
	"time"

	"github.com/whence-dev/whence/e2e/simulation/schedule"
	"github.com/whence-dev/whence/e2e/simulation/world"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// This file checks that the hops of a stream end it alike, and in time.

// agree compares the ending of a stream on a hop with those of the calls that it had open then.
func (c *Check) agree(h *hop) {
	stopped := h.record.GetStopHeard() != nil
	open, confirmed := 0, 0
	for _, l := range h.below {
		if l.Served && (l.Returned.IsZero() || !l.Returned.Before(h.decided)) {
			open++
		}
		if stopped && !l.Known.IsZero() && !l.Known.Before(h.decided) && l.heard() {
			confirmed++
		}
		if l.ended == nil || l.ended.record == nil || !l.held() || c.delayed(l) {
			continue
		}
		// A callee that ends the stream by itself, after the caller has told it to, has not heard the caller.
		heard := h.decided.Add(c.trip())
		fromCaller := len(l.path) > 1 && l.path[len(l.path)-2] == h.Process.Name
		switch {
		case fromCaller && l.reason == h.Reason && l.ended.decided.After(heard):
			c.Fail("%s: %v was decided at +%v, and %v at +%v", h.id, h, c.since(h.decided), l.ended, c.since(l.ended.decided))
		case !fromCaller && l.ended.decided.After(heard):
			c.Fail("%s: %v, but %v, which was decided %v later", h.id, h, l.ended, l.ended.decided.Sub(h.decided))
		}
	}
	if stopped && len(h.below) == 1 && open == 1 && confirmed == 1 && !c.dials(h) && h.record.GetStopConfirmed() == nil && h.Reason != streamerr.Completed {
		c.Fail("%s: %v is not confirmed, though %v", h.id, h, h.below[0].ended)
	}
	if at := h.record.GetStopConfirmed(); at != nil && confirmed == 0 && !isWorker(h.Process) {
		c.Fail("%s: %v is confirmed, though no callee has ended the stream when it was stopped", h.id, h)
	}
	if by := c.endsBy(h); h.At.After(by) {
		c.Fail("%s: %v was decided at +%v, and came %v too late", h.id, h, c.since(h.decided), h.At.Sub(by))
	}
}

// dials reports whether a process was trying to make a call when it learnt that a stream is to end.
func (c *Check) dials(h *hop) bool {
	for _, k := range c.contacts {
		if k.From == h.Process.Host && !k.Probe && !k.Began.After(h.decided) && !k.At.Before(h.decided) {
			return true
		}
	}
	return false
}

// endsBy returns when a hop must have ended a stream after the decision: when the calls that it had then are over, or their grace;
// later if it waits for a reader, or for an engine that does not hear.
func (c *Check) endsBy(h *hop) time.Time {
	by := h.decided
	for _, l := range h.below {
		if l.call.Opened.After(h.decided) || !l.Known.IsZero() && l.Known.Before(by) {
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
	if c.slowClient(h.id) || c.struck(h.At, schedule.StallChat, schedule.StallWorker) {
		by = h.decided.Add(rpc.DefaultGrace)
	}
	return by.Add(c.farewell(h))
}

// trip returns the longest time that a message takes if its connection is not stalled.
func (c *Check) trip() time.Duration {
	trip := c.world.Schedule.MaxDelay + moment
	if c.struck(time.Now(), schedule.SlowChat, schedule.SlowWorker) {
		trip += slowest
	}
	return trip
}

// delayed reports whether the connection of a call was stalled at some time, or the call waited for it.
func (c *Check) delayed(l *leg) bool { return c.world.Net.EverStalled(l.call.From, l.call.To) }

// farewell returns how much longer than the grace a hop may take to end a stream that is stopped.
func (c *Check) farewell(h *hop) time.Duration {
	switch {
	case h.Process == c.world.Edge && c.slowClient(h.id): // a write to a slow client is given up behind the grace
		return rpc.DefaultGrace + moment
	case isWorker(h.Process) && c.struck(h.At, schedule.EngineIsDeaf):
		return world.Deafest + step
	case isWorker(h.Process):
		return step
	default:
		return moment
	}
}

func (c *Check) since(t time.Time) time.Duration { return c.world.Journal.Since(t) }

// accounts compares the counts of tokens of a hop with those of the hops below, if all of them could tell it.
func (c *Check) accounts(h *hop) {
	if h.record == nil {
		return
	}
	below, calls := uint32(0), 0
	for _, l := range h.below {
		if !l.Served {
			continue
		}
		if calls++; !l.held() || l.reason == streamerr.Unspecified {
			return
		}
		n, _ := strconv.Atoi(strings.Join(l.Trailer.Get("whence-tokens-generated"), ""))
		below += uint32(n)
	}
	if calls > 0 && below != h.record.GetTokensIn() {
		c.Fail("%s at %s: %d tokens generated, but the hops below say %d", h.id, h.Process.Name, h.record.GetTokensIn(), below)
	}
}
