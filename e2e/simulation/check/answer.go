package check

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/whence-dev/whence/api-service/extent"
	"github.com/whence-dev/whence/e2e/simulation/schedule"
	"github.com/whence-dev/whence/e2e/simulation/world"
	"github.com/whence-dev/whence/lab"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// name gives each stream its id. A client that left before it had the answer to POST /v1/streams
// does not know the id. Its stream is one that api-service ended and that no other client knows;
// several are assigned in the order of their requests.
func (c *Check) name(streams []Stream) {
	for i := range streams {
		if id := streams[i].ID; id != "" {
			c.ids[id] = i
		}
	}
	type namelessStream struct {
		id    string
		began time.Time
	}
	var rest []namelessStream
	for _, e := range c.world.Journal.At(c.world.Edge) {
		if _, known := c.ids[e.Stream]; !known {
			rest = append(rest, namelessStream{e.Stream, ledger.At(e.Process.Hop).Get(e.Stream).GetBegan().AsTime()})
		}
	}
	slices.SortFunc(rest, func(a, b namelessStream) int { return a.began.Compare(b.began) })
	for len(rest) > 0 {
		first := -1
		for i := range streams {
			if s := &streams[i]; s.ID == "" && c.world.Schedule.Requests[i].Kept && (first < 0 || s.Asked.Before(streams[first].Asked)) {
				first = i
			}
		}
		if first < 0 || streams[first].Asked.After(rest[0].began) {
			c.Fail("no client requested the stream %s", rest[0].id)
			return
		}
		streams[first].ID = rest[0].id
		c.ids[rest[0].id] = first
		rest = rest[1:]
	}
}

// index returns the number of the request whose stream has an id, or a choice of it.
func (c *Check) index(id string) (at int, known bool) {
	whole, _, _ := strings.Cut(id, ".")
	at, known = c.ids[whole]
	return at, known
}

// request returns the request of a stream, or nil.
func (c *Check) request(id string) *schedule.Request {
	if at, known := c.index(id); known {
		return &c.world.Schedule.Requests[at]
	}
	return nil
}

// refused checks the answer to a request that did not become a stream: only api-service itself
// refuses requests here, because it shuts down.
func (c *Check) refused(s *Stream) {
	got := &s.Answer
	if len(c.legs[s.ID]) > 0 {
		c.Fail("%s has no ending at %s, but calls below", s.ID, c.world.Edge.Name)
	}
	drained := c.struck(got.Ended, schedule.DrainEdge, schedule.HurryEdge)
	switch {
	case !got.Left.IsZero():
	case got.Shut: // by the answer before
	case c.world.Schedule.Secure && got.Stalled && got.Status == 0 && !got.Closed.Before(got.Asked.Add(world.ReadTimeout)): // in the handshake
	case drained && got.Error != nil && got.Error.Reason == streamerr.Draining && got.Error.Path.String() == c.world.Edge.Name && got.Status == http.StatusServiceUnavailable:
	case drained && got.Status == 0:
	default:
		c.Fail("%s has no ending at %s, and its client got %d %q", s.ID, c.world.Edge.Name, got.Status, got.Body)
	}
}

// answer compares what the client of a request got with the ending that the edge logged.
func (c *Check) answer(i int, s *Stream, h *hop) {
	r, got := &c.world.Schedule.Requests[i], &s.Answer
	completed := h.Reason == streamerr.Completed
	if got.Wrong != "" {
		c.Fail("the client of %s got a broken answer: %s", s.ID, got.Wrong)
	}
	if r.Kept {
		if got.Status == http.StatusCreated {
			return // its readers get the ending
		}
		completed = false
	} else {
		c.text(i, s)
	}
	if got.Done && !completed {
		c.Fail("%s is complete for its client, but %v", s.ID, h)
	}
	if got.Shut {
		c.Fail("%v, though the answer before it has ended the connection", h)
	}
	if !got.Left.IsZero() {
		return
	}
	// A client may be disconnected if it reads so slowly that the rest does not arrive within the
	// farewell time.
	slow := got.Slow
	switch {
	case completed && !got.Done && (!slow || got.Clean):
		c.Fail("%v, but the client of %s got no complete answer: %+v", h, s.ID, got)
	case completed && got.Error != nil:
		c.Fail("%v, but the client of %s got %v", h, s.ID, got.Error)
	case completed:
	case got.Error == nil:
		if got.Clean {
			c.Fail("%v, but the body for the client of %s ended like a complete one: %+v", h, s.ID, got)
		} else if !slow {
			c.Fail("%v, but the client of %s, which reads, was not told: %+v", h, s.ID, got)
		}
	case got.Error.Reason != h.Reason || got.Error.Path.String() != h.Path:
		c.Fail("%v, but the client of %s got %s %v", h, s.ID, got.Error.Reason, got.Error.Path)
	case got.Status != http.StatusOK && got.Status != h.Reason.HTTPStatus():
		c.Fail("%v, but the client of %s got the status %d", h, s.ID, got.Status)
	}
	if got.Done && h.record != nil && int(h.record.GetTokensOut()) != got.Tokens {
		c.Fail("the client of %s got %d tokens according to its usage, but %d according to the ledger of %s", s.ID, got.Tokens, h.record.GetTokensOut(), h.Process.Name)
	}
}

