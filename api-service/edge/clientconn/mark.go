package clientconn

import (
	"github.com/whence-dev/whence/api-service/extent"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
)

// A Mark says how much of the answer the client has once it has taken a Write. The zero value
// changes nothing.
type Mark struct {
	// Extent is reached with the first At bytes of the Write.
	Extent extent.Extent
	At     int
	// Last says that the Write ends with the terminator of the stream.
	Last bool
}

// marks are the offsets, in bytes of all Writes, at which the client reaches each extent for the
// first time; 0 means that it is not written yet. Behind the extents is the offset of the end.
type marks [extent.Answer + 2]int64

// end is the index of the end of the stream.
const end = extent.Answer + 1

// add adds the mark of a Write of n bytes that begins at an offset.
func (all *marks) add(m Mark, begin int64, n int) {
	if at := &all[m.Extent]; *at == 0 {
		*at = begin + int64(m.At)
	}
	if m.Last {
		all[end] = begin + int64(n)
	}
}

// Extent returns how much of the answer the client has taken if a part is missing. If the client
// has taken the terminator of the stream, too, Extent returns EXTENT_UNSPECIFIED.
func (c *Conn) Extent() extent.Extent {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := end; e > extent.Nothing; e-- {
		if at := c.reached[e]; at == 0 || at > c.taken {
			continue
		}
		if e == end {
			return streamv1.Extent_EXTENT_UNSPECIFIED
		}
		return e
	}
	return extent.Nothing
}

// NextAnswer begins another answer. The client has received no part of it yet.
func (c *Conn) NextAnswer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reached = marks{}
}
