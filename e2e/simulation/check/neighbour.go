package check

import (
	"slices"
	"strings"
	"time"

	"github.com/whence-dev/whence/e2e/simulation/schedule"
	"github.com/whence-dev/whence/e2e/simulation/world"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// This file checks that a hop got the ending of a stream from a neighbour that may have sent it, or
// that was lost.

// fromAbove explains an ending that the caller sent: the caller's own, the ending of an attempt
// that the caller has abandoned, or a lost call.
func (c *Check) fromAbove(h *hop, told streamerr.Path, from *leg) string {
	switch {
	case h.Reason == streamerr.PeerLost && len(told) == 1:
		if !from.Lost.IsZero() && !from.Lost.After(h.decided) {
			return ""
		}
		return "its connection to the caller held"
	case h.Reason == streamerr.PeerReset && len(told) == 1:
		if !from.Reset.IsZero() && !from.Reset.After(h.decided) {
			return ""
		}
		return "the caller has not reset the call"
	case h.Reason == streamerr.Completed && len(told) == 1:
		if r := c.request(h.id); r == nil || r.Stop || int(h.record.GetTokensOut()) >= r.Tokens {
			return "" // the caller had what it needed
		}
		return "the caller cannot have had all that it needed"
	case len(told) == 2 && told[0] == h.Process.Name && c.abandoned(h, from):
		return "" // by a stream that continues without it
	case h.Reason == streamerr.UserStop && len(told) == 2 && told[0] == "client" && from.caller == c.world.Edge && c.stopped(h, schedule.DeleteStream):
		return "" // by api-service's unary Stop of a stream that has ended there
	case c.fromSibling(h, told, from):
		return "" // whatever the caller ends the whole stream with afterwards
	}
	for whole := h.id; ; { // a choice ends with the whole stream, too
		if (wanted(h.Reason) || len(told) > 1 && c.heardStop(from.caller, whole)) && c.completed(from.caller, whole) {
			return "" // the stop went down while the caller completed the stream
		}
		if c.tells(from.caller, whole, h, told) {
			return ""
		}
		at := strings.LastIndexByte(whole, '.')
		if at < 0 {
			return "the caller has not sent this ending"
		}
		whole = whole[:at]
	}
}

// fromSibling reports whether a caller had an ending from another choice of the stream.
func (c *Check) fromSibling(h *hop, told streamerr.Path, from *leg) bool {
	whole, _, choice := strings.Cut(h.id, ".")
	for id, all := range c.legs {
		if !choice || id == h.id || !strings.HasPrefix(id, whole+".") {
			continue
		}
		for _, l := range all {
			if l.caller == from.caller && l.heard() && !l.Known.After(h.decided) && l.reason == h.Reason && slices.Equal(l.path, told[:len(told)-1]) {
				return true
			}
		}
	}
	return false
}

// completed reports whether a process completed a stream.
func (c *Check) completed(p *world.Process, id string) bool {
	return slices.ContainsFunc(c.world.Journal.Of(p, id), func(e world.Ending) bool { return e.Reason == streamerr.Completed })
}

// heardStop reports whether a process was asked to stop a stream.
func (c *Check) heardStop(p *world.Process, id string) bool {
	return ledger.At(p.Hop).Get(id).GetStopHeard() != nil
}

// tells reports whether a caller ended a stream with the ending that its callee h reports, and not
// after h received it. A killed caller sends nothing after its death.
func (c *Check) tells(caller *world.Process, id string, h *hop, told streamerr.Path) bool {
	killed := caller.Killed()
	for _, up := range slices.Concat(c.world.Journal.Of(caller, id), c.world.Journal.Unsaid(caller, id)) {
		if up.Reason != h.Reason || up.Path != told.String() {
			continue
		}
		above := c.hop(id, up)
		failed := above.record.GetStopHeard() == nil || len(told) > 1 && strings.HasPrefix(told[len(told)-2], "llm-worker/")
		if above.record == nil || id != h.id && failed {
			return true // the time of the decision is unknown: a failing choice stops the others before the whole stream ends
		}
		if !above.decided.After(h.decided) && (killed.IsZero() || !above.decided.After(killed)) {
			return true
		}
	}
	return false
}

// abandoned reports whether the caller may have abandoned an attempt because the worker was silent
// or did not answer probes.
func (c *Check) abandoned(h *hop, from *leg) bool {
	switch h.Reason {
	case streamerr.Deadline:
		stalled := c.world.Net.StalledSince(from.call.From, from.call.To, h.decided)
		return from.silent(h.decided, 2*c.trip()) || // the caller counts the time in which it dials,
			!stalled.IsZero() && h.decided.Sub(stalled) >= world.MigrateAfter-2*c.trip() // and in which the call waits for room in the connection
	case streamerr.Unavailable:
		return c.failedProbe(from.caller, from.call.To, c.movedUnread(from.caller, h), from.call.Opened, h.decided)
	default:
		return false
	}
}

// silent reports whether, up to a time, the caller ever waited for a message long enough to abandon
// the attempt, but for a slack.
func (l *leg) silent(until time.Time, slack time.Duration) bool {
	since := l.Heard
	if since.IsZero() || since.After(until) {
		since = l.call.Asked
	}
	return max(l.Quiet, until.Sub(since)) >= world.MigrateAfter-slack
}

// movedUnread reports whether a caller may have abandoned the attempt of h before it had a token.
func (c *Check) movedUnread(by *world.Process, h *hop) bool {
	id, _, _ := strings.Cut(h.id, ".")
	r := ledger.At(by.Hop).Get(id)
	return r == nil || slices.ContainsFunc(r.GetMoves(), func(m *streamv1.Move) bool {
		return m.GetFrom() == h.Process.Name && streamerr.Reason(m.GetReason()) == streamerr.Unavailable && m.GetTokens() == 0
	})
}

// failedProbe reports whether a probe failed in a time interval. A callee that drains answers, but
// fails the probe of a stream that it has not begun.
func (c *Check) failedProbe(by *world.Process, addr string, unread bool, from, to time.Time) bool {
	for _, k := range c.contacts {
		if k.From == by.Host && k.To == addr && k.Probe && (!k.Answered || unread && !k.Well) && !k.At.Before(from) && !k.At.After(to) {
			return true
		}
	}
	return false
}

// fromBelow explains an ending that a callee sent, or the loss of a callee.
func (c *Check) fromBelow(h *hop, told streamerr.Path) string {
	peer := told[len(told)-1]
	known := false
	for _, l := range h.below {
		if l.callee.Name != peer && !strings.HasSuffix(peer, "/"+l.call.To) {
			continue
		}
		known = true
		if l.says(h, told) || len(told) == 1 && c.lost(h, l) {
			return ""
		}
	}
	switch {
	case len(told) == 1 && (h.Reason == streamerr.PeerLost || h.Reason == streamerr.Unavailable) && c.unreachable(h, peer, 0):
		return ""
	case len(told) == 1 && h.Reason == streamerr.Deadline && h.Process != c.world.Edge && c.unreachable(h, peer, world.MigrateAfter):
		return ""
	case len(told) == 1 && (h.Reason == streamerr.PeerLost || h.Reason == streamerr.Unavailable && h.Process != c.world.Edge) && c.world.Net.Lost(h.Process.Host.Name(), address(peer), h.record.GetBegan().AsTime(), h.At):
		return "" // the call's beginning waited for room in the connection
	case !known:
		return "there is no call to " + peer
	default:
		return "no callee has sent this ending"
	}
}

// says reports whether the caller h got an ending from a callee: with the end of the call, or in a
// message with the ending.
func (l *leg) says(h *hop, told streamerr.Path) bool {
	if l.ending != nil && h.Reason == streamerr.Completed && slices.Equal(l.ending, told) && !l.Heard.After(h.At) {
		return true
	}
	if !l.heard() || l.Known.After(h.At) {
		return false
	}
	return l.reason == h.Reason && slices.Equal(l.path, told) || l.refused != nil && l.refused.Reason == h.Reason && slices.Equal(l.refused.Path, told)
}

// lost reports whether the loss of a callee, its silence, or the rest of its answer explain an
// ending that the callee did not send.
func (c *Check) lost(h *hop, l *leg) bool {
	chat := h.Process != c.world.Edge
	switch h.Reason {
	case streamerr.PeerLost:
		return !l.Broke.IsZero() && !l.Broke.After(h.At)
	case streamerr.Unavailable: // before the first token: the loss of all attempted workers
		return chat && (!l.Broke.IsZero() && !l.Broke.After(h.At) || c.failedProbe(h.Process, l.call.To, true, l.call.Opened, h.At))
	case streamerr.Deadline:
		return chat && l.silent(h.decided, 2*c.trip())
	case streamerr.Completed: // all tokens had arrived, but not the ending
		r := c.request(h.id)
		return chat && (r == nil || int(h.record.GetTokensIn()) >= r.Tokens)
	default:
		return false
	}
}

// unreachable reports whether a hop tried to call a peer for some time without success while the
// stream ran.
func (c *Check) unreachable(h *hop, peer string, tried time.Duration) bool {
	addr := address(peer)
	for _, k := range c.contacts {
		if k.From == h.Process.Host && k.To == addr && !k.Probe && k.At.Sub(k.Began) >= tried && !k.Began.After(h.At) &&
			(h.record == nil || !k.At.Before(h.record.GetBegan().AsTime())) {
			return true
		}
	}
	return false
}

// address returns the address of a peer by its name in a path.
func address(peer string) string {
	service, which, _ := strings.Cut(peer, "/")
	for i := range schedule.Workers {
		if peer == world.WorkerName(i) {
			return world.WorkerAddr(i)
		}
	}
	if service == peer { // the only instance
		return world.ChatAddr(0)
	}
	return which
}
