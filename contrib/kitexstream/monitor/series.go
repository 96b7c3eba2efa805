package monitor

import (
	"sync"
	"time"

	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
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
	in, out         counts // of ended streams
	first, duration Histogram
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

// end adds the figures of an ended stream to the totals.
func (m *series) end(s *Stream, r *Record) {
	in, out := s.received.sum(), s.sent.sum()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, s)
	m.in.add(&in)
	m.out.add(&out)
	m.duration.add(r.Ended.Sub(r.Began))
	if first := r.First(); first > 0 {
		m.first.add(first)
	}
	m.endings[ending{r.label(), m.origin(r.Path)}]++
}

// label returns the label reason of a record.
func (r *Record) label() string {
	switch {
	case r.BizStatus != nil:
		return BizStatus
	case !r.Reason.Known(): // a peer may send any number
		return Other
	default:
		return r.Reason.String()
	}
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

// Figures are the figures of one method, live streams included.
type Figures struct {
	Method
	Live            int
	Endings         []Endings
	Received, Sent  Messages
	First, Duration Histogram
}

// Endings are the streams of one method that ended for one reason, and at one origin. Each stream
// counts once.
type Endings struct {
	Reason string // the name of a reason, BizStatus or Other
	Origin string // self, peer or beyond
	N      uint64
}

// Messages are the messages of one direction.
type Messages struct {
	Messages, Bytes uint64 // Bytes without framing
	Gaps            Histogram
}

// A Histogram counts durations by upper bound.
type Histogram struct {
	Bounds []float64 // seconds; not to be changed
	Counts []uint64  // one for each bound, and one for longer times
	Sum    float64   // seconds
}

// Figures returns the figures of all methods.
func (r *Monitor) Figures() []Figures {
	r.mu.Lock()
	all := make([]*series, 0, len(r.series))
	for _, m := range r.series {
		all = append(all, m)
	}
	r.mu.Unlock()
	figures := make([]Figures, len(all))
	for i, m := range all {
		figures[i] = m.figures()
	}
	return figures
}

func (m *series) figures() Figures {
	m.mu.Lock()
	defer m.mu.Unlock()
	in, out := m.in, m.out
	for s := range m.live {
		received, sent := s.received.sum(), s.sent.sum()
		in.add(&received)
		out.add(&sent)
	}
	f := Figures{
		Method: m.method, Live: len(m.live), Received: in.messagesOf(), Sent: out.messagesOf(),
		First: m.first.clone(), Duration: m.duration.clone(),
	}
	for e, n := range m.endings {
		f.Endings = append(f.Endings, Endings{e.reason, e.origin, n})
	}
	return f
}

// messagesOf returns c for other packages.
func (c *counts) messagesOf() Messages {
	return Messages{c.messages, c.bytes, Histogram{gapSeconds, append([]uint64(nil), c.gaps[:]...), c.gapSum.Seconds()}}
}

func newHistogram(bounds []float64) Histogram {
	return Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
}

func (h *Histogram) add(d time.Duration) {
	i, seconds := 0, d.Seconds()
	for i < len(h.Bounds) && seconds > h.Bounds[i] {
		i++
	}
	h.Counts[i]++
	h.Sum += seconds
}

func (h *Histogram) clone() Histogram {
	return Histogram{h.Bounds, append([]uint64(nil), h.Counts...), h.Sum}
}

// Bounds of the histograms, in seconds. Streams may last for hours.
var (
	firstBounds    = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
	durationBounds = []float64{0.001, 0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400}
	gapSeconds     = func() (bounds []float64) {
		for _, d := range gapBounds {
			bounds = append(bounds, d.Seconds())
		}
		return bounds
	}()
)
