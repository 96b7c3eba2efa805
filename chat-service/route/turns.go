package route

import (
	"slices"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
)

// A turn is a stream's place in the queue of streams that wait to move. The oldest stream goes first: its client has
// waited longest, and it is nearest to its end.
type turn struct {
	began  time.Time     // of the stream
	ready  chan struct{} // capacity 1: the stream may ask for a worker again
	queued bool          // guarded by the pool's mu
	called bool          // ready was sent, and the stream has not asked since; guarded by the pool's mu
}

func newTurn(began time.Time) *turn { return &turn{began: began, ready: make(chan struct{}, 1)} }

// A turns is the streams that wait to move, oldest first. It is guarded by the pool's mu. It is bounded by the live streams.
type turns struct{ waiting []*turn }

// yields reports whether t must wait for an older stream that was called and has not asked yet. t is in the queue then,
// and that stream's answer calls the streams behind it.
func (q *turns) yields(t *turn) bool {
	for _, older := range q.waiting {
		if older == t || older.began.After(t.began) {
			return false
		}
		if older.called {
			q.insert(t)
			return true
		}
	}
	return false
}

// join puts t into the queue. If t is in the queue, its place is passed on.
func (q *turns) join(t *turn) {
	if t.queued {
		q.call(slices.Index(q.waiting, t) + 1) // the next stream may be content with another worker
		return
	}
	q.insert(t)
}

func (q *turns) insert(t *turn) {
	if t.queued {
		return
	}
	t.queued = true
	at, _ := slices.BinarySearchFunc(q.waiting, t, func(a, b *turn) int {
		if a.began.After(b.began) {
			return 1
		}
		return -1 // also of one time: t waits for a
	})
	q.waiting = slices.Insert(q.waiting, at, t)
}

// leave removes a turn from the queue, if it is in the queue, and passes it on. t is nil for a stream that does not move.
func (q *turns) leave(t *turn) {
	if t == nil || !t.queued {
		return
	}
	t.queued, t.called = false, false
	at := slices.Index(q.waiting, t)
	q.waiting = slices.Delete(q.waiting, at, at+1)
	q.call(at) // there may be room for another stream
}

// call has the stream at a place ask again, if there is one.
func (q *turns) call(at int) {
	if at < len(q.waiting) {
		q.waiting[at].called = true
		select {
		case q.waiting[at].ready <- struct{}{}:
		default:
		}
	}
}

// leaveTurn removes a stream from the queue of streams that wait to move.
func (p *Pool) leaveTurn(t *turn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turns.leave(t)
}

// settled notes that a stream that has moved to a worker has its next token, or has left it.
func (p *Pool) settled(w *fleet.Worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.moving[w]--; p.moving[w] <= 0 {
		delete(p.moving, w)
	}
	p.turns.call(0)
}

// nextTurn has the oldest stream that waits to move ask again: there may be another worker now.
func (p *Pool) nextTurn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turns.call(0)
}
