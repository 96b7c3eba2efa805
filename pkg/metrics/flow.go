package metrics

import (
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"
)

// gapBuckets are the upper bounds of the gaps between two messages, as durations: comparing integers is all that a message
// costs here.
var gapBuckets = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	1 * time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	75 * time.Millisecond, 100 * time.Millisecond, 150 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond,
	1 * time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second,
}

// A flow is one direction of one stream. Those who write need not know of each other, and others may read. It holds as little as tells all:
// each atomic costs every message. A message with tokens is counted by its gap, and the gaps add up to the time from the
// first such message to the last.
type flow struct {
	bytes, tokens atomic.Uint64
	plain         atomic.Uint64 // messages without tokens
	first         atomic.Uint64 // tokens of the first message that had any
	begun, last   atomic.Int64  // when the first and the last message with tokens came, since the stream began; 0 for never
	longest       atomic.Int64  // of the gaps
	gaps          [len(gapBuckets) + 1]atomic.Uint64
}

// message counts a message, says when it came since the stream began, 0 for one without tokens, and whether it brought the first
// tokens.
func (f *flow) message(n int, since time.Time) (at time.Duration, first bool) {
	if n <= 0 {
		f.plain.Add(1) // no gap of its own: what comes before the first token is its time, and an ending comes with the last
		return 0, false
	}
	f.tokens.Add(uint64(n))
	now := max(1, time.Since(since))
	before := time.Duration(f.last.Swap(int64(now)))
	if before == 0 {
		f.first.Store(uint64(n))
		f.begun.Store(int64(now))
		return now, true
	}
	gap := now - before
	if int64(gap) > f.longest.Load() {
		f.longest.Store(int64(gap))
	}
	f.gaps[bucket(gap)].Add(1)
	return now, false
}

// bucket is where a gap is counted.
func bucket(gap time.Duration) int {
	i := 0
	for i < len(gapBuckets) && gap > gapBuckets[i] {
		i++
	}
	return i
}

// perToken is the mean time per token after the first message with tokens; ok is false if there was but one.
func (f *flow) perToken() (mean time.Duration, ok bool) {
	n := f.tokens.Load() - f.first.Load()
	if n == 0 {
		return 0, false
	}
	return time.Duration(f.last.Load()-f.begun.Load()) / time.Duration(n), true
}

// totals are flows, summed up.
type totals struct {
	messages, bytes, tokens uint64
	gaps                    [len(gapBuckets) + 1]uint64
	waited                  time.Duration
	examples                [len(gapBuckets) + 1]metricdata.Exemplar[float64] // a gap of each bucket; without a trace for none
}

// link keeps the longest gap of a stream that has ended as the example of its bucket, if its trace can be looked at.
func (t *totals) link(f *flow, at trace.SpanContext) {
	gap := time.Duration(f.longest.Load())
	if gap == 0 || !at.IsValid() {
		return
	}
	id, span := at.TraceID(), at.SpanID()
	t.examples[bucket(gap)] = metricdata.Exemplar[float64]{Time: time.Now(), Value: gap.Seconds(), TraceID: id[:], SpanID: span[:]}
}

func (t *totals) add(f *flow) {
	t.bytes += f.bytes.Load()
	t.tokens += f.tokens.Load()
	t.messages += f.plain.Load()
	if begun := f.begun.Load(); begun != 0 {
		t.messages++
		t.waited += time.Duration(f.last.Load() - begun)
	}
	for i := range f.gaps {
		n := f.gaps[i].Load()
		t.gaps[i] += n
		t.messages += n
	}
}
