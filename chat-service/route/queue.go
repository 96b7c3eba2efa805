package route

import (
	"slices"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
)

// A waiter is a stream's entry in the queue of streams that wait to move. The oldest stream goes
// first: its client has waited longest, and it is nearest to its end.
type waiter struct {
	began  time.Time // of the stream
	turn   func()    // tells the stream to ask for a worker again; must not block
	queued bool      // guarded by the pool's mu
	called bool      // turn was called, and the stream has not asked again; guarded by the pool's mu
}

// A queue holds the streams that wait to move, oldest first; it is guarded by the pool's mu.
type queue struct{ waiting []*waiter }

// yields reports whether w must wait for an older stream that was called and has not asked yet. It
// then inserts w into the queue, and the older stream's result calls the streams behind it.
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

// join inserts w into the queue. If w is in the queue already, join passes its turn on.
func (q *queue) join(w *waiter) {
	if w.queued {
		q.call(slices.Index(q.waiting, w) + 1) // the next stream may accept another worker
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
		return -1 // also if both began at the same time: w waits for a
	})
	q.waiting = slices.Insert(q.waiting, at, w)
}

// leave removes w from the queue and passes its turn on. w may be nil, or not in the queue.
func (q *queue) leave(w *waiter) {
	if w == nil || !w.queued {
		return
	}
	w.queued, w.called = false, false
	at := slices.Index(q.waiting, w)
	q.waiting = slices.Delete(q.waiting, at, at+1)
	q.call(at) // there may be room for another stream
}

// call makes the stream at position at ask again, if there is one.
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

// settled notes that a moved stream has its next token after a time, or has left w.
func (p *Pool) settled(w *fleet.Worker, tokens int, begun bool, after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.moving[w] = p.moving[w].Done(tokens, begun, after); p.moving[w].Streams <= 0 {
		delete(p.moving, w)
	}
	p.queue.call(0)
}

// callOldest makes the oldest stream in the queue ask for a worker again.
func (p *Pool) callOldest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue.call(0)
}