// text compares the text that a client got with the undisturbed one.
func (c *Check) text(i int, s *Stream) {
	if c.wants == nil {
		return
	}
	want, got := &c.wants[i], &s.Answer
	c.begins(s.ID, got.Texts, want.Texts)
	if got.Done && (!slices.Equal(got.Texts, want.Texts) || got.Tokens != want.Tokens) {
		c.Fail("%s: the complete answer is %q with %d tokens; undisturbed it is %q with %d", s.ID, got.Texts, got.Tokens, want.Texts, want.Tokens)
	}
}

// begins checks that the text of each choice is a prefix of the undisturbed text.
func (c *Check) begins(id string, got, want []string) {
	for choice, text := range got {
		if choice >= len(want) || !strings.HasPrefix(want[choice], text) {
			c.Fail("%s: choice %d has %q, which is not a prefix of %q", id, choice, text, want)
		}
	}
}

// timely checks that api-service reacted at once to its client and to deadlines.
func (c *Check) timely(i int, s *Stream, h *hop) {
	r := &c.world.Schedule.Requests[i]
	began := h.record.GetBegan().AsTime()
	if h.record == nil {
		return
	}
	if by := began.Add(r.Deadline + moment); r.Deadline > 0 && h.decided.After(by) {
		c.Fail("%s: %v was decided %v after its deadline", s.ID, h, h.decided.Sub(by))
	}
	if gone := c.vanished(s.ID); !gone.IsZero() && gone.After(began) {
		// its machine acknowledges neither the headers nor a comment
		if by := gone.Add(world.KeepAlive + world.ClientTimeout*5/4 + moment); !r.Whole && !r.Keeps() && !r.Kept && h.Reason == streamerr.ClientGone && h.decided.After(by) {
			c.Fail("%s: %v was decided %v after its client had vanished", s.ID, h, h.decided.Sub(gone))
		}
	} else if left := s.Answer.Left; !left.IsZero() && left.Before(began) && (r.Leave == "" || r.Leave == schedule.Cancel) {
		if h.Reason != streamerr.ClientGone || len(h.below) > 0 { // the request had waited for the answer before
			c.Fail("%s: %v began %v after its client had left, with %d calls", s.ID, h, began.Sub(left), len(h.below))
		}
	} else if !left.IsZero() && !r.Kept && (r.Leave == "" || r.Leave == schedule.Cancel) && !left.Before(began) {
		switch {
		case (h.Reason == streamerr.Completed || h.record.GetExtent() == extent.Answer) && c.wants != nil && slices.Equal(s.Answer.Texts, c.wants[i].Texts): // it left after the whole text, so the stream only awaits its ending
		case h.Reason == streamerr.Completed && hadEnding(h, left):
		case h.record.GetExtent() == extent.Answer && s.Answer.Slow: // its machine had the whole text, of which it has read a part
		case h.decided.After(left.Add(moment)):
			c.Fail("%s: %v was decided %v after its client had left", s.ID, h, h.decided.Sub(left))
		case h.Reason == streamerr.ClientGone && h.decided.Before(left) && !c.slowClient(s.ID):
			c.Fail("%s: %v was decided %v before its client left", s.ID, h, left.Sub(h.decided))
		}
	} else if h.Reason == streamerr.ClientGone && !r.Keeps() && !r.Kept {
		c.Fail("%s: %v, but its client had not left", s.ID, h)
	}
	for _, k := range c.strikes {
		if k.Fault.Kind != schedule.DeleteStream || k.Fault.Stream != i || k.Answered.IsZero() || k.At.Before(began) {
			continue
		}
		switch {
		case k.Accepted && h.decided.After(k.Answered):
			c.Fail("%s: %v was decided %v after a DELETE was accepted", s.ID, h, h.decided.Sub(k.Answered))
		case !k.Accepted && h.At.After(k.Answered):
			c.Fail("%s: a DELETE was refused while the stream ran", s.ID)
		}
	}
}

// hadEnding reports whether a hop had the last message of a completed stream at a time.
func hadEnding(h *hop, at time.Time) bool {
	return slices.ContainsFunc(h.below, func(l *leg) bool { return l.ending != nil && !l.Heard.After(at) })
}

// catalogued checks the ending of a lone stream with a lone fault: it completes, unless the catalogue of
// faults (package lab) has another ending for it.
func (c *Check) catalogued(h *hop) {
	s := c.world.Schedule
	if len(s.Faults) != 1 || len(s.Requests) != 1 || h.Reason == streamerr.Completed {
		return
	}
	kind, r := s.Faults[0].Kind, &s.Requests[0]
	if kind.Rows() == nil || s.Stays || r.Deadline > 0 || r.Pace > 0 || r.Kept || r.Leave != "" {
		return
	}
	if h.Reason == streamerr.SlowReader && s.Has(schedule.StallChat, schedule.StallWorker) && s.Faults[0].For >= world.ChatStall {
		return // the timer fires before a link misses its peer, unlike in production
	}
	var reasons []string
	for _, name := range kind.Rows() {
		if row, ok := lab.FaultNamed(name); ok {
			reasons = append(reasons, row.Reason)
		}
	}
	if !slices.Contains(reasons, h.Reason.String()) {
		c.Fail("%s: %v, but with the fault %q alone the catalogue of faults has the endings %q", h.id, h, kind, reasons)
	}
}
