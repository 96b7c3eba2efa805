package monitor

import (
	"sync"
	"time"
)

// gapBounds are the upper bounds of the buckets of gaps.
var gapBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	1 * time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	75 * time.Millisecond, 100 * time.Millisecond, 150 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond,
	1 * time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second,
}

// counts are figures of the messages of one direction that can be summed over streams.
type counts struct {
	messages, bytes uint64
	gaps            [len(gapBounds) + 1]uint64 // by bucket; the last element counts the longer gaps
	gapSum          time.Duration
}

func (c *counts) add(other *counts) {
	c.messages += other.messages
	c.bytes += other.bytes
	c.gapSum += other.gapSum
	for i, n := range other.gaps {
		c.gaps[i] += n
	}
}

// A message is one message of a stream.
type message struct {
	at    time.Duration // since the stream began
	bytes uint32
}

// A tally counts and times the messages of one direction of one stream. A message costs one lock
// that no other stream uses, one clock reading and no allocation.
type tally struct {
	began time.Time // static

	mu      sync.Mutex // guards the following fields
	counts  counts
	first   time.Duration // when the first message came; 0 if none has come
	last    time.Duration
	longest time.Duration // the longest gap
	kept    ends[message]
}

// count counts a message.
func (t *tally) count(size int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := max(1, time.Since(t.began))
	n := t.counts.messages
	t.counts.messages++
	t.counts.bytes += uint64(size)
	t.kept.add(message{at, uint32(size)})
	before := t.last
	t.last = at
	if n == 0 {
		t.first = at
		return
	}
	gap := at - before
	i := 0
	for i < len(gapBounds) && gap > gapBounds[i] {
		i++
	}
	t.counts.gaps[i]++
	t.counts.gapSum += gap
	t.longest = max(t.longest, gap)
}

// sum returns the counts so far.
func (t *tally) sum() counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}

// traffic returns the figures for the record of the stream.
func (t *tally) traffic() Traffic {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Traffic{Messages: t.counts.messages, Bytes: t.counts.bytes, First: t.first, LongestGap: t.longest}
}

// each calls add with each kept message and its index, which begins at 0.
func (t *tally) each(add func(index uint64, m message)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept.each(add)
}

// ends keeps the first and the last values added to it.
type ends[T any] struct {
	keep int // number of values kept at each end
	n    uint64
	kept []T // the first values, and then the last ones, which are a ring when it is full
}

func (e *ends[T]) add(v T) {
	at := e.n
	e.n++
	switch {
	case e.keep == 0:
	case len(e.kept) < 2*e.keep:
		e.kept = append(e.kept, v)
	default:
		e.kept[e.keep+int(at%uint64(e.keep))] = v
	}
}

// each calls do with every kept value and its index, in the order in which the values were added.
func (e *ends[T]) each(do func(index uint64, v T)) {
	first := e.kept[:min(e.keep, len(e.kept))]
	for i, v := range first {
		do(uint64(i), v)
	}
	last := e.kept[len(first):]
	for i := e.n - uint64(len(last)); i < e.n && len(last) > 0; i++ {
		do(i, last[i%uint64(e.keep)])
	}
}
