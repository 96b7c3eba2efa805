package load

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	maxLatency = time.Hour // longer latencies count as this
	digits     = 3         // significant digits of a latency
)

// NewHistogram returns a histogram of latencies, in microseconds.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, maxLatency.Microseconds(), digits)
}

// Record adds a latency to h.
func Record(h *hdrhistogram.Histogram, latency time.Duration) {
	_ = h.RecordValue(min(max(latency, 0), maxLatency).Microseconds()) // within the histogram's range
}
