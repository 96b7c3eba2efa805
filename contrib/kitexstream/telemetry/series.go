package telemetry

import (
	"sync"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/tally"
)

// maxMethods is the number of methods with series of their own in one monitor. The streams of all
// further methods count under the method Other of their side and system. Method names come from IDL
// files and routes, but a generic client accepts any name.
const maxMethods = 200

// Other is the label method of the methods past the first 200, and the label reason of unknown
// reasons.
const Other = "other"

// BizStatus is the label reason of a stream that the application answered with a BizStatusError of
// Kitex.
const BizStatus = "biz_status"

// The origin of an ending, relative to this hop. Names of hops are not labels, because peers choose
// their own names.
const (
	originSelf   = "self"   // this hop
	originPeer   = "peer"   // the neighbor on this stream
	originBeyond = "beyond" // a hop beyond the neighbor
)

// An ending identifies a counter of endings.
type ending struct{ reason, origin string }

// series are the metrics of one method.
type series struct {
	method Method
	self   string

	mu              sync.Mutex // guards the following fields
	live            map[*Stream]struct{}
	in, out         tally.Counts // of ended streams
	first, duration histogram
	endings         map[ending]uint64
}

// begin adds a stream to the series of its method. It holds the lock of the monitor until the
// stream is in the series, so that no scrape sees a series without its first stream.
func (r *Monitor) begin(s *Stream) *series {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live++
	in := r.seriesOf(s.call.Method)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.live[s] = struct{}{}
	return in
}

// seriesOf returns the series of a method, and creates them for its first stream. r.mu is held.
func (r *Monitor) seriesOf(key Method) *series {
	if in := r.series[key]; in != nil {
		return in
	}
	if r.methods >= maxMethods {
		key.Name = Other
		if in := r.series[key]; in != nil {
			return in
		}
	} else {
		r.methods++
	}
	in := &series{
		method: key, self: r.config.Name, live: map[*Stream]struct{}{}, endings: map[ending]uint64{},
		first: newHistogram(firstBounds), duration: newHistogram(durationBounds),
	}
	r.series[key] = in
	return in
}

// discard removes a stream without counting it.
func (m *series) discard(s *Stream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, s)
}

// end adds the figures of an ended stream to the totals. reason is the label of the ending.
func (m *series) end(s *Stream, reason string, path streamerr.Path, first time.Duration, figures *tally.Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, s)
	m.in.Add(&figures.Received.Counts)
	m.out.Add(&figures.Sent.Counts)
	m.duration.add(time.Since(s.tally.Began()))
	if first > 0 {
		m.first.add(first)
	}
	m.endings[ending{reason, m.origin(path)}]++
}

// origin returns the label for the origin of a path.
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

// A histogram counts durations by upper bound.
type histogram struct {
	bounds []float64 // seconds
	counts []uint64  // one for each bound, and one for longer times
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

// Bounds of the histograms, in seconds. Streams may last for hours.
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
