package route

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/route/pace"
)

// When a worker dies, the prompts and answers of all its streams must be read again.
func TestMovesArePacedOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams = 50
		dies, takes := &fake{name: "w/0"}, &fake{name: "w/1"}
		death := time.Now().Add(time.Second)
		dies.fault = func(tokens int) error {
			if tokens < 0 {
				return nil
			}
			if time.Now().Before(death) && tokens == 9 {
				time.Sleep(time.Until(death))
				return lostBy(dies)
			}
			return nil
		}
		var mu sync.Mutex
		reading, most := 0, 0
		var order []string
		takes.fault = func(tokens int) error {
			if tokens != 9 {
				return nil
			}
			mu.Lock()
			reading++
			most = max(most, reading)
			mu.Unlock()
			time.Sleep(2 * pace.Prompt) // the worker reads prompt and answer again, too slowly for more at a time
			mu.Lock()
			reading--
			mu.Unlock()
			return nil
		}
		p := poolOf(t, Options{Policy: inOrder, Migrations: 1}, dies, takes)
		p.together = 0
		var all sync.WaitGroup
		for i := range streams {
			all.Go(func() {
				req := ask(20)
				req.StreamId = string(rune('A' + i))
				if got := read(t.Context(), p, req, nil); got.err != nil || len(got.tokens) != 20 {
					t.Error(got.err, len(got.tokens))
				}
			})
			time.Sleep(time.Millisecond)
		}
		all.Wait()
		for _, req := range takes.asked {
			order = append(order, req.GetStreamId())
		}
		if most > pace.Streams {
			t.Errorf("%d streams were read again at once, want at most %d", most, pace.Streams)
		}
		if len(order) != streams {
			t.Fatalf("%d streams moved", len(order))
		}
		// The first pace.Streams streams start together, then pace.Streams at a time. The oldest
		// waiting stream goes first.
		for at, id := range order {
			if age := int(id[0] - 'A'); at > age+2*pace.Streams {
				t.Errorf("%s moved as number %d of %d", id, at, streams)
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.moving) != 0 || len(p.queue.waiting) != 0 {
			t.Error("a stream still counts as moving:", p.moving, p.queue.waiting)
		}
	})
}

// TestStoppedStreamsLeaveTheirTurn checks that streams that are stopped while they wait for their
// turn leave the queue and count nowhere.
func TestStoppedStreamsLeaveTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dies, hangs := &fake{name: "w/0"}, hangsAt("w/1", 3)
		dies.fault = func(tokens int) error {
			if tokens == 3 {
				return lostBy(dies)
			}
			return nil
		}
		p := poolOf(t, Options{Policy: inOrder, Migrations: 1}, dies, hangs)
		p.together = 0
		ctx, ctl := controlled(t)
		defer ctl.Release()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { read(ctx, p, ask(9), nil) })
		}
		time.Sleep(time.Second)
		p.mu.Lock()
		waiting := len(p.queue.waiting)
		p.mu.Unlock()
		if waiting != 20-pace.Streams {
			t.Errorf("%d streams wait for their turn", waiting)
		}
		ctl.Stop(errGone)
		all.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.moving) != 0 || len(p.queue.waiting) != 0 {
			t.Error("a stream still counts as moving")
		}
	})
}

