// Package inbox holds the messages of one stream of a link that have arrived and are unread.
package inbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/whence-dev/whence/pkg/rpc/link/frame"
	"github.com/whence-dev/whence/pkg/rpc/loop"
)

// Errors of Put and PutPart, which end the connection.
var (
	// ErrOverrun means that the peer sent more than its credit.
	ErrOverrun = errors.New("link: the peer sent more than its credit")
	// ErrProtocol means that the peer sent a well-formed frame that the protocol does not allow at that
	// point.
	ErrProtocol = errors.New("link: the peer broke the protocol")
)

// Cost returns the credit that a message of size bytes uses.
func Cost(size int) int { return size + frame.ItemCost }

// keepBytes is the size above which a stream's buffer is freed when it is empty.
const keepBytes = 16 << 10

// An Inbox holds the messages of one stream. The goroutine that reads the connection adds them, and
// never waits. A peer that sends more than limit has exceeded its credit.
//
// An Inbox has one reader at a time, of one of three kinds:
//   - a goroutine that calls Next;
//   - a goroutine that waits in Carry, while Loops call its function;
//   - no goroutine: Loops call the functions that were given to Attend.
type Inbox struct {
	limit      int
	maxMessage int
	ready      chan struct{} // capacity 1: something has changed for the goroutine in Next or Carry

	mu    sync.Mutex // guards the following fields
	bytes []byte     // messages, each behind its head; see add and refuse
	spare []byte     // the reader's last buffer
	cost  int        // credit that the unread messages use
	part  []byte     // of a message that has not come whole
	left  int        // bytes of it that are still to come
	err   error      // follows the messages: nothing more comes
	cut   error      // comes before the messages: nothing more is read

	take    Take            // of Carry or Attend; nil if there is none, or if it wants no more
	ended   func(err error) // of Attend; nil if there is none, or it was called
	carrier *loop.Carrier
	taking  bool // a goroutine is within take

	// Owned by the reader.
	reading []byte
}

// A Take receives a message, or a TooLong. It returns false if it wants no more. The message is valid
// until Take returns.
type Take func(message []byte, err error) bool

// New returns an Inbox that takes messages of maxMessage bytes, and holds messages that cost limit.
func New(limit, maxMessage int) *Inbox {
	return &Inbox{limit: limit, maxMessage: maxMessage, ready: make(chan struct{}, 1)}
}

// wake wakes the goroutine in Next or Carry.
func (q *Inbox) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// Put adds a message, or hands it to the function of Carry. It returns false if the connection is read
// by another goroutine than l from now on.
func (q *Inbox) Put(l *loop.Loop, message []byte) (still bool, err error) {
	q.mu.Lock()
	if open, err := q.accepts(message); !open {
		q.mu.Unlock()
		return true, err
	}
	if q.take != nil && !q.taking && q.empty() {
		q.taking = true
		take := q.take
		q.mu.Unlock()
		return q.hand(l, func() bool { return take(message, nil) }), nil
	}
	err = q.add(message)
	q.mu.Unlock()
	q.wake()
	return true, err
}

// Add adds a message without calling the reader. If it returns true, the caller calls Hand at the end
// of the batch.
func (q *Inbox) Add(message []byte) (due bool, err error) {
	q.mu.Lock()
	if open, err := q.accepts(message); !open {
		q.mu.Unlock()
		return false, err
	}
	due = q.take != nil && !q.taking && q.empty()
	err = q.add(message)
	q.mu.Unlock()
	if !due {
		q.wake()
	}
	return due, err
}

// Hand calls the function of Carry with the messages that Add has added. It returns what Put returns.
func (q *Inbox) Hand(l *loop.Loop) (still bool) {
	q.mu.Lock()
	if q.take == nil || q.taking || q.empty() {
		q.mu.Unlock()
		return true
	}
	q.taking = true
	q.mu.Unlock()
	return q.hand(l, func() bool { return true })
}

