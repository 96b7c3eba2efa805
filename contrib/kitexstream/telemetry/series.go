package telemetry

import (
	"sync"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/tally"
)

// maxMethods bounds the methods that have metrics of their own, on each side of each system; further ones share one. Names come
// from IDL files and routes, but a generic client may be given any.
const maxMethods = 200

// other is the label of what is past a bound.
const other = "other"

// The origin of an ending, as seen from this hop: a label must not have the names that peers give themselves.
const (
	originSelf   = "self"   // this hop
	originPeer   = "peer"   // the hop next to this one
	originBeyond = "beyond" // a hop behind that one
)

// An ending identifies a counter of endings.
type ending struct{ reason, origin string }

// series are the metrics of one method.
type series struct {
	method Method
	self   string

	mu              sync.Mutex // guards the following fields
	live            map[*Stream]struct{}
	in, out         tally.Counts // of streams that have ended
	first, duration histogram
	endings         map[ending]uint64
}

// begin adds a stream to the series of its method.
func (r *Monitor) begin(s *Stream) *series {
	r.mu.Lock()
	r.live++
	in := r.series[s.call.Method]
	if in == nil {
		key := s.call.Method
		if len(r.series) >= maxMethods {
			key.Name = other
			in = r.series[key]
		}
		if in == nil {
			in = &series{
				method: key, self: r.config.Name, live: map[*Stream]struct{}{}, endings: map[ending]uint64{},
				first: newHistogram(firstBounds), duration: newHistogram(durationBounds),
			}
			r.series[key] = in
		}
	}
	r.mu.Unlock()
	in.mu.Lock()
	defer in.mu.Unlock()
	in.live[s] = struct{}{}
	return in
}

// end moves the figures of a stream that has ended to the totals.
func (m *series) end(s *Stream, e *streamerr.Error, first time.Duration, figures *tally.Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, s)
	m.in.Add(&figures.Received.Counts)
	m.out.Add(&figures.Sent.Counts)
	m.duration.add(time.Since(s.tally.Began()))
	if first > 0 {
		m.first.add(first)
	}
	m.endings[ending{e.Reason.String(), m.origin(e.Path)}]++
}

// origin returns the label of where an ending with a path began.
func (m *series) origin(p streamerr.Path) string {
	switch {
	case p.Origin() == m.self:
		return originSelf
	case len(p) <= 2:
		return originPeer
	default:
		return originBeyond
	}
}

// A histogram counts times by upper bound.
type histogram struct {
	bounds []float64 // seconds
	counts []uint64  // one longer
	sum    float64
}

func newHistogram(bounds []float64) histogram {
	return histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (h *histogram) add(d time.Duration) {
	i, seconds := 0, d.Seconds()
	for i < len(h.bounds) && seconds > h.bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += seconds
}

// Bounds, in seconds. Streams may last for hours.
var (
	firstBounds    = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
	durationBounds = []float64{0.001, 0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400}
	gapBounds      = func() (bounds []float64) {
		for _, d := range tally.Bounds {
			bounds = append(bounds, d.Seconds())
		}
		return bounds
	}()
)
