// Package check finds violated invariants after a schedule. It compares the logs of all hops, the
// trailers of all callees, the ledgers, the bytes that clients read, and the undisturbed answers.
//
// The rules, file by file: each call has one ending (legs.go); an ending has an origin that the
// schedule or a hop's own timers explain (explain.go), or came from a neighbour that sent it
// earlier, or that was lost (neighbour.go); connected hops agree on the ending of a stream, and end
// it in time (agree.go); tokens are neither lost nor duplicated nor reordered (answer.go, kept.go);
// nothing is left (this file).
package check

import (
	"fmt"
	"strings"
	"time"

	"github.com/whence-dev/whence/e2e/simulation/client"
	memory "github.com/whence-dev/whence/e2e/simulation/network"
	"github.com/whence-dev/whence/e2e/simulation/schedule"
	"github.com/whence-dev/whence/e2e/simulation/world"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// settle is the time in which services must release all streams after the last ending.
	settle = 5 * time.Second
	// slowest is the maximum delay that a slow link adds to a message.
	slowest = 50 * time.Millisecond
	// step is longer than an engine's step: an engine releases a stream at the end of a step.
	step = 20 * time.Millisecond
	// moment is longer than the events of one time of the schedule take.
	moment = 2 * time.Millisecond
)

// A Stream is one request of the schedule, with the answers of its clients.
type Stream struct {
	ID      string // "" if the client has not learnt it
	Asked   time.Time
	Answer  client.Answer
	Readers [][]client.Answer // by reader and session
	Audit   client.Answer     // of a reader that came after the end
}

// A Strike is a fault that was injected.
type Strike struct {
	Fault    *schedule.Fault
	At       time.Time
	Answered time.Time // when a DELETE or a unary Stop was answered; zero without an answer
	Accepted bool      // the DELETE or Stop was accepted
}

// A Check finds violated invariants.
type Check struct {
	// Violations are the violated invariants.
	Violations []string
	// Endings counts the endings of streams at api-service by reason.
	Endings map[string]int
	// Moves counts the moves of streams between workers and between chat-services.
	Moves int

	world   *world.World
	wants   []client.Answer
	streams []Stream
	strikes []Strike
	legs    map[string][]*leg // by the stream's id at the callee
	ids     map[string]int    // the numbers of the requests, by their streams' ids
	// contacts are all probes and all failed dials.
	contacts []memory.Contact
}

// New returns a check of a world. wants are the undisturbed answers, by request; nil for no
// comparison.
func New(w *world.World, wants []client.Answer) *Check {
	return &Check{world: w, wants: wants, Endings: map[string]int{}}
}

// Fail adds a violation.
func (c *Check) Fail(format string, args ...any) {
	c.Violations = append(c.Violations, fmt.Sprintf(format, args...))
}

// Quiet checks that the running services have released all ended streams within settle.
func (c *Check) Quiet() {
	before := len(c.Violations)
	for began := time.Now(); ; time.Sleep(settle / 50) {
		within := settle
		if c.world.Net.AnyStalled() { // a callee learns that its caller has left when its keep-alive fails
			within += memory.CalleeGivesUp
		}
		c.Violations = c.Violations[:before]
		c.remains()
		if len(c.Violations) == before || time.Since(began) > within {
			return
		}
	}
}

