package tally_test

import (
	"testing"
	"time"

	"github.com/whence-dev/whence/pkg/tally"
)

func TestQuantileEstimatesGaps(t *testing.T) {
	var none tally.Side
	if got := none.Quantile(0.5); got != 0 {
		t.Errorf("without gaps the median is %v", got)
	}
	s := tally.Side{Longest: 740 * time.Millisecond}
	s.Gaps[tally.Bucket(30*time.Millisecond)] = 95
	s.Gaps[tally.Bucket(700*time.Millisecond)] = 5
	for q, want := range map[float64][2]time.Duration{
		0.5: {25 * time.Millisecond, 50 * time.Millisecond}, 0.97: {500 * time.Millisecond, 740 * time.Millisecond}, 1: {740 * time.Millisecond, 740 * time.Millisecond},
	} {
		if got := s.Quantile(q); got < want[0] || got > want[1] {
			t.Errorf("quantile %v is %v; want %v to %v", q, got, want[0], want[1])
		}
	}
	over := tally.Side{Longest: time.Minute}
	over.Gaps[len(tally.Bounds)] = 1
	if got := over.Quantile(1); got != time.Minute {
		t.Errorf("the quantile of a gap over all bounds is %v", got)
	}
}
