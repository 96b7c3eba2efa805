package reader

import (
	"slices"
	"time"
)

// TTFT returns the 99th percentile of the time to the first token of the readers that have one.
func TTFT(all []*Reader) time.Duration {
	var times []time.Duration
	for _, r := range all {
		if !r.Begun.IsZero() {
			times = append(times, r.Begun.Sub(r.Asked))
		}
	}
	return P99(times)
}

// P99 returns the 99th percentile, or 0 of no durations.
func P99(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}

// Unanswered returns the number of readers whose answer is not complete.
func Unanswered(all []*Reader) (n int) {
	for _, r := range all {
		if r.Ending != Completed {
			n++
		}
	}
	return n
}

// Longest returns the longest pause of a stream.
func Longest(all []*Reader) (gap time.Duration) {
	for _, r := range all {
		gap = max(gap, r.Gap)
	}
	return gap
}
