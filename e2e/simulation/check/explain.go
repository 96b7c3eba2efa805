package check

import (
	"slices"
	"strings"
	"time"

	"github.com/whence-dev/whence/chat-service/choices"
	"github.com/whence-dev/whence/e2e/simulation/schedule"
	"github.com/whence-dev/whence/e2e/simulation/world"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// This file checks the sources of endings: each ending has an origin, and each hop got it from its
// neighbour (neighbour.go).

// visit checks the ending of a stream on a hop, and the endings of the calls below. from is the
// call that brought the stream, or nil at the first hop.
func (c *Check) visit(h *hop, from *leg) {
	c.moves(h)
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

// moves counts the moves of a stream at a hop.
func (c *Check) moves(h *hop) {
	c.Moves += len(h.record.GetMoves())
	for _, m := range h.record.GetMoves() {
		if c.world.Schedule.Stays && h.Process != c.world.Edge && m.GetTokens() > 0 {
			c.Fail("%s: %s moved the stream from %s after %d tokens, though it does not move such streams", h.id, h.Process.Name, m.GetFrom(), m.GetTokens())
		}
	}
}

// unexplained returns why a hop's ending of a stream is impossible, or "" if it is possible.
func (c *Check) unexplained(h *hop, from *leg) string {
	last := len(h.path) - 1
	if last < 0 || h.path[last] != h.Process.Name {
		return "the path does not end with the hop"
	}
	told := h.path[:last]
	switch {
	case len(told) == 0:
		return c.own(h, from)
	case len(told) == 1 && (told[0] == "client" || told[0] == "operator" || told[0] == "engine"):
		return c.outside(h, told[0])
	case from != nil && told[last-1] == from.caller.Name && !isWorker(from.caller):
		return c.fromAbove(h, told, from)
	default:
		return c.fromBelow(h, told)
	}
}

// own explains an ending that began at its hop.
func (c *Check) own(h *hop, from *leg) string {
	worker, edge := isWorker(h.Process), h.Process == c.world.Edge
	explained := false
	switch h.Reason {
	case streamerr.Completed: // the engine's answer, or a stop string found by chat-service
		explained = !edge
	case streamerr.Deadline:
		if explained = !worker && c.late(h, edge); !worker && !edge && !c.stays(h) {
			if name := c.idleWorker(h); name != "" {
				return "the stream waited for a token until then, though " + name + " was there"
			}
		}
	case streamerr.Draining:
		explained = draining(h)
	case streamerr.Overloaded:
		explained = worker && c.full(h, from)
	case streamerr.Unavailable:
		explained = !edge && !worker && c.deserted(h)
	case streamerr.SlowReader:
		slow := c.slowClient(h.id) || c.struck(h.decided, stalls...)
		explained = edge && (c.slowClient(h.id) || c.slowLastReader(h.id)) || !edge && slow && c.waits(h)
	case streamerr.Internal:
		explained = worker && c.broken(h, schedule.EnginePanics)
	default:
	}
	if explained {
		return ""
	}
	return "nothing explains that the hop has ended the stream by itself"
}

// stays reports whether a stream may not move to another worker.
func (c *Check) stays(h *hop) bool { return c.world.Schedule.Stays && h.record.GetTokensIn() > 0 }

// late reports whether a timer of a hop may have fired.
func (c *Check) late(h *hop, edge bool) bool {
	if h.record == nil {
		return true
	}
	ran := h.decided.Sub(h.record.GetBegan().AsTime()) // a deadline crosses the HTTP request as a decimal fraction
	deadline, stall := time.Duration(0), world.ChatStall
	if edge {
		stall = world.EdgeStall
		if r := c.request(h.id); r != nil {
			deadline = r.Deadline
		}
	}
	if deadline > 0 && ran > deadline-time.Microsecond {
		return true
	}
	quiet := ran                                    // since the last token
	repeats := edge && len(h.record.GetMoves()) > 0 // a chat-service that continues a stream repeats earlier tokens
	if h.record.GetTokensOut() > 0 && !repeats {
		for i, l := range h.below {
			left := slices.ContainsFunc(h.below[i+1:], func(next *leg) bool { return next.id == l.id && !next.call.Opened.After(l.Heard) })
			if l.Messages > 1 && !l.Heard.After(h.decided) && !left { // otherwise the time of the last message that counts is unknown
				quiet = min(quiet, h.decided.Sub(l.Heard))
			}
		}
	}
	return quiet >= stall
}

// waits reports whether a hop's caller may have left a stream unread for the stall timeout.
func (c *Check) waits(h *hop) bool {
	return h.record == nil || h.decided.Sub(h.record.GetBegan().AsTime()) >= world.ChatStall
}

// draining reports whether a process that shuts down ends its streams at the time at which h was
// decided.
func draining(h *hop) bool {
	at, hurried := h.Process.Drained(), h.Process.Hurried()
	if at.IsZero() || h.decided.Before(at) {
		return false
	}
	return !h.decided.Before(at.Add(world.Grace)) || !hurried.IsZero() && !h.decided.Before(hurried)
}

// full reports whether the worker of h was full with other streams.
func (c *Check) full(h *hop, from *leg) bool {
	others := 0
	for _, all := range c.legs {
		for _, l := range all {
			if l != from && l.callee == h.Process && l.Served && l.call.Opened.Before(h.decided) && (l.Returned.IsZero() || !l.Returned.Before(h.decided)) {
				others++
			}
		}
	}
	return others >= world.WorkerStreams
}

// deserted reports whether the chat-service of h knew no available worker when h was decided.
func (c *Check) deserted(h *hop) bool {
	if c.world.Schedule.Links != schedule.Only && h.decided.Sub(h.Process.Began) < linked { // a worker counts when its links are known
		return true
	}
	for i := range schedule.Workers {
		if c.reachable(h.Process, world.WorkerAddr(i), h.decided) {
			return false
		}
	}
	return true
}

// linked is longer than a hop takes to find out whether a callee has links.
const linked = 2 * time.Second

// reachable reports whether the last probe of a worker by a chat-service before a time succeeded.
func (c *Check) reachable(by *world.Process, addr string, at time.Time) (well bool) {
	for _, k := range c.contacts {
		if k.From == by.Host && k.To == addr && k.Probe && k.At.Before(at) {
			well = k.Well
		}
	}
	return well
}

// outside explains an ending whose origin is not a hop.
func (c *Check) outside(h *hop, origin string) string {
	explained := false
	switch edge := h.Process == c.world.Edge; {
	case origin == "engine" && h.Reason == streamerr.EngineFailed:
		explained = isWorker(h.Process) && c.broken(h, schedule.EngineFails)
	case origin == "engine" && h.Reason == streamerr.Completed:
		explained = isWorker(h.Process)
	case origin == "client" && h.Reason == streamerr.ClientGone:
		explained = edge // timely and kept check the departures of clients
	case origin == "client" && h.Reason == streamerr.UserStop:
		explained = edge && c.stopped(h, schedule.DeleteStream)
	case origin == "operator" && h.Reason == streamerr.OperatorStop && isWorker(h.Process):
		explained = c.stopped(h, schedule.StopAtWorker)
	case origin == "operator" && h.Reason == streamerr.OperatorStop && !edge:
		explained = c.stopped(h, schedule.StopAtChat)
	}
	if explained {
		return ""
	}
	return "nothing explains this origin"
}

// stopped reports whether a request to stop the stream of h was in flight when h was decided.
func (c *Check) stopped(h *hop, by schedule.Kind) bool {
	at, known := c.index(h.id)
	for _, s := range c.strikes {
		switch n := c.world.Schedule.Requests[s.Fault.Stream].N; {
		case !known || s.Fault.Kind != by || s.Fault.Stream != at || s.At.After(h.decided):
		case !s.Answered.IsZero() && s.Answered.Before(h.decided) && (h.record != nil || !s.Accepted): // without a record the time of the decision is unknown
		case by == schedule.StopAtChat && h.Process.Host.Name() != world.ChatAddr(s.Fault.Chat):
		case by == schedule.StopAtWorker && h.Process.Host.Name() != world.WorkerAddr(s.Fault.Worker):
		case by == schedule.StopAtWorker && n > 1 && !strings.HasSuffix(h.id, choices.ID("", s.Fault.N%n)):
		default:
			return true
		}
	}
	return false
}

// broken reports whether the engine of h's worker had a fault when it ended the stream.
func (c *Check) broken(h *hop, kind schedule.Kind) bool {
	for _, s := range c.strikes {
		if s.Fault.Kind == kind && h.Process.Host.Name() == world.WorkerAddr(s.Fault.Worker) && !h.At.Before(s.At) && !h.At.After(s.At.Add(world.FaultLasts+step)) {
			return true
		}
	}
	return false
}

// slowClient reports whether a client of a stream reads slowly.
func (c *Check) slowClient(id string) bool {
	at, known := c.index(id)
	if !known {
		return false
	}
	for _, s := range c.strikes {
		if (s.Fault.Kind == schedule.ClientStalls || s.Fault.Kind == schedule.ClientVanishes) && c.oneLine(s.Fault.Stream, at) {
			return true
		}
	}
	return c.pace(at) > 0
}

// pace returns the longest time between two reads for a request or one before it on its connection.
func (c *Check) pace(at int) (longest time.Duration) {
	for i, r := range c.world.Schedule.Requests[:at+1] {
		if c.oneLine(i, at) {
			longest = max(longest, r.Pace)
		}
	}
	return longest
}

// slowLastReader reports whether a reader may have ended a stream by reading too slowly: the policy
// cancel ends a stream with the reason of its last reader.
func (c *Check) slowLastReader(id string) bool {
	r := c.request(id)
	return r != nil && r.Leave == schedule.Cancel && slices.ContainsFunc(r.Readers, func(reader schedule.Reader) bool {
		return slices.ContainsFunc(reader.Sessions, func(s schedule.Session) bool { return s.Pace > 0 || s.Stall >= world.WriteTimeout })
	})
}

// earliest returns the earlier of two times. A zero time does not count.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// found is the longest time that a worker may be idle before it gets a stream: two probes, of which
// the first may fall into the backoff after a failed dial, and the silence of another worker.
const found = 2*time.Second + 2*world.MigrateAfter + slowest

func isWorker(p *world.Process) bool { return strings.HasPrefix(p.Name, "llm-worker/") }

// idleWorker returns the name of a worker that could have taken a stream that waited until a timer
// fired: the worker has run undisturbed for longer than it takes to find it and to abandon another
// worker.
func (c *Check) idleWorker(h *hop) string {
	for i, w := range c.world.Workers() {
		if w.Dead() || !w.Drained().IsZero() || h.decided.Sub(w.Began) < found {
			continue
		}
		if !c.disturbed(i) && !spurned(h, w.Name) {
			return w.Name
		}
	}
	return ""
}

// spurned reports whether a stream does not return to a worker (package failover): the worker was full,
// or held the stream's id, or had failed the stream before another worker admitted it, which is slow with
// its first token.
func spurned(h *hop, worker string) bool {
	admitted := slices.ContainsFunc(h.below, func(l *leg) bool {
		return l.Messages == 1 && (l.Known.IsZero() || !l.Known.Before(h.decided))
	})
	return slices.ContainsFunc(h.record.GetMoves(), func(m *streamv1.Move) bool {
		why := streamerr.Reason(m.GetReason())
		return m.GetFrom() == worker && (admitted || why == streamerr.Overloaded || why == streamerr.Invalid)
	})
}

// disturbed reports whether a worker's engine or connections had a fault.
func (c *Check) disturbed(worker int) bool {
	for _, s := range c.strikes {
		switch s.Fault.Kind {
		case schedule.EngineFails, schedule.EngineHangs, schedule.EngineIsDeaf, schedule.EnginePanics,
			schedule.CutWorker, schedule.CutWorkerAfter, schedule.StallWorker, schedule.SlowWorker, schedule.HalfOpenWorker, schedule.ForgeWorker:
			if s.Fault.Worker == worker {
				return true
			}
		default:
		}
	}
	return false
}
