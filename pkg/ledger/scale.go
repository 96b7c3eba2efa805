package ledger

import (
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/pkg/streamtrace"
)

// Of messages with tokens, which are alike, the first are weighed, which a trace tells one by one, and then one in weighEach: to
// find a size costs more than all else that is done for a message.
const (
	weighFirst = streamtrace.DefaultMessages
	weighEach  = 8
)

// A scale weighs the messages of one direction.
type scale struct {
	n    uint64 // messages with tokens
	last int    // the size of the last of them that was weighed
}

// size returns the size of a message with so many tokens, or of one that is like it; 0 if nobody wants to know.
func (s *scale) size(r *Record, tokens int, m any) int {
	if r.seen == nil && r.trace == nil {
		return 0
	}
	if tokens == 0 {
		return sizeOf(m)
	}
	if s.n < weighFirst || s.n%weighEach == 0 {
		s.last = sizeOf(m)
	}
	s.n++
	return s.last
}

// sizeOf returns the size of a message on the wire. One that has been sent knows it.
func sizeOf(m any) int {
	if m, ok := m.(proto.Message); ok {
		return proto.MarshalOptions{UseCachedSize: true}.Size(m)
	}
	return 0
}
