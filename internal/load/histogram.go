package load

import (
	"math"
	"math/bits"
	"time"
)

const (
	maxLatency = time.Hour // longer latencies count as this
	// precision is the number of leading bits of a latency, in microseconds, that its bucket keeps: a
	// latency is at most 0.1 % less than the upper end of its bucket.
	precision = 11
)

// buckets is the number of buckets up to maxLatency.
var buckets = bucketOf(maxLatency.Microseconds()) + 1

// A Histogram counts latencies, to the microsecond up to 2 ms and to 0.1 % above. It is not safe for
// concurrent use.
type Histogram struct {
	counts []int64 // by bucket
	total  int64
	max    int64 // in microseconds
}

// NewHistogram returns a histogram without latencies.
func NewHistogram() *Histogram { return &Histogram{counts: make([]int64, buckets)} }

// bucketOf returns the bucket of a latency in microseconds. Latencies of up to precision bits have
// a bucket each; each further bit doubles the width of the buckets, and half as many are added.
func bucketOf(us int64) int {
	shift := max(0, bits.Len64(uint64(us))-precision) //nolint:gosec // us is not negative
	return shift<<(precision-1) + int(us>>shift)
}

// upperEnd returns the largest latency of a bucket, in microseconds.
func upperEnd(bucket int) int64 {
	shift := max(0, bucket>>(precision-1)-1)
	return int64(bucket-shift<<(precision-1)+1)<<shift - 1
}

// Record adds a latency.
func (h *Histogram) Record(latency time.Duration) {
	us := min(max(latency, 0), maxLatency).Microseconds()
	h.counts[bucketOf(us)]++
	h.total++
	h.max = max(h.max, us)
}

// Merge adds the latencies of other.
func (h *Histogram) Merge(other *Histogram) {
	for bucket, n := range other.counts {
		h.counts[bucket] += n
	}
	h.total += other.total
	h.max = max(h.max, other.max)
}

// Count returns the number of latencies.
func (h *Histogram) Count() int64 { return h.total }

// Max returns the largest latency, in microseconds.
func (h *Histogram) Max() int64 { return h.max }

// Percentile returns the latency, in microseconds, that percent of the latencies do not exceed, and 0
// without latencies.
func (h *Histogram) Percentile(percent float64) int64 {
	left := max(1, int64(math.Ceil(percent*float64(h.total)/100)))
	for bucket, n := range h.counts {
		if left -= n; left <= 0 {
			return min(upperEnd(bucket), h.max)
		}
	}
	return h.max
}
