package replay

import "strings"

// notes are the notes of the deltas of one stream. The zero value is for deltas without notes, and
// takes no extra memory.
type notes struct {
	text strings.Builder
	ends []uint32 // the end of each delta's note in text; empty if no delta has a note
}

// add stores the note of the delta with this index, from 0.
func (n *notes) add(index int, note []byte) {
	if len(note) == 0 && len(n.ends) == 0 {
		return
	}
	for len(n.ends) < index { // deltas without a note
		n.ends = append(n.ends, uint32(n.text.Len()))
	}
	n.text.Write(note)
	n.ends = append(n.ends, uint32(n.text.Len()))
}

// of returns the note of the delta with this index.
func (n *notes) of(index int) string {
	if index >= len(n.ends) {
		return ""
	}
	from := uint32(0)
	if index > 0 {
		from = n.ends[index-1]
	}
	return n.text.String()[from:n.ends[index]]
}