// remains adds a violation for everything that is left of streams.
func (c *Check) remains() {
	for _, p := range c.world.Processes() {
		if n := p.Hop.Live.Len(); n > 0 {
			c.Fail("%s has %d live streams after all have ended", p.Name, n)
		}
	}
	for _, k := range c.world.Workers() {
		if l := k.Loop.Load(); l.GetRunning()+l.GetQueued() > 0 || l.GetKvUsedTokens() > 0 {
			c.Fail("%s has %v after all streams have ended", k.Name, l)
		}
	}
	for _, s := range c.world.Chats() {
		for _, known := range s.Registry.Workers() {
			if known.GetStreams() > 0 {
				c.Fail("%s counts %d streams at %s after all have ended", s.Name, known.GetStreams(), known.GetTarget())
			}
		}
		if unread, tokens := s.Registry.Charged(); unread != 0 || tokens != 0 {
			c.Fail("%s charges its workers with %d tokens to read and %d tokens in caches after all streams have ended", s.Name, unread, tokens)
		}
		if running, waiting := s.Registry.Queue(); running+waiting > 0 {
			c.Fail("%s has %d streams with a place and %d in its queue after all have ended", s.Name, running, waiting)
		}
	}
	for _, call := range c.world.Net.Calls() {
		if r := call.Report(); r.Served && r.Returned.IsZero() && r.Broke.IsZero() && r.Reset.IsZero() {
			c.Fail("the call of %s at %s is open after all streams have ended", call.From, call.To)
		}
	}
	if n := c.world.Requests(); n > 0 {
		c.Fail("%d requests of clients are open after all have their answers", n)
	}
}

// Closed checks that the services have left nothing behind.
func (c *Check) Closed() {
	for _, p := range c.world.Journal.Panics() { // only an engine may panic
		if !strings.HasPrefix(p.Name, "llm-worker/") || !c.struck(time.Now(), schedule.EnginePanics) {
			c.Fail("a handler of %s panicked", p.Name)
		}
	}
}

// struck reports whether a fault of one of some kinds was injected before a time.
func (c *Check) struck(before time.Time, kinds ...schedule.Kind) bool {
	for _, s := range c.strikes {
		for _, k := range kinds {
			if s.Fault.Kind == k && !s.At.After(before) {
				return true
			}
		}
	}
	return false
}

// stalls are the faults that an end of a connection notices only by the silence of the other.
var stalls = []schedule.Kind{schedule.StallChat, schedule.StallWorker, schedule.HalfOpenChat, schedule.HalfOpenWorker}

// oneLine reports whether two requests share a connection.
func (c *Check) oneLine(a, b int) bool {
	return c.world.Schedule.Requests[a].Line == c.world.Schedule.Requests[b].Line
}

// vanished returns when the machine of the client that asked for a stream vanished, or zero.
func (c *Check) vanished(id string) time.Time {
	at, known := c.index(id)
	for _, s := range c.strikes {
		if known && s.Fault.Kind == schedule.ClientVanishes && c.oneLine(s.Fault.Stream, at) {
			return s.At
		}
	}
	return time.Time{}
}

// Streams checks each stream, from its clients to its workers. strikes are the faults that were
// injected.
func (c *Check) Streams(streams []Stream, strikes []Strike) {
	c.streams, c.strikes, c.ids, c.contacts = streams, strikes, map[string]int{}, c.world.Net.Contacts()
	c.name(streams)
	c.collect()
	for id, all := range c.legs {
		c.endsOnce(id, all)
	}
	edge := c.world.Edge
	for i := range streams {
		s := &streams[i]
		ended := c.world.Journal.Of(edge, s.ID)
		switch {
		case s.ID == "" && (!s.Answer.Left.IsZero() || s.Answer.Status == 0):
		case len(ended) > 1:
			c.Fail("%s ended %d times at %s: %v", s.ID, len(ended), edge.Name, ended)
		case len(ended) == 0:
			c.refused(s)
		default:
			c.Endings[ended[0].Reason.String()]++
			if ended[0].Reason == streamerr.Invalid {
				c.Fail("%s: %v, but every request is valid", s.ID, ended[0])
			}
			c.recorded(ended[0])
			h := c.hop(s.ID, ended[0])
			c.answer(i, s, h)
			c.timely(i, s, h)
			c.line(i, s, h)
			c.catalogued(h)
			c.visit(h, nil)
			if c.world.Schedule.Requests[i].Keeps() || c.world.Schedule.Requests[i].Kept {
				c.kept(i, s, h)
			}
		}
	}
}
