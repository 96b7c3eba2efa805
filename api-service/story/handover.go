package story

import (
	"fmt"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Handover is the transfer of a prompt from the worker that has read it to another worker, the
// failure after which the other worker read the prompt itself, or the end of the stream in between.
type Handover struct {
	From   string  `json:"from,omitempty"` // missing if no worker could be asked
	To     string  `json:"to"`             // empty if the handover was abandoned
	Reason string  `json:"reason"`         // "completed", why the handover failed, or why the stream was stopped
	AtMS   float64 `json:"at_ms"`          // since the hop's Began
	TookMS float64 `json:"took_ms"`
}

func handovers(r *streamv1.Record) (all []Handover) {
	for _, h := range r.GetHandovers() {
		all = append(all, Handover{
			From: h.GetFrom(), To: h.GetTo(), Reason: streamerr.Reason(h.GetReason()).String(),
			AtMS: ms(h.GetAt().AsTime().Sub(r.GetBegan().AsTime())), TookMS: ms(h.GetTook().AsDuration()),
		})
	}
	return all
}

// text describes the handover for people.
func (h *Handover) text() string {
	switch {
	case h.Reason == streamerr.Completed.String():
		return fmt.Sprintf("prompt read by %s for %s in %.1f ms", h.From, h.To, h.TookMS)
	case h.To == "":
		return fmt.Sprintf("prompt read by %s in %.1f ms, handover abandoned (%s)", h.From, h.TookMS, h.Reason)
	case h.From == "":
		return fmt.Sprintf("prompt read by %s itself: no other worker was available (%s)", h.To, h.Reason)
	default:
		return fmt.Sprintf("prompt read by %s itself: %s failed after %.1f ms (%s)", h.To, h.From, h.TookMS, h.Reason)
	}
}
