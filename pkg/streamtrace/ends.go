package streamtrace

// ends keeps the first and the last of what is added to it, and counts the rest.
type ends[T any] struct {
	keep        uint64 // of each
	n           uint64
	first, last []T // at most keep long; last is then a ring
}

// newEnds returns ends that keep so many of each, and never allocate.
func newEnds[T any](keep int) ends[T] {
	both := make([]T, 2*keep)
	return ends[T]{keep: uint64(keep), first: both[:0:keep], last: both[keep:keep]}
}

func (e *ends[T]) add(v T) {
	at := e.n
	e.n++
	switch {
	case at < e.keep:
		e.first = append(e.first, v)
	case e.keep == 0:
	case at < 2*e.keep:
		e.last = append(e.last, v)
	default:
		e.last[at%e.keep] = v
	}
}

// each calls f for all that is kept, in the order in which it was added.
func (e *ends[T]) each(f func(index uint64, v *T)) {
	for i := range e.first {
		f(uint64(i), &e.first[i])
	}
	for i := e.n - uint64(len(e.last)); i < e.n && len(e.last) > 0; i++ {
		f(i, &e.last[i%e.keep])
	}
}