// hand calls first, and then hands the messages that have come to the function of Carry.
func (q *Inbox) hand(l *loop.Loop, first func() bool) (still bool) {
	returned := false
	defer func() {
		if !returned {
			q.mu.Lock()
			q.take, q.taking = nil, false
			q.mu.Unlock()
			q.wake()
		}
	}()
	still = l.Run(q.carrier, func() {
		more := first()
		q.mu.Lock()
		q.taken(more)
		q.handAll()
		q.mu.Unlock()
		returned = true
	})
	return still
}

// taken records what the function of Carry has returned. mu is held.
func (q *Inbox) taken(more bool) {
	if !more {
		q.take = nil
	}
}

// handAll hands the messages that have come to the function of Carry, and ends the turn of the goroutine
// that has set taking. mu is held, but not within the function.
func (q *Inbox) handAll() {
	for q.take != nil && q.cut == nil {
		message, err, ok := q.pop()
		if !ok {
			break
		}
		take := q.take
		q.mu.Unlock()
		more := take(message, err)
		q.mu.Lock()
		q.taken(more)
	}
	q.taking = false
	if q.take == nil || q.over() {
		q.wake()
		q.conclude()
	}
}

// Attend hands each message to take, in the order of their coming, until take returns false, and then
// calls ended, with why nothing more comes if that is so. It returns at once; Loops call take, or the
// calling goroutine does. ended is called by them or by the goroutine that ends the inbox. They must not
// wait.
func (q *Inbox) Attend(take Take, ended func(err error)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.take, q.ended, q.carrier, q.taking = take, ended, &loop.Carrier{}, true
	q.handAll()
}

// conclude calls the function of Attend for the end if that has come. mu is held, but not within the
// function.
func (q *Inbox) conclude() {
	if q.ended == nil || q.taking || q.take != nil && !q.over() {
		return
	}
	ended, why := q.ended, q.err
	if q.cut != nil {
		why = q.cut
	}
	q.take, q.ended = nil, nil
	q.mu.Unlock()
	defer q.mu.Lock()
	ended(why)
}

// Carry hands each message to take, in the order of their coming, until take returns false or exits its
// goroutine; Carry then returns nil. Otherwise it returns why nothing more comes. Loops call take with c, or the calling
// goroutine does.
func (q *Inbox) Carry(c *loop.Carrier, take Take) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.take, q.carrier, q.taking = take, c, true
	q.handAll()
	for {
		switch {
		case q.taking:
		case q.take == nil:
			return nil
		case q.cut != nil:
			q.take = nil
			return q.cut
		case q.err != nil && q.empty():
			q.take = nil
			return q.err
		case q.err != nil: // the connection ended before Hand
			q.taking = true
			q.handAll()
			continue
		}
		q.mu.Unlock()
		<-q.ready
		q.mu.Lock()
	}
}

// More reports whether a message waits. The reader calls it.
func (q *Inbox) More() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.empty()
}

// accepts reports whether a whole message can be added. err is why the connection ends if it cannot; nil for
// a message that was on its way when this end dropped the stream. mu is held.
func (q *Inbox) accepts(message []byte) (open bool, err error) {
	if !q.over() && (q.left > 0 || len(message) > q.maxMessage) {
		return false, ErrProtocol
	}
	return !q.over(), nil
}

// over reports whether the inbox takes no more messages. mu is held.
func (q *Inbox) over() bool { return q.err != nil || q.cut != nil }

// empty reports whether no message waits. mu is held.
func (q *Inbox) empty() bool { return len(q.bytes) == 0 && len(q.reading) == 0 }

// add appends a message. mu is held.
func (q *Inbox) add(message []byte) error {
	if q.cost += Cost(len(message)); q.cost > q.limit {
		return ErrOverrun
	}
	q.bytes = binary.AppendUvarint(q.bytes, uint64(len(message))<<1)
	q.bytes = append(q.bytes, message...)
	return nil
}

