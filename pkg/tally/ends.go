package tally

import "time"

// A Message is one message of a stream.
type Message struct {
	At            time.Duration // since the stream began
	Bytes, Tokens uint32
}

// Ends keeps the first and the last values that are added to it, and counts all. The zero value keeps none.
type Ends[T any] struct {
	keep        uint64 // of each
	n           uint64
	first, last []T // at most keep long; last is then a ring
}

// NewEnds returns Ends that keep n values of each end. Add does not allocate.
func NewEnds[T any](n int) Ends[T] {
	both := make([]T, 2*n)
	return Ends[T]{keep: uint64(n), first: both[:0:n], last: both[n:n]}
}

// firstGrown is how many values GrowingEnds make room for at first.
const firstGrown = 8

// GrowingEnds is NewEnds, except that Add allocates what it keeps.
func GrowingEnds[T any](n int) Ends[T] { return Ends[T]{keep: uint64(n)} }

// Add adds a value.
func (e *Ends[T]) Add(v T) {
	at := e.n
	e.n++
	switch {
	case at < e.keep:
		if e.first == nil {
			e.first = make([]T, 0, min(e.keep, firstGrown))
		}
		e.first = append(e.first, v)
	case e.keep == 0:
	case at < 2*e.keep:
		e.last = append(e.last, v)
	default:
		e.last[at%e.keep] = v
	}
}

// Each calls each for all values that are kept, in the order in which they were added, and returns how many were added.
func (e *Ends[T]) Each(each func(index uint64, v *T)) (n uint64) {
	for i := range e.first {
		each(uint64(i), &e.first[i])
	}
	for i := e.n - uint64(len(e.last)); i < e.n && len(e.last) > 0; i++ {
		each(i, &e.last[i%e.keep])
	}
	return e.n
}
