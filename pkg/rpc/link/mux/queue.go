package mux

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/whence-dev/whence/pkg/rpc/link/frame"
)

// A gate lets one goroutine wait until another one has something for it. It has capacity 1.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

func (g gate) open() {
	select {
	case g <- struct{}{}:
	default:
	}
}

func cost(size int) int { return size + frame.ItemCost }

// keepBytes is the size above which a stream's buffer is freed when it is empty.
const keepBytes = 16 << 10

// A queue holds the messages of one stream that have come and were not read. The goroutine that
// reads the connection puts them, and never waits. Beyond limit bytes the peer has exceeded its
// credit.
type queue struct {
	limit      int
	maxMessage int
	ready      gate // something was put, or the queue was ended or cut

	mu    sync.Mutex // guards the following fields
	bytes []byte     // messages, each behind its head; see add and refuse
	spare []byte     // the reader's last buffer
	cost  int        // of what has come and was not read
	part  []byte     // of a message that has not come whole
	left  int        // bytes of it that are still to come
	err   error      // follows the messages: nothing more comes
	cut   error      // comes before the messages: nothing more is read

	// Owned by the reader.
	reading []byte
}

// put adds a message.
func (q *queue) put(message []byte) error {
	q.mu.Lock()
	if q.over() { // the message was on its way when this end dropped the stream
		q.mu.Unlock()
		return nil
	}
	if q.left > 0 || len(message) > q.maxMessage {
		q.mu.Unlock()
		return ErrProtocol
	}
	err := q.add(message)
	q.mu.Unlock()
	q.ready.open()
	return err
}

// over reports whether the queue takes no more messages. mu is held.
func (q *queue) over() bool { return q.err != nil || q.cut != nil }

// add appends a message. mu is held.
func (q *queue) add(message []byte) error {
	if q.cost += cost(len(message)); q.cost > q.limit {
		return ErrOverrun
	}
	q.bytes = binary.AppendUvarint(q.bytes, uint64(len(message))<<1)
	q.bytes = append(q.bytes, message...)
	return nil
}

// refuse adds the refusal of a message of size bytes. mu is held.
func (q *queue) refuse(size int) error {
	if q.cost += cost(0); q.cost > q.limit {
		return ErrOverrun
	}
	q.bytes = binary.AppendUvarint(q.bytes, uint64(size)<<1|1)
	return nil
}

// A tooLong is the length in bytes of a message that was not sent, because this end does not take
// it.
type tooLong int

// Error implements error.
func (n tooLong) Error() string { return fmt.Sprintf("a message of %d bytes is too long", int(n)) }

// putPart adds a part of a message. left is the number of bytes of the message that are still missing,
// part included. A message that is too long consists of one part.
func (q *queue) putPart(left int, part []byte) error {
	q.mu.Lock()
	if q.over() {
		q.mu.Unlock()
		return nil
	}
	if q.left == 0 {
		q.left = left
	}
	if left == q.left && left > q.maxMessage {
		err := q.refuse(left)
		q.left = 0
		q.mu.Unlock()
		q.ready.open()
		return err
	}
	if left != q.left {
		q.mu.Unlock()
		return ErrProtocol
	}
	if q.part = append(q.part, part...); len(q.part)+q.cost > q.limit {
		q.mu.Unlock()
		return ErrOverrun
	}
	if q.left -= len(part); q.left > 0 {
		q.mu.Unlock()
		return nil
	}
	err := q.add(q.part)
	q.part = nil
	q.mu.Unlock()
	q.ready.open()
	return err
}

// end has err follow the messages that have come. The first end counts.
func (q *queue) end(err error) {
	q.mu.Lock()
	if q.err == nil {
		q.err = err
	}
	q.part, q.left = nil, 0
	q.mu.Unlock()
	q.ready.open()
}

// drop has the reader read err next, and forgets the messages. The first drop counts.
func (q *queue) drop(err error) {
	q.mu.Lock()
	if q.cut == nil {
		q.cut = err
	}
	q.bytes, q.spare, q.part, q.left = nil, nil, nil, 0
	q.mu.Unlock()
	q.ready.open()
}

// next returns the next message, or why there is none. It waits for one. The message is valid until
// the next call. There is one reader at a time.
func (q *queue) next() (message []byte, err error) {
	for {
		q.mu.Lock()
		if q.cut != nil {
			q.mu.Unlock()
			return nil, q.cut
		}
		if len(q.reading) == 0 && len(q.bytes) > 0 {
			q.reading, q.bytes = q.bytes, q.spare[:0]
			q.spare = nil
			if cap(q.reading) <= keepBytes {
				q.spare = q.reading[:0]
			}
		}
		if len(q.reading) > 0 {
			head, n := binary.Uvarint(q.reading)
			size := int(head >> 1)
			if head&1 != 0 {
				q.reading = q.reading[n:]
				q.cost -= cost(0)
				q.mu.Unlock()
				return nil, tooLong(size)
			}
			message, q.reading = q.reading[n:n+size], q.reading[n+size:]
			if len(q.reading) == 0 {
				q.reading = nil // else the buffer of a large request would last as long as its stream
			}
			q.cost -= cost(len(message))
			q.mu.Unlock()
			return message, nil
		}
		err := q.err
		q.mu.Unlock()
		if err != nil {
			return nil, err
		}
		<-q.ready
	}
}

// partSize is the length of the parts of large messages, and the length up to which a message is
// sent whole.
const partSize = 16 << 10

var _ = [1]struct{}{}[(partSize+frame.MaxItemHead)/frame.MaxPayload] // a whole message fits into a frame