// A stream that finds no worker when its turn comes passes the turn on: it waits for a worker, not
// for its turn.
func TestStreamThatFindsNoWorkerPassesItsTurnOn(t *testing.T) {
	p := poolOf(t, Options{Policy: inOrder}, &fake{name: "w/0"})
	p.together = 0
	w := p.Members()[0]
	ask := wish{req: ask(9)}
	var moved []*attempt
	defer func() {
		for _, a := range moved {
			a.abandon()
		}
	}()
	move := func(t *waiter, without ...*fleet.Worker) outcome {
		ask.waiter, ask.without = t, without
		a, outcome := p.take(ask, 0)
		if a != nil {
			moved = append(moved, a)
		}
		return outcome
	}
	began := time.Now()
	for range pace.Streams {
		if got := move(newWaiter(began).waiter); got != found {
			t.Fatal("a stream does not move:", got)
		}
	}
	head, behind := newWaiter(began), newWaiter(began.Add(time.Second))
	if first, second := move(head.waiter), move(behind.waiter); first != busy || second != busy {
		t.Fatal("the streams do not wait for their turn:", first, second)
	}
	moved[0].settle(false)
	<-head.ready
	if got := move(head.waiter, w); got != noWorker {
		t.Fatal("a worker was found that was ruled out:", got)
	}
	select {
	case <-behind.ready:
	default:
		t.Fatal("the stream behind was not woken")
	}
	if got := move(behind.waiter); got != found {
		t.Error("the stream behind does not move:", got)
	}
	if got := move(head.waiter); got != busy || len(p.queue.waiting) != 1 {
		t.Error("the first stream does not wait for a worker again:", got, len(p.queue.waiting))
	}
	p.leaveQueue(head.waiter)
}

// A calledWaiter is a waiter with a channel that receives its turns.
type calledWaiter struct {
	*waiter
	ready chan struct{} // capacity 1
}

func newWaiter(began time.Time) calledWaiter {
	ready := make(chan struct{}, 1)
	return calledWaiter{&waiter{began: began, turn: func() {
		select {
		case ready <- struct{}{}:
		default:
		}
	}}, ready}
}

// A younger stream must not take a place that becomes free while the oldest stream waits: neither a
// stream that was called because the stream before it passed its turn on, nor a stream that has
// just joined the queue.
func TestYoungerStreamLeavesAFreedPlaceToTheOldest(t *testing.T) {
	began := time.Now()
	oldest, second, third := newWaiter(began), newWaiter(began.Add(time.Second)), newWaiter(began.Add(2*time.Second))
	var q queue
	q.join(oldest.waiter)
	q.join(second.waiter)
	q.join(oldest.waiter) // it asks again, and passes its turn on
	<-second.ready
	q.call(0) // a place becomes free
	for _, younger := range []*waiter{second.waiter, third.waiter} {
		if !q.yields(younger) || !younger.queued {
			t.Error("a younger stream goes first")
		}
	}
	if q.yields(oldest.waiter) {
		t.Error("the oldest stream waits")
	}
	q.leave(oldest.waiter)
	<-second.ready
	if q.yields(second.waiter) {
		t.Error("the next stream waits")
	}
}

// TestSilentWorkerIsNotLeftForATurn checks that a stream stays with a silent worker if there is no
// other, although an older stream has the turn to move.
func TestSilentWorkerIsNotLeftForATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older := newWaiter(time.Now().Add(-time.Second))
		silent := &fake{name: "w/0", fault: func(tokens int) error {
			if tokens == 3 {
				time.Sleep(time.Minute)
			}
			return nil
		}}
		p := poolOf(t, Options{Policy: inOrder, Migrations: 1, MigrateAfter: time.Second}, silent)
		p.mu.Lock()
		p.queue.join(older.waiter)
		p.queue.call(0)
		p.mu.Unlock()
		if got := read(t.Context(), p, ask(9), nil); got.err != nil || len(got.tokens) != 9 {
			t.Error(len(got.tokens), got.err)
		}
		p.leaveQueue(older.waiter)
	})
}

// A stream is queued behind an equally old stream that it waits for.
func TestStreamsOfEqualAgeMoveInTheOrderOfTheirRequests(t *testing.T) {
	began := time.Now()
	first, second := newWaiter(began), newWaiter(began)
	var q queue
	q.join(first.waiter)
	q.call(0)
	if !q.yields(second.waiter) {
		t.Fatal("the second stream goes first")
	}
	q.leave(first.waiter)
	select {
	case <-second.ready:
	default:
		t.Error("the second stream is not called after the first")
	}
}
