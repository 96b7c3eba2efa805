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
	n    uint64
	kept []T // the first values, and then the last ones, which are a ring when it is full
	keep int // number of values kept at each end
}

// NewEnds returns Ends that keep n values at each end. Add does not allocate.
func NewEnds[T any](n int) Ends[T] {
	return Ends[T]{keep: n, kept: make([]T, 0, 2*n)}
}

// firstGrown is the initial capacity of GrowingEnds.
const firstGrown = 4

// GrowingEnds is like NewEnds, except that Add allocates memory as needed.
func GrowingEnds[T any](n int) Ends[T] { return Ends[T]{keep: n} }

// Add adds a value.
func (e *Ends[T]) Add(v T) {
	at := e.n
	e.n++
	switch {
	case e.keep == 0:
	case e.kept == nil:
		e.kept = append(make([]T, 0, min(2*e.keep, firstGrown)), v)
	case len(e.kept) < 2*e.keep:
		e.kept = append(e.kept, v)
	default:
		e.kept[e.keep+int(at%uint64(e.keep))] = v
	}
}

// ring returns the memory of the last values, for NewEnds.
func (e *Ends[T]) ring() []T { return e.kept[e.keep:cap(e.kept)] }

// Each calls each for every kept value, in the order in which the values were added, and returns
// the number of added values.
func (e *Ends[T]) Each(each func(index uint64, v *T)) (n uint64) {
	first := e.kept[:min(e.keep, len(e.kept))]
	for i := range first {
		each(uint64(i), &first[i])
	}
	last := e.kept[len(first):]
	for i := e.n - uint64(len(last)); i < e.n && len(last) > 0; i++ {
		each(i, &last[i%uint64(e.keep)])
	}
	return e.n
}
