package route

import (
	"slices"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
)

// A waiter is a stream's place in the queue of streams that wait to move. The oldest stream goes first: its client has
// waited longest, and it is nearest to its end.
type waiter struct {
	began  time.Time // of the stream
	turn   func()    // tells the stream that it may ask for a worker again; must not block
	queued bool      // guarded by the pool's mu
	called bool      // turn was called, and the stream has not asked since; guarded by the pool's mu
}

// A queue is the streams that wait to move, oldest first. It is guarded by the pool's mu. It is bounded by the live streams.
type queue struct{ waiting []*waiter }

// yields reports whether w must wait for an older stream that was called and has not asked yet. w is in the queue then,
// and that stream's answer calls the streams behind it.
func (q *queue) yields(w *waiter) bool {
	for _, older := range q.waiting {
		if older == w || older.began.After(w.began) {
			return false
		}
		if older.called {
			q.insert(w)
			return true
		}
	}
	return false
}

// join puts w into the queue. If w is in the queue, its place is passed on.
func (q *queue) join(w *waiter) {
	if w.queued {
		q.call(slices.Index(q.waiting, w) + 1) // the next stream may be content with another worker
		return
	}
	q.insert(w)
}

func (q *queue) insert(w *waiter) {
	if w.queued {
		return
	}
	w.queued = true
	at, _ := slices.BinarySearchFunc(q.waiting, w, func(a, b *waiter) int {
		if a.began.After(b.began) {
			return 1
		}
		return -1 // also of one time: w waits for a
	})
	q.waiting = slices.Insert(q.waiting, at, w)
}

// leave removes a stream from the queue, if it is in the queue, and passes its place on. w is nil for a stream that does not move.
func (q *queue) leave(w *waiter) {
	if w == nil || !w.queued {
		return
	}
	w.queued, w.called = false, false
	at := slices.Index(q.waiting, w)
	q.waiting = slices.Delete(q.waiting, at, at+1)
	q.call(at) // there may be room for another stream
}

// call has the stream at a place ask again, if there is one.
func (q *queue) call(at int) {
	if at < len(q.waiting) {
		q.waiting[at].called = true
		q.waiting[at].turn()
	}
}

// leaveQueue removes a stream from the queue of streams that wait to move.
func (p *Pool) leaveQueue(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue.leave(w)
}

// settled notes that a stream that has moved to a worker, with so many tokens, has its next token or has left it.
func (p *Pool) settled(w *fleet.Worker, tokens int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.moving[w] = p.moving[w].Add(-1, -tokens); p.moving[w].Streams <= 0 {
		delete(p.moving, w)
	}
	p.queue.call(0)
}

// callOldest has the oldest stream that waits to move ask again: there may be another worker now.
func (p *Pool) callOldest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue.call(0)
}
