package tally

import "time"

// A Message is one message of a stream.
type Message struct {
	At            time.Duration // time since the stream began
	Bytes, Tokens uint32
}

// Ends keeps the first and the last values added to it, and counts all values. The zero value keeps
// no values.
type Ends[T any] struct {
	keep        uint64 // number of values kept at each end
	n           uint64
	first, last []T // each at most keep long; when full, last is a ring
}

// NewEnds returns Ends that keep n values at each end. Add does not allocate.
func NewEnds[T any](n int) Ends[T] {
	both := make([]T, 2*n)
	return Ends[T]{keep: uint64(n), first: both[:0:n], last: both[n:n]}
}

// firstGrown is the initial capacity of GrowingEnds.
const firstGrown = 8

// GrowingEnds is like NewEnds, except that Add allocates memory as needed.
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

// Each calls each for every kept value, in the order in which the values were added, and returns
// the number of added values.
func (e *Ends[T]) Each(each func(index uint64, v *T)) (n uint64) {
	for i := range e.first {
		each(uint64(i), &e.first[i])
	}
	for i := e.n - uint64(len(e.last)); i < e.n && len(e.last) > 0; i++ {
		each(i, &e.last[i%e.keep])
	}
	return e.n
}
