package delivery

import (
	"strings"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

const (
	// fewest is the number of sent bursts below which there is no verdict: a short answer may
	// arrive at once by chance.
	fewest = 8
	// collected is the factor by which bursts or events must be fewer to count as collected.
	collected = 4
	// finest is the shortest bound that is used for a verdict: networks and browsers already make
	// bursts of faster events.
	finest = 1
)

// Judge compares what was sent with what the reader saw. tokens is the number of tokens in the
// events, 0 if unknown.
func Judge(tokens, events uint32, sent Gaps, r Report, proxy string) *streamv1.Delivery {
	d := &streamv1.Delivery{Verdict: streamv1.Verdict_VERDICT_UNCLEAR, Tokens: tokens, Proxy: proxy}
	pause := usual(&sent)
	d.Sent, d.Seen = pace(events, &sent, pause), pace(r.Gaps.all()+1, &r.Gaps, pause)
	switch {
	case events < 2 || d.Seen.GetEvents()*2 < events || d.Seen.GetEvents() > events: // the reader saw another part of the stream
	case d.Sent.GetBursts() >= fewest && d.Seen.GetBursts()*collected <= d.Sent.GetBursts():
		d.Verdict = streamv1.Verdict_VERDICT_BUFFERED
		if proxy == "" {
			d.Proxy = unnamed
		}
	case events*collected <= tokens:
		d.Verdict = streamv1.Verdict_VERDICT_MERGED
	case d.Sent.GetBursts() >= fewest:
		d.Verdict = streamv1.Verdict_VERDICT_FLOWING
	}
	return d
}

// usual returns the longest bound that three quarters of the pauses reach, or finest.
func usual(g *Gaps) int {
	for bound := len(bounds) - 1; bound > finest; bound-- {
		if 4*g.over(bound) >= 3*g.all() {
			return bound
		}
	}
	return finest
}

// pace summarizes gaps. Events with a shorter pause than bound between them are one burst.
func pace(events uint32, g *Gaps, bound int) *streamv1.Pace {
	return &streamv1.Pace{Events: events, Bursts: min(events, g.over(bound)+1), Gaps: g[:]}
}

// Word returns a verdict in the spelling of stories and metrics, such as "buffered".
func Word(v streamv1.Verdict) string {
	return strings.ToLower(strings.TrimPrefix(v.String(), "VERDICT_"))
}
