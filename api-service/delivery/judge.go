package delivery

import (
	"strings"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

const (
	// fewest is how many bursts must have been sent for a verdict: a short answer may come at once by chance.
	fewest = 8
	// collected is by how much there are fewer of something that was collected, at least.
	collected = 4
	// finest is the shortest of the bounds that pauses are judged by: networks and browsers make bursts of what comes faster.
	finest = 1
)

// Judge compares what was sent with what was seen. Tokens is how many the events had, 0 if that is not known.
func Judge(tokens, events uint32, sent Gaps, r Report, proxy string) *streamv1.Delivery {
	d := &streamv1.Delivery{Verdict: streamv1.Verdict_VERDICT_UNCLEAR, Tokens: tokens, Proxy: proxy}
	pause := usual(&sent)
	d.Sent, d.Seen = pace(events, &sent, pause), pace(r.Gaps.all()+1, &r.Gaps, pause)
	switch {
	case events < 2 || d.Seen.GetEvents()*2 < events || d.Seen.GetEvents() > events: // it saw another part
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

// usual is the longest of the bounds that most pauses reach, or the finest.
func usual(g *Gaps) int {
	for bound := len(bounds) - 1; bound > finest; bound-- {
		if 4*g.over(bound) >= 3*g.all() {
			return bound
		}
	}
	return finest
}

// pace sums gaps up; events between which the pause was shorter than a bound came at once.
func pace(events uint32, g *Gaps, bound int) *streamv1.Pace {
	return &streamv1.Pace{Events: events, Bursts: min(events, g.over(bound)+1), Gaps: g[:]}
}

// Word is a verdict as the story and metrics have it, such as "buffered".
func Word(v streamv1.Verdict) string {
	return strings.ToLower(strings.TrimPrefix(v.String(), "VERDICT_"))
}
