package ledger

import (
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/pkg/streamtrace"
)

// Messages with tokens are alike, and computing a message's size costs more than everything else that a record does for it.
// A scale therefore computes the sizes of the first weighFirst messages, which a trace lists one by one, and of every
// weighEach-th message after them.
const (
	weighFirst = streamtrace.DefaultMessages
	weighEach  = 8
)

// A scale estimates the sizes of the messages of one direction. It is safe for concurrent use: a stream with several choices
// has several calls below, and a goroutine receives each.
type scale struct {
	messages atomic.Uint64 // with tokens
	last     atomic.Int64  // the size that was computed last, of a message with tokens
}

// size returns the size of m, or the size of a message like m; 0 if r has neither metrics nor a trace.
func (s *scale) size(r *Record, tokens int, m any) int {
	if r.seen == nil && r.trace == nil {
		return 0
	}
	if tokens == 0 {
		return sizeOf(m)
	}
	n := s.messages.Add(1) - 1
	if n >= weighFirst && n%weighEach != 0 {
		return int(s.last.Load())
	}
	size := sizeOf(m)
	s.last.Store(int64(size))
	return size
}

// sizeOf returns the size of a message on the wire, which a message that was sent or received has cached.
func sizeOf(m any) int {
	if m, ok := m.(proto.Message); ok {
		return proto.MarshalOptions{UseCachedSize: true}.Size(m)
	}
	return 0
}
