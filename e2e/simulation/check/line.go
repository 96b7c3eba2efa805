package check

import (
	"slices"
	"time"

	"github.com/whence-dev/whence/e2e/simulation/schedule"
	"github.com/whence-dev/whence/e2e/simulation/world"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// This file checks the connections of clients.

// late is the longest time after which a coarse timer of d fires.
func late(d time.Duration) time.Duration { return d + d/16 }

// line checks the request i, which became the stream of h, against its connection: requests of a
// connection are answered one after another over HTTP/1.1, and a client that takes nothing ends its stream after
// the write timeout, and not before. Over TLS, what the client does not take may be the last record of a
// stream that has ended.
func (c *Check) line(i int, s *Stream, h *hop) {
	r := &c.world.Schedule.Requests[i]
	if r.Line != i && !c.world.Schedule.Muxed(i) && !c.world.Schedule.Requests[i-1].Kept && h.record != nil {
		for _, before := range c.world.Journal.Of(c.world.Edge, c.streams[i-1].ID) {
			if began := h.record.GetBegan().AsTime(); began.Before(before.At) {
				c.Fail("%s began %v before %v, the answer before it on its connection", s.ID, before.At.Sub(began), before)
			}
		}
	}
	waited := s.Answer.Waited
	if !c.world.Schedule.Secure && waited > late(world.WriteTimeout)+moment {
		c.Fail("%s: a write for the client waited for %v", s.ID, waited)
	}
	own := h.Reason == streamerr.SlowReader && len(h.path) == 1
	if own && c.pace(i) == 0 && !r.Keeps() && !r.Kept && waited < world.WriteTimeout-moment {
		c.Fail("%s: %v, though no write for the client waited longer than %v", s.ID, h, waited)
	}
}

// A Stranger is a stranger of the schedule, with the statuses of the answers that it got.
type Stranger struct {
	*schedule.Stranger
	Answers []int
	Ended   time.Time
}

// Strangers checks that each stranger got the answers that it must get.
func (c *Check) Strangers(all []Stranger) {
	for _, s := range all {
		said := schedule.Strange[s.Which]
		want := said.Answers
		if s.Plain && c.world.Schedule.Secure {
			want = nil
		}
		if !slices.Equal(s.Answers, want) && !c.struck(s.Ended, schedule.DrainEdge, schedule.HurryEdge) {
			c.Fail("a stranger that sends %s got %v, want %v", said.Name, s.Answers, want)
		}
	}
}
