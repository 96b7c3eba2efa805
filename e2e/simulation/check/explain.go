package check

import (
	"slices"
	"strings"
	"time"

	"github.com/whence-dev/whence/e2e/simulation/schedule"
	"github.com/whence-dev/whence/e2e/simulation/world"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// This file checks where endings come from: each has an origin, and each hop has it from its neighbour.

// visit checks the ending of a stream on a hop, and those of the calls below. from is the call that brought the stream; nil at
// the first hop.
func (c *Check) visit(h *hop, from *leg) {
	c.Moves += len(h.record.GetMoves())
	if why := c.unexplained(h, from); why != "" {
		c.Fail("%s: %v: %s", h.id, h, why)
	}
	c.agree(h)
	c.accounts(h)
	for _, l := range h.below {
		if l.ended != nil {
			c.visit(l.ended, l)
		}
	}
}

// unexplained says why a hop cannot have ended a stream as it has; "" if it can.
func (c *Check) unexplained(h *hop, from *leg) string {
	last := len(h.path) - 1
	if last < 0 || h.path[last] != h.Process.Name {
		return "the path does not end with the hop"
	}
	told := h.path[:last]
	switch {
	case len(told) == 0:
		return c.own(h)
	case len(told) == 1 && (told[0] == "client" || told[0] == "operator" || told[0] == "engine"):
		return c.outside(h, told[0])
	case from != nil && told[last-1] == from.caller.Name && !strings.HasPrefix(told[last-1], "llm-worker/"):
		return c.fromAbove(h, told, from)
	default:
		return c.fromBelow(h, told)
	}
}

// own explains an ending that began at its hop.
func (c *Check) own(h *hop) string {
	worker, edge := isWorker(h.Process), h.Process == c.world.Edge
	explained := false
	switch h.Reason {
	case streamerr.Completed: // the engine's answer, or a stop string that chat-service has found
		explained = !edge
	case streamerr.Deadline:
		if explained = !worker && c.late(h, edge); !worker && !edge {
			if name := c.idleWorker(h); name != "" {
				return "the stream waited for a token until then, though " + name + " was there"
			}
		}
	case streamerr.Draining:
		at := h.Process.Drained()
		explained = !at.IsZero() && !at.After(h.decided)
	case streamerr.Overloaded:
		explained = !edge
	case streamerr.Unavailable:
		explained = !edge && !worker && c.struck(h.At, lossOfWorkers...)
	case streamerr.SlowReader:
		explained = edge && c.slowClient(h.id) || !edge && c.waits(h)
	case streamerr.Internal:
		explained = worker && c.struck(h.At, schedule.EnginePanics)
	default:
	}
	if explained {
		return ""
	}
	return "nothing explains that the hop has ended the stream by itself"
}

// late reports whether a timer of a hop can have fired.
func (c *Check) late(h *hop, edge bool) bool {
	ran := h.decided.Sub(h.record.GetBegan().AsTime()) // a deadline crosses the HTTP request as a decimal fraction
	switch {
	case h.record == nil:
		return true
	case !edge:
		return ran >= world.ChatStall
	default:
		deadline := c.request(h.id).Deadline
		return deadline > 0 && ran > deadline-time.Microsecond || ran >= world.EdgeStall
	}
}

// request returns the request of a stream of api-service.
func (c *Check) request(id string) *schedule.Request {
	return &c.world.Schedule.Requests[c.index(id)]
}

// waits reports whether a hop's caller can have left a stream unread for as long as the stall timeout.
func (c *Check) waits(h *hop) bool {
	return h.record == nil || h.decided.Sub(h.record.GetBegan().AsTime()) >= world.ChatStall
}

// lossOfWorkers are the faults after which a chat-service may have no worker.
var lossOfWorkers = []schedule.Kind{
	schedule.CutWorker, schedule.CutWorkerAfter, schedule.StallWorker, schedule.SlowWorker, schedule.KillWorker, schedule.DrainWorker,
	schedule.EngineFails, schedule.EngineHangs, schedule.EngineIsDeaf, schedule.EnginePanics, schedule.KillChat, schedule.DrainChat,
}

// outside explains an ending whose origin is no hop.
func (c *Check) outside(h *hop, origin string) string {
	explained := false
	switch edge := h.Process == c.world.Edge; {
	case origin == "engine" && h.Reason == streamerr.EngineFailed:
		explained = c.struck(h.At, schedule.EngineFails)
	case origin == "engine" && h.Reason == streamerr.Completed:
		explained = isWorker(h.Process)
	case origin == "client" && h.Reason == streamerr.ClientGone:
		explained = edge // timely and kept know when clients leave
	case origin == "client" && h.Reason == streamerr.UserStop:
		explained = edge && c.stopped(h, schedule.DeleteStream)
	case origin == "operator" && h.Reason == streamerr.OperatorStop && strings.HasPrefix(h.Process.Name, "chat-service"):
		explained = c.stopped(h, schedule.StopAtChat)
	case origin == "operator" && h.Reason == streamerr.OperatorStop:
		explained = c.stopped(h, schedule.StopAtWorker)
	}
	if explained {
		return ""
	}
	return "nothing explains this origin"
}

// stopped reports whether a request to stop the stream of h was on its way when h was decided.
func (c *Check) stopped(h *hop, by schedule.Kind) bool {
	return slices.ContainsFunc(c.strikes, func(s *Strike) bool {
		return s.Fault.Kind == by && c.index(h.id) == s.Fault.Stream && !s.At.After(h.decided) && (s.Answered.IsZero() || !s.Answered.Before(h.decided) || s.Accepted)
	})
}

// fromAbove explains an ending that the caller has told: the caller's own, the cause of a move, or a lost call.
func (c *Check) fromAbove(h *hop, told streamerr.Path, from *leg) string {
	switch h.Reason {
	case streamerr.PeerLost:
		if from.Broke || c.delayed(from) || !from.caller.Drained().IsZero() {
			return "" // behind a stall, the callee's keep-alive has failed
		}
	case streamerr.PeerReset:
		if from.Broke || !from.Reset.IsZero() {
			return ""
		}
	case streamerr.Completed:
		if len(told) == 1 {
			return "" // the caller had what it needed
		}
	default:
	}
	if from.caller.Dead() {
		return ""
	}
	whole := h.id
	for { // a choice ends with the whole stream, too
		for _, up := range c.world.Journal.Of(from.caller, whole) {
			if up.Reason == h.Reason && up.Path == told.String() {
				return ""
			}
			for _, m := range c.hop(whole, up).record.GetMoves() {
				if streamerr.Reason(m.GetReason()) == h.Reason {
					return ""
				}
			}
		}
		at := strings.LastIndexByte(whole, '.')
		if at < 0 {
			return "the caller has not told this"
		}
		whole = whole[:at]
	}
}

// fromBelow explains an ending that a callee has told, or the loss of a callee.
func (c *Check) fromBelow(h *hop, told streamerr.Path) string {
	peer := told[len(told)-1]
	known := false
	for _, l := range h.below {
		if l.callee.Name != peer && !strings.HasSuffix(peer, "/"+l.call.To) {
			continue
		}
		known = true
		switch {
		case l.reason == h.Reason && slices.Equal(l.path, told):
			return ""
		case l.refused != nil && l.refused.Reason == h.Reason && slices.Equal(l.refused.Path, told):
			return ""
		case l.callee.Dead() && h.Reason != streamerr.Completed:
			return ""
		case h.Reason == streamerr.Completed && len(told) == 1 && (!l.held() || l.reason != streamerr.Completed):
			return "" // all tokens had come, and the ending had not
		case h.Reason == streamerr.Completed && l.callee.Dead():
			return "" // it was killed behind its ending
		case len(told) == 1 && h.Reason == streamerr.PeerLost && l.Broke:
			return ""
		case len(told) == 1 && h.Reason == streamerr.Deadline && h.At.Sub(l.call.Opened) >= world.MigrateAfter:
			return ""
		}
	}
	if len(told) == 1 && c.struck(h.At, lost...) && (h.Reason == streamerr.PeerLost || h.Reason == streamerr.Unavailable) {
		return "" // no call could be made
	}
	if !known {
		return "there is no call to " + peer
	}
	return "no callee has told this"
}

// lost are the faults that break connections.
var lost = append([]schedule.Kind{schedule.CutChat, schedule.CutChatAfter, schedule.StallChat, schedule.SlowChat}, lossOfWorkers...)

// slowClient reports whether a client of a stream reads slowly.
func (c *Check) slowClient(id string) bool {
	at := c.index(id)
	return c.world.Schedule.Requests[at].Pace > 0 || slices.ContainsFunc(c.strikes, func(s *Strike) bool {
		return s.Fault.Kind == schedule.ClientStalls && s.Fault.Stream == at
	})
}

// earliest returns the earlier of two times. A zero time does not count.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// found is how long a worker may have run without any stream: two probes, of which the first may meet
// the pause of the connection after a failed dial, and the silence of another worker.
const found = 2*time.Second + 2*world.MigrateAfter + slowest

func isWorker(p *world.Process) bool { return strings.HasPrefix(p.Name, "llm-worker/") }

// idleWorker returns the name of a worker that could have taken a stream that waited until a timer fired: it has run for
// longer than it takes to find it and to leave another worker, and nothing has disturbed it.
func (c *Check) idleWorker(h *hop) string {
	for i, w := range c.world.Workers() {
		if w.Dead() || !w.Drained().IsZero() || h.decided.Sub(w.Began) < found {
			continue
		}
		disturbed := slices.ContainsFunc(c.strikes, func(s *Strike) bool {
			switch s.Fault.Kind {
			case schedule.EngineFails, schedule.EngineHangs, schedule.EngineIsDeaf, schedule.EnginePanics,
				schedule.CutWorker, schedule.CutWorkerAfter, schedule.StallWorker, schedule.SlowWorker:
				return s.Fault.Worker == i
			default:
				return false
			}
		})
		if !disturbed {
			return w.Name
		}
	}
	return ""
}
