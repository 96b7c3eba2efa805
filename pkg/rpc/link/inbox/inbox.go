// Package inbox holds the messages of one stream of a link that have arrived but have not been
// read.
package inbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/whence-dev/whence/pkg/rpc/link/frame"
	"github.com/whence-dev/whence/pkg/stream"
)

// Errors of Put and PutPart, which end the connection.
var (
	// ErrOverrun means that the peer sent more than its credit.
	ErrOverrun = errors.New("link: the peer sent more than its credit")
	// ErrProtocol means that the peer sent a well-formed frame that the protocol does not allow at
	// that point.
	ErrProtocol = errors.New("link: the peer broke the protocol")
)

// Cost returns the credit that a message of size bytes uses.
func Cost(size int) int { return size + frame.ItemCost }

// keepBytes is the size above which a stream's buffer is freed when it is empty.
const keepBytes = 16 << 10

// An Inbox holds the messages of one stream. The goroutine that reads the connection adds them, and
// never blocks. A peer that sends more than limit has exceeded its credit.
//
// An Inbox has one reader at a time: a goroutine that calls Next, or Loops that call the functions
// passed to Attend.
type Inbox struct {
	limit      int
	maxMessage int

	mu    sync.Mutex    // guards the following fields
	ready chan struct{} // capacity 1: wakes the goroutine in Next; nil until that waits
	bytes []byte        // messages, each after its head; see add and refuse
	spare []byte        // the reader's last buffer
	cost  int           // credit used by the unread messages
	part  *partial      // a message that has not arrived whole; nil if there is none
	err   error         // follows the messages: no more messages arrive
	cut   error         // precedes the messages: no more messages are read

	take   Take            // from Attend; nil if there is none, or if it wants no more messages
	ended  func(err error) // from Attend; nil if there is none, or after it was called
	taking bool            // a goroutine is in take
	due    bool            // Add has returned true, and Hand will follow

	// Owned by the reader.
	reading []byte

	// The first two buffers. Most messages are short, and an Inbox without other buffers is one
	// piece of memory.
	small [2][smallBytes]byte
}

// A partial is the beginning of a message.
type partial struct {
	bytes []byte
	left  int // number of missing bytes
}

// smallBytes is the size of the first two buffers.
const smallBytes = 64

// A Take receives a message, or a TooLong. It returns false if it wants no more messages. The
// message is valid until Take returns. on is the Loop that carries the message, or nil.
type Take func(on *stream.Loop, message []byte, err error) bool

// Init initializes an Inbox for messages of at most maxMessage bytes, whose unread messages may cost
// limit. After Init, an Inbox must not be copied.
func (q *Inbox) Init(limit, maxMessage int) {
	q.limit, q.maxMessage = limit, maxMessage
	q.bytes, q.spare = q.small[0][:0], q.small[1][:0]
}

// wake wakes the goroutine in Next. The caller holds mu.
func (q *Inbox) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// Put adds a message, or passes it to the function of Attend. It returns false if another goroutine
// than l's reads the connection from now on.
func (q *Inbox) Put(l *stream.Loop, message []byte) (still bool, err error) {
	q.mu.Lock()
	if open, err := q.accepts(message); !open {
		q.mu.Unlock()
		return true, err
	}
	if q.take != nil && !q.taking && q.empty() {
		q.taking = true
		q.mu.Unlock()
		return q.hand(l, func() { q.pass(l, message, nil) }), nil
	}
	err = q.add(message)
	q.wake()
	q.mu.Unlock()
	return true, err
}

// Add adds a message without calling the reader. If it returns true, the caller must call Hand at
// the end of the batch.
func (q *Inbox) Add(message []byte) (due bool, err error) {
	q.mu.Lock()
	if open, err := q.accepts(message); !open {
		q.mu.Unlock()
		return false, err
	}
	due = q.take != nil && !q.taking && q.empty()
	q.due = q.due || due
	err = q.add(message)
	q.wake()
	q.mu.Unlock()
	return due, err
}

// Hand passes the messages of Add to the function of Attend. It returns the same as Put.
func (q *Inbox) Hand(l *stream.Loop) (still bool) {
	q.mu.Lock()
	q.due = false
	if q.take == nil || q.taking {
		q.conclude()
		q.mu.Unlock()
		return true
	}
	q.taking = true
	q.mu.Unlock()
	return q.hand(l, func() {})
}

// hand calls first, and then passes the messages that have arrived to the function of Attend, on l.
func (q *Inbox) hand(l *stream.Loop, first func()) (still bool) {
	returned := false
	defer func() {
		if !returned { // the function of Attend has exited this goroutine
			l.Wait()
		}
	}()
	q.mu.Lock()
	func() {
		defer q.mu.Unlock()
		q.handAll(l, first)
	}()
	returned = true
	return !l.Left()
}

// handAll calls first, passes the messages that have arrived to the function of Attend, and ends
// the turn of the goroutine that has set taking. The caller holds mu, which is released during the
// function.
func (q *Inbox) handAll(l *stream.Loop, first func()) {
	exited := true
	defer func() {
		if exited {
			q.take = nil
		}
		q.taking = false
		q.conclude()
	}()
	first()
	for q.take != nil && q.cut == nil {
		message, err, ok := q.pop()
		if !ok {
			break
		}
		q.pass(l, message, err)
	}
	exited = false
}

// pass calls the function of Attend. The caller holds mu, which is released during the function.
func (q *Inbox) pass(l *stream.Loop, message []byte, err error) {
	if !q.unlocked(q.take, l, message, err) {
		q.take = nil
	}
}

