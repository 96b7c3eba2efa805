package story

import (
	"fmt"
	"strings"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

// A Delivery compares how a stream arrived at its client, as the client reported, with how it was
// sent.
type Delivery struct {
	Verdict string `json:"verdict"` // "flowing", "buffered", "merged" or "unclear"
	// Proxy is the name of the proxy between the edge and the client; "" if none is visible.
	Proxy  string `json:"proxy,omitempty"`
	Tokens uint32 `json:"tokens"`
	Sent   Pace   `json:"sent"`
	Seen   Pace   `json:"seen"`
}

// A Pace is the histogram of pauses between events with text.
type Pace struct {
	Events uint32 `json:"events"`
	Bursts uint32 `json:"bursts"` // number of groups of events that arrived at once
	// Pauses of less than 1, 5, 10, 25, 50, 100, 250, 500 and 1000 ms, and longer ones.
	Gaps []uint32 `json:"gaps"`
}

// NewDelivery returns the delivery in a record, or nil.
func NewDelivery(d *streamv1.Delivery) *Delivery {
	if d == nil {
		return nil
	}
	pace := func(p *streamv1.Pace) Pace { return Pace{p.GetEvents(), p.GetBursts(), p.GetGaps()} }
	return &Delivery{
		Verdict: strings.ToLower(strings.TrimPrefix(d.GetVerdict().String(), "VERDICT_")),
		Proxy:   d.GetProxy(), Tokens: d.GetTokens(), Sent: pace(d.GetSent()), Seen: pace(d.GetSeen()),
	}
}

// JSON returns the body of the answer to the client's report.
func (d *Delivery) JSON() []byte { return marshal(d) }

// text describes the delivery for people.
func (d *Delivery) text() string {
	switch d.Verdict {
	case "buffered":
		return fmt.Sprintf("%s between client and api-service collects tokens: %d events, sent in %d bursts, arrived in %d", d.Proxy, d.Seen.Events, d.Sent.Bursts, d.Seen.Bursts)
	case "merged":
		return fmt.Sprintf("%d tokens were sent in %d events: the engine makes several at once, or the client reads slowly", d.Tokens, d.Sent.Events)
	case "flowing":
		return fmt.Sprintf("the client received the answer as it was sent: %d events in %d bursts", d.Seen.Events, d.Seen.Bursts)
	default:
		return "the events were too few, or too fast, to tell whether a proxy collects them"
	}
}
