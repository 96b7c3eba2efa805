package network

import (
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
)

var errShut = errors.New("network: the call is over")

// A queue is one direction of a call. Messages become readable when they arrive.
type queue struct {
	call      *Call
	direction int

	mu       sync.Mutex // guards the following fields
	entries  []entry
	bytes    int
	position int
	last     time.Time // arrival of the last message
	over     error     // returned by take after the entries; nil while more may come
	overAt   time.Time
	trailer  metadata.MD
	closed   bool // messages are lost without an error for the sender
	refuses  bool // put fails because the call is over
	aborted  bool // entries are no longer read

	changed chan struct{} // capacity 1: a message has arrived, or the call is over
	room    chan struct{} // capacity 1: a message was read, or the call is over
}

type entry struct {
	due  time.Time
	data []byte
}

func newQueue(c *Call, direction int) *queue {
	return &queue{call: c, direction: direction, changed: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// arrival draws the arrival time of a message that is sent now.
func (q *queue) arrival() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next()
}

// next is arrival for a caller that holds mu.
func (q *queue) next() time.Time {
	q.position++
	due := time.Now().Add(q.call.conn.net.delay(q.call.id, q.direction, q.position) + q.call.slower())
	if due.Before(q.last) {
		due = q.last
	}
	q.last = due
	return due
}

func (c *Call) slower() time.Duration {
	n := c.conn.net
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.link(c.From, c.To).slower
}

// put sends a message once there is room. It fails when the call is over or done is closed.
func (q *queue) put(data []byte, done <-chan struct{}) error {
	for {
		q.mu.Lock()
		switch {
		case q.over != nil && !q.closed || q.refuses || q.aborted:
			q.mu.Unlock()
			return errShut
		case q.closed: // the message is lost, but the sender does not know yet
			q.mu.Unlock()
			return nil
		case q.bytes < Window:
			q.bytes += len(data)
			q.entries = append(q.entries, entry{q.next(), data})
			q.mu.Unlock()
			wake(q.changed)
			return nil
		}
		q.mu.Unlock()
		select {
		case <-q.room:
		case <-done:
			return errShut
		}
	}
}

// take waits for the next message and returns it, or the reason why there is none.
func (q *queue) take() ([]byte, metadata.MD, error) {
	for {
		q.mu.Lock()
		waits := time.Duration(-1)
		switch {
		case len(q.entries) > 0 && !q.aborted:
			if waits = time.Until(q.call.late(q.entries[0].due)); waits <= 0 {
				data := q.entries[0].data
				q.entries = q.entries[1:]
				q.bytes -= len(data)
				q.mu.Unlock()
				wake(q.room)
				return data, nil, nil
			}
		case q.over != nil:
			if waits = time.Until(q.call.late(q.overAt)); waits <= 0 || q.aborted {
				defer q.mu.Unlock()
				wake(q.changed) // for a second reader
				return nil, q.trailer, q.over
			}
		}
		q.mu.Unlock()
		if waits < 0 {
			<-q.changed
			continue
		}
		timer := time.NewTimer(waits)
		select {
		case <-timer.C:
		case <-q.changed:
			timer.Stop()
		}
	}
}

// end makes take return err after the messages, at the arrival time of the end; the zero time means
// that this side itself noticed the end. Only the first end counts. An end that travels over a
// broken connection is lost.
func (q *queue) end(err error, trailer metadata.MD, at time.Time) {
	q.mu.Lock()
	if q.over == nil && (at.IsZero() || !q.closed) {
		q.over, q.trailer, q.overAt = err, trailer, at
	}
	q.mu.Unlock()
	wake(q.changed)
	wake(q.room)
}

// abort makes take return err at once.
func (q *queue) abort(err error) {
	q.mu.Lock()
	q.over, q.trailer, q.aborted = err, nil, true
	q.mu.Unlock()
	wake(q.changed)
	wake(q.room)
}

// cut discards all messages that have not arrived yet, and all later ones. It reports whether the
// end has arrived.
func (q *queue) cut(now time.Time) (over bool) {
	q.mu.Lock()
	q.closed = true
	for i, e := range q.entries {
		if e.due.After(now) || q.call.late(e.due).After(now) {
			q.entries = q.entries[:i]
			break
		}
	}
	if q.over != nil && !q.aborted && (q.overAt.After(now) || q.call.late(q.overAt).After(now)) {
		q.over, q.trailer = nil, nil // the end is lost, too
	}
	over = q.over != nil
	q.mu.Unlock()
	wake(q.room)
	return over
}

// shut tells senders that the call is over.
func (q *queue) shut() {
	q.mu.Lock()
	q.refuses = true
	q.mu.Unlock()
	wake(q.room)
}

// drop discards all messages that are put from now on.
func (q *queue) drop() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	wake(q.room)
}