func (q *Inbox) unlocked(take Take, l *stream.Loop, message []byte, err error) (more bool) {
	q.mu.Unlock()
	defer q.mu.Lock()
	return take(l, message, err)
}

// Attend passes each message to take, in order of arrival, until take returns false or exits its
// goroutine. Then it calls ended: with nil if take wants no more messages, and otherwise with the
// reason why no more messages arrive. Next returns the messages that take did not get. Attend
// returns at once. Loops call take, or the calling goroutine does; if take exits the calling
// goroutine, ended is not called. Any goroutine may call ended, which must not block.
func (q *Inbox) Attend(take Take, ended func(err error)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.take, q.taking = take, true
	q.handAll(nil, func() {})
	q.ended = ended // set late: if take exits this goroutine above, Attend must not report an end
	q.conclude()
}

// conclude calls the ended function of Attend if the end has come. The caller holds mu, which is
// released during the function.
func (q *Inbox) conclude() {
	var why error
	switch {
	case q.ended == nil || q.taking:
		return
	case q.take == nil: // take wants no more messages
	case q.cut != nil:
		why = q.cut
	case q.err != nil && !q.due:
		why = q.err
	default:
		return
	}
	ended := q.ended
	q.take, q.ended = nil, nil
	q.mu.Unlock()
	defer q.mu.Lock()
	ended(why)
}

// More reports whether a message is unread. Only the reader may call it.
func (q *Inbox) More() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.empty()
}

// accepts reports whether a whole message can be added. If not, err is why the connection must end,
// or nil for a message that was on its way when this end dropped the stream. The caller holds mu.
func (q *Inbox) accepts(message []byte) (open bool, err error) {
	if !q.over() && (q.part != nil || len(message) > q.maxMessage) {
		return false, ErrProtocol
	}
	return !q.over(), nil
}

// over reports whether the inbox accepts no more messages. The caller holds mu.
func (q *Inbox) over() bool { return q.err != nil || q.cut != nil }

// empty reports whether no message is unread. The caller holds mu.
func (q *Inbox) empty() bool { return len(q.bytes) == 0 && len(q.reading) == 0 }

// add appends a message. The caller holds mu.
func (q *Inbox) add(message []byte) error {
	if q.cost += Cost(len(message)); q.cost > q.limit {
		return ErrOverrun
	}
	q.bytes = binary.AppendUvarint(q.bytes, uint64(len(message))<<1)
	q.bytes = append(q.bytes, message...)
	return nil
}

// refuse adds a TooLong for a message of size bytes. The caller holds mu.
func (q *Inbox) refuse(size int) error {
	if q.cost += Cost(0); q.cost > q.limit {
		return ErrOverrun
	}
	q.bytes = binary.AppendUvarint(q.bytes, uint64(size)<<1|1)
	return nil
}

// A TooLong is the length in bytes of a message that the peer did not send because it exceeds this
// end's limit.
type TooLong int

// Error implements error.
func (n TooLong) Error() string { return fmt.Sprintf("a message of %d bytes is too long", int(n)) }

// PutPart adds a part of a message. left is the number of missing bytes of the message, including
// part. A message that is too long has one part. PutPart returns the same as Put.
func (q *Inbox) PutPart(l *stream.Loop, left int, part []byte) (still bool, err error) {
	q.mu.Lock()
	if q.over() {
		q.mu.Unlock()
		return true, nil
	}
	if q.part == nil {
		q.part = &partial{left: left}
	}
	whole := false
	switch {
	case left == q.part.left && left > q.maxMessage:
		q.part, whole = nil, true
		err = q.refuse(left)
	case left != q.part.left:
		err = ErrProtocol
	default:
		whole, err = q.addPart(part)
	}
	if err != nil || !whole {
		q.mu.Unlock()
		return true, err
	}
	if q.take == nil || q.taking {
		q.wake()
		q.mu.Unlock()
		return true, nil
	}
	q.taking = true
	q.mu.Unlock()
	return q.hand(l, func() {}), nil
}

// addPart adds a part of a message, and reports whether that message is now complete. The caller
// holds mu.
func (q *Inbox) addPart(part []byte) (whole bool, err error) {
	p := q.part
	if p.bytes = append(p.bytes, part...); len(p.bytes)+q.cost > q.limit {
		return false, ErrOverrun
	}
	if p.left -= len(part); p.left > 0 {
		return false, nil
	}
	q.part = nil
	return true, q.add(p.bytes)
}

// End makes err follow the messages that have arrived. Only the first End has an effect.
func (q *Inbox) End(err error) {
	q.mu.Lock()
	if q.err == nil {
		q.err = err
	}
	q.part = nil
	q.wake()
	q.conclude()
	q.mu.Unlock()
}

// Drop discards the messages, and makes the reader get err next. Only the first Drop has an effect.
func (q *Inbox) Drop(err error) {
	q.mu.Lock()
	if q.cut == nil {
		q.cut = err
	}
	q.bytes, q.spare, q.part = nil, nil, nil
	q.wake()
	q.conclude()
	q.mu.Unlock()
}

// Next returns the next message, or the error that ends the messages. It blocks until there is one.
// The message is valid until the next call.
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
		if q.ready == nil {
			q.ready = make(chan struct{}, 1)
		}
		ready := q.ready
		q.mu.Unlock()
		<-ready
		q.mu.Lock()
	}
}

// pop returns the oldest message, or a TooLong. It returns ok false if there is none. The caller
// holds mu.
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
		q.reading = nil // otherwise the buffer of a large request would last as long as its stream
	}
	q.cost -= Cost(len(message))
	return message, nil, true
}
