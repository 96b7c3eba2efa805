// Package idlist lists the token ids of a growing answer.
package idlist

// A List is a list of token ids. Its last ids are within the List, whose memory is in the
// processor's cache when the next token arrives; the end of a long slice is not. The zero value is
// empty.
type List struct {
	ids  []uint32
	last [16]uint32
	n    int // ids in last
}

// Add appends ids.
func (l *List) Add(ids []uint32) {
	if len(ids) > len(l.last)-l.n {
		l.ids = append(append(l.ids, l.last[:l.n]...), ids...)
		l.n = 0
		return
	}
	l.n += copy(l.last[l.n:], ids)
}

// Len returns the number of ids.
func (l *List) Len() int { return len(l.ids) + l.n }

// AppendTo appends all ids to b.
func (l *List) AppendTo(b []uint32) []uint32 { return append(append(b, l.ids...), l.last[:l.n]...) }
