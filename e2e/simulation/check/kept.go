package check

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/whence-dev/whence/e2e/simulation/client"
	"github.com/whence-dev/whence/e2e/simulation/schedule"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// This file checks the events that the readers of a kept stream got.

// kept checks the readers of a stream, and its policy while it has no readers.
func (c *Check) kept(i int, s *Stream, h *hop) {
	r := &c.world.Schedule.Requests[i]
	c.unread(r, s, h)
	want := ([]string)(nil)
	if c.wants != nil {
		want = c.wants[i].Texts
	}
	var whole []string // of the first reader that has read the closing event
	for j, sessions := range append(slices.Clone(s.Readers), []client.Answer{s.Audit}) {
		var texts []string
		for k := range sessions {
			a := &sessions[k]
			if a.After == 0 {
				texts = nil
			}
			if a.Wrong != "" {
				c.Fail("reader %d of %s got a broken answer: %s", j, s.ID, a.Wrong)
			}
			c.admitted(r, s, h, a, j)
			for n, e := range a.Events {
				if e.Seq <= a.After || n == 0 && e.Name != "delta" && e.Seq != a.After+1 {
					c.Fail("reader %d of %s asked for the events after %d, and the first is %s %d", j, s.ID, a.After, e.Name, e.Seq)
				}
				for choice, text := range e.Texts {
					for len(texts) <= choice {
						texts = append(texts, "")
					}
					texts[choice] += text
				}
				if !e.Closing() {
					continue
				}
				if e.Cause.Reason != h.Reason || e.Cause.Path.String() != h.Path {
					c.Fail("%v, but reader %d of %s got %s %s", h, j, s.ID, e.Cause.Reason, e.Cause.Path)
				}
				if whole == nil {
					whole = slices.Clone(texts)
				}
				if strings.Join(whole, "\x00") != strings.Join(texts, "\x00") {
					c.Fail("reader %d of %s has %q, and another reader %q", j, s.ID, texts, whole)
				}
			}
			if want != nil {
				c.begins(s.ID, texts, want)
			}
		}
	}
	if whole != nil && want != nil && h.Reason == streamerr.Completed && strings.Join(whole, "\x00") != strings.Join(want, "\x00") {
		c.Fail("%s: the complete answer is %q for readers; undisturbed it is %q", s.ID, whole, want)
	}
}

// begun reports whether a kept stream began, so that its events could be read: its client got a
// success, or there were tokens.
func begun(r *schedule.Request, s *Stream, h *hop) bool {
	return h.record.GetTokensOut() > 0 || h.Reason == streamerr.Completed || r.Kept && s.Answer.Status == http.StatusCreated
}

// admitted checks the answer to a reader's request, and the reason of its end.
func (c *Check) admitted(r *schedule.Request, s *Stream, h *hop, a *client.Answer, reader int) {
	drained := c.struck(a.Ended, schedule.DrainEdge, schedule.HurryEdge)
	// Policy drain drops the events when there is no reader, and policy cancel also at the end. The
	// events of a refused stream are dropped, too.
	forgotten := !a.Ended.Before(h.At) && (r.Leave == schedule.Cancel || !begun(r, s, h)) || r.Leave == schedule.Drain
	early := h.record == nil || !a.Asked.After(h.record.GetBegan().AsTime())
	closed := len(a.Events) > 0 && a.Events[len(a.Events)-1].Closing()
	switch {
	case drained:
	case a.Status == 0 && a.Asked.IsZero(): // there was no such session
	case a.Status == http.StatusNotFound || a.Status == http.StatusGone:
		if !forgotten && !early {
			c.Fail("reader %d of %s got the status %d: %s", reader, s.ID, a.Status, a.Body)
		}
	case a.Status != http.StatusOK:
		c.Fail("reader %d of %s got the status %d: %s", reader, s.ID, a.Status, a.Body)
	case closed && !a.Clean && a.Left.IsZero() && !a.Slow:
		c.Fail("reader %d of %s was cut off after the ending", reader, s.ID)
	case closed || !a.Left.IsZero() || a.Slow || forgotten:
	default:
		c.Fail("reader %d of %s, which reads, did not get the ending: %+v", reader, s.ID, a)
	}
}

// A span is a time interval in which a stream has a reader.
type span struct{ from, to time.Time }

// unread checks that a stream without a reader ran exactly as long as its policy says.
func (c *Check) unread(r *schedule.Request, s *Stream, h *hop) {
	before, after := r.Patience()
	if h.record == nil || !c.vanished(s.ID).IsZero() || s.Answer.Muxed && s.Answer.Slow {
		return
	}
	began := h.record.GetBegan().AsTime()
	var read []span
	if !r.Kept {
		read = append(read, span{began, earliest(s.Answer.Closed, earliest(s.Answer.Left, s.Answer.Ended))})
	}
	for _, sessions := range s.Readers {
		for _, a := range sessions {
			if a.Muxed && a.Slow {
				return // it is unknown when this reader was cut off
			}
			if a.Status == http.StatusOK {
				read = append(read, span{a.Asked, earliest(a.Closed, earliest(a.Left, a.Ended))})
			}
		}
	}
	slices.SortFunc(read, func(a, b span) int { return a.from.Compare(b.from) })
	// limit is the time at which the stream should have ended because it had no readers.
	limit, alone, patience := time.Time{}, began, before
	for _, span := range read {
		if patience >= 0 && span.from.After(alone.Add(patience)) {
			if !span.from.After(alone.Add(patience + moment)) {
				return // either may have been first
			}
			break
		}
		if span.to.After(alone) {
			alone, patience = span.to, after
		}
	}
	if patience >= 0 {
		limit = alone.Add(patience)
	}
	nobody := h.Reason == streamerr.ClientGone
	switch {
	case !limit.IsZero() && h.decided.After(limit.Add(moment)):
		c.Fail("%s: %v was decided %v after the stream should have ended for want of readers", s.ID, h, h.decided.Sub(limit))
	case nobody && limit.IsZero():
		c.Fail("%s: %v, but its policy does not end it", s.ID, h)
	case nobody && h.decided.Before(limit.Add(-moment)):
		c.Fail("%s: %v, %v before its policy ends it", s.ID, h, limit.Sub(h.decided))
	}
}