// refuse adds the refusal of a message of size bytes. mu is held.
func (q *Inbox) refuse(size int) error {
	if q.cost += Cost(0); q.cost > q.limit {
		return ErrOverrun
	}
	q.bytes = binary.AppendUvarint(q.bytes, uint64(size)<<1|1)
	return nil
}

// A TooLong is the length in bytes of a message that was not sent, because this end does not take
// it.
type TooLong int

// Error implements error.
func (n TooLong) Error() string { return fmt.Sprintf("a message of %d bytes is too long", int(n)) }

// PutPart adds a part of a message. left is the number of bytes of the message that are still missing,
// part included. A message that is too long consists of one part. The result is that of Put.
func (q *Inbox) PutPart(l *loop.Loop, left int, part []byte) (still bool, err error) {
	q.mu.Lock()
	if q.over() {
		q.mu.Unlock()
		return true, nil
	}
	if q.left == 0 {
		q.left = left
	}
	whole := false
	switch {
	case left == q.left && left > q.maxMessage:
		q.left, whole = 0, true
		err = q.refuse(left)
	case left != q.left:
		err = ErrProtocol
	default:
		whole, err = q.addPart(part)
	}
	if err != nil || !whole {
		q.mu.Unlock()
		return true, err
	}
	if q.take == nil || q.taking {
		q.mu.Unlock()
		q.wake()
		return true, nil
	}
	q.taking = true
	q.mu.Unlock()
	return q.hand(l, func() bool { return true }), nil
}

// addPart adds a part of a message, and reports whether that message is now whole. mu is held.
func (q *Inbox) addPart(part []byte) (whole bool, err error) {
	if q.part = append(q.part, part...); len(q.part)+q.cost > q.limit {
		return false, ErrOverrun
	}
	if q.left -= len(part); q.left > 0 {
		return false, nil
	}
	err = q.add(q.part)
	q.part = nil
	return true, err
}

// End has err follow the messages that have come. The first end counts.
func (q *Inbox) End(err error) {
	q.mu.Lock()
	if q.err == nil {
		q.err = err
	}
	q.part, q.left = nil, 0
	q.conclude()
	q.mu.Unlock()
	q.wake()
}

// Drop has the reader read err next, and forgets the messages. The first drop counts.
func (q *Inbox) Drop(err error) {
	q.mu.Lock()
	if q.cut == nil {
		q.cut = err
	}
	q.bytes, q.spare, q.part, q.left = nil, nil, nil, 0
	q.conclude()
	q.mu.Unlock()
	q.wake()
}

// Next returns the next message, or why there is none. It waits for one. The message is valid until
// the next call.
func (q *Inbox) Next() (message []byte, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.cut != nil {
			return nil, q.cut
		}
		if message, err, ok := q.pop(); ok {
			return message, err
		}
		if q.err != nil {
			return nil, q.err
		}
		q.mu.Unlock()
		<-q.ready
		q.mu.Lock()
	}
}

// pop returns the message that came first, or a TooLong. It is not ok if there is none. mu is held.
func (q *Inbox) pop() (message []byte, err error, ok bool) {
	if len(q.reading) == 0 && len(q.bytes) > 0 {
		q.reading, q.bytes = q.bytes, q.spare[:0]
		q.spare = nil
		if cap(q.reading) <= keepBytes {
			q.spare = q.reading[:0]
		}
	}
	if len(q.reading) == 0 {
		return nil, nil, false
	}
	head, n := binary.Uvarint(q.reading)
	size := int(head >> 1)
	if head&1 != 0 {
		q.reading = q.reading[n:]
		q.cost -= Cost(0)
		return nil, TooLong(size), true
	}
	message, q.reading = q.reading[n:n+size], q.reading[n+size:]
	if len(q.reading) == 0 {
		q.reading = nil // else the buffer of a large request would last as long as its stream
	}
	q.cost -= Cost(len(message))
	return message, nil, true
}
