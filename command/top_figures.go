package command

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/whence-dev/whence/api-service/story"
)

func limitQuery(n int) url.Values { return url.Values{"limit": {strconv.Itoa(n)}} }

// A figures is what one sample says about latencies and endings.
type figures struct {
	first, perToken, longest []float64 // sorted, in milliseconds
	ended                    int
	endings                  []endingCount // the most frequent first
}

// An endingCount is a reason together with its origin, and how often streams ended so.
type endingCount struct {
	reason, origin string
	count          int
}

func newFigures(s *topSample) *figures {
	f := &figures{ended: len(s.ended)}
	counts := map[endingCount]int{}
	for i := range s.ended {
		counts[endingCount{reason: s.ended[i].Reason, origin: s.ended[i].Origin}]++
		f.add(&s.ended[i])
	}
	for i := range s.live {
		f.add(&s.live[i])
	}
	for _, values := range [][]float64{f.first, f.perToken, f.longest} {
		slices.Sort(values)
	}
	for e, n := range counts {
		e.count = n
		f.endings = append(f.endings, e)
	}
	slices.SortFunc(f.endings, func(a, b endingCount) int {
		return cmp.Or(b.count-a.count, cmp.Compare(a.reason, b.reason), cmp.Compare(a.origin, b.origin))
	})
	return f
}

func (f *figures) add(s *story.Story) {
	hop := &s.Hops[0]
	for _, figure := range []struct {
		from *float64
		to   *[]float64
	}{{hop.FirstTokenMS, &f.first}, {hop.PerTokenMS, &f.perToken}, {hop.LongestGapMS, &f.longest}} {
		if figure.from != nil {
			*figure.to = append(*figure.to, *figure.from)
		}
	}
}

// latencies returns the lines of the table of latencies, 43 columns wide.
func (f *figures) latencies() []string {
	rows := []string{fmt.Sprintf("%-13s%10s%10s%10s", "LATENCY", "P50", "P90", "P99")}
	for _, line := range []struct {
		name   string
		values []float64
	}{{"first token", f.first}, {"per token", f.perToken}, {"longest gap", f.longest}} {
		rows = append(rows, fmt.Sprintf("%-13s%10s%10s%10s", line.name, percentile(line.values, 50), percentile(line.values, 90), percentile(line.values, 99)))
	}
	return rows
}

// percentile returns the value at a rank of sorted milliseconds, or "-" if there are none.
func percentile(sorted []float64, percent int) string {
	if len(sorted) == 0 {
		return "-"
	}
	rank := (percent*len(sorted) + 99) / 100 // rounded up: the nearest rank
	return shortMilliseconds(sorted[rank-1])
}

func shortMilliseconds(ms float64) string {
	switch {
	case ms < 10:
		return fmt.Sprintf("%.2fms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0fms", ms)
	default:
		return fmt.Sprintf("%.1fs", ms/1000)
	}
}

// rateWindow is the time over which rates are averaged.
const rateWindow = 10 * time.Second

// Rates are counted from the differences between samples.
type tokenRates struct {
	known  map[string]uint32 // delivered tokens of all streams of the last sample
	ended  map[string]bool   // of these, the ended ones
	points []ratePoint       // of the last window, oldest first
}

// A ratePoint has the totals since top was started.
type ratePoint struct {
	at                     time.Time
	tokens, started, ended int
}

// add counts what has happened since the last sample. After a restart of the api-service, its streams
// are new ones.
func (r *tokenRates) add(s *topSample) {
	known, ended := map[string]uint32{}, map[string]bool{}
	now := ratePoint{at: s.at}
	if n := len(r.points); n > 0 {
		now = r.points[n-1]
		now.at = s.at
	}
	count := func(told *story.Story, over bool) {
		delivered := told.Tokens.Delivered
		before, seen := r.known[told.ID]
		if !r.ended[told.ID] {
			now.tokens += int(delivered - min(before, delivered))
			if !seen {
				now.started++
			}
			if over {
				now.ended++
			}
		}
		known[told.ID], ended[told.ID] = delivered, over
	}
	for i := range s.ended {
		count(&s.ended[i], true)
	}
	for i := range s.live {
		if _, twice := known[s.live[i].ID]; !twice { // it ended between the two requests of the sample
			count(&s.live[i], false)
		}
	}
	if r.known == nil {
		now = ratePoint{at: s.at} // what was there before top does not count
	}
	r.known, r.ended = known, ended
	r.points = append(r.points, now)
	for len(r.points) > 2 && s.at.Sub(r.points[0].at) > rateWindow {
		r.points = r.points[1:]
	}
}

// pause forgets the window, but not the streams: rates begin anew with the next sample.
func (r *tokenRates) pause() { r.points = nil }

// perSecond returns the rates, or ok = false before the second sample.
func (r *tokenRates) perSecond() (tokens, started, ended float64, ok bool) {
	if len(r.points) < 2 {
		return 0, 0, 0, false
	}
	first, last := r.points[0], r.points[len(r.points)-1]
	seconds := last.at.Sub(first.at).Seconds()
	if seconds <= 0 {
		return 0, 0, 0, false
	}
	return float64(last.tokens-first.tokens) / seconds, float64(last.started-first.started) / seconds, float64(last.ended-first.ended) / seconds, true
}

// tokenSpeed returns the mean tokens per second of a stream after its first token; 0 if unknown.
func tokenSpeed(s *story.Story) float64 {
	if ms := s.Hops[0].PerTokenMS; ms != nil && *ms > 0 {
		return 1000 / *ms
	}
	return 0
}
