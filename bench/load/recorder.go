// Package load generates chat completion streams on an engine of package paced, and measures them:
// the latency of each token, the time to first token, and the fate of streams whose client left.
//
// It runs one goroutine and one small buffer per connection, so that it costs little compared to
// the measured services. There is no coordinated omission: latencies count from a request's
// intended time and a token's due time, however long the generator or the engine had to wait.
package load

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/whence-dev/whence/internal/load"
)

const shards = 8

// A Recorder collects the measurements of many streams. It is safe for concurrent use.
type Recorder struct {
	measuring atomic.Bool
	next      atomic.Uint32
	shards    [shards]shard
}

// A shard is a part of a Recorder that a few connections share.
type shard struct {
	mu       sync.Mutex
	tokens   int64
	requests int64
	latency  *load.Histogram // of tokens, in microseconds
	ttft     *load.Histogram // in microseconds
	errors   []error         // of at most maxErrors streams
	failed   int64
	left     []Departure
}

// maxErrors bounds the errors that a shard stores; all are counted.
const maxErrors = 4

// A Departure is a stream whose client left.
type Departure struct {
	Stream   uint64
	At       time.Time // when the client closed its connection
	Received int       // tokens
}

// A Summary holds the measurements of a Recorder.
type Summary struct {
	Tokens, Requests, Failed int64
	Errors                   []error // of a few of the failed streams
	Latency, TTFT            *load.Histogram
	Left                     []Departure
}

// NewRecorder returns a Recorder that counts, but measures no latency until Measure.
func NewRecorder() *Recorder {
	r := &Recorder{}
	for i := range r.shards {
		r.shards[i].latency, r.shards[i].ttft = load.NewHistogram(), load.NewHistogram()
	}
	return r
}

// Measure turns the measurement of latencies on or off.
func (r *Recorder) Measure(on bool) { r.measuring.Store(on) }

// Tokens returns the number of tokens received so far.
func (r *Recorder) Tokens() (n int64) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		n += s.tokens
		s.mu.Unlock()
	}
	return n
}

// Requests returns the number of streams that have completed so far.
func (r *Recorder) Requests() (n int64) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		n += s.requests
		s.mu.Unlock()
	}
	return n
}

// Begun returns the number of streams that have received their first token.
func (r *Recorder) Begun() (n int64) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		n += s.ttft.Count()
		s.mu.Unlock()
	}
	return n
}

// Summary returns all measurements so far.
func (r *Recorder) Summary() Summary {
	sum := Summary{Latency: load.NewHistogram(), TTFT: load.NewHistogram()}
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		sum.Tokens += s.tokens
		sum.Requests += s.requests
		sum.Failed += s.failed
		sum.Errors = append(sum.Errors, s.errors...)
		sum.Latency.Merge(s.latency)
		sum.TTFT.Merge(s.ttft)
		sum.Left = append(sum.Left, s.left...)
		s.mu.Unlock()
	}
	return sum
}

// shard returns the shard of a new connection.
func (r *Recorder) shard() *shard { return &r.shards[r.next.Add(1)%shards] }

// add counts the tokens of one read, which arrived together.
func (s *shard) add(latencies []time.Duration, measure bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens += int64(len(latencies))
	if measure {
		for _, l := range latencies {
			s.latency.Record(l)
		}
	}
}

func (s *shard) first(ttft time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ttft.Record(ttft)
}

func (s *shard) completed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
}

func (s *shard) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed++; len(s.errors) < maxErrors {
		s.errors = append(s.errors, err)
	}
}

func (s *shard) leave(d Departure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = append(s.left, d)
}
