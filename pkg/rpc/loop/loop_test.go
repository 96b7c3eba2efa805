package loop_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/whence-dev/whence/pkg/rpc/loop"
)

// writes counts flushes.
type writes struct{ n int }

func (w *writes) Flush() { w.n++ }

// TestBatchIsFlushedAtItsEnd: data is flushed once, neither within a message nor outside a batch.
func TestBatchIsFlushedAtItsEnd(t *testing.T) {
	l := loop.New(func() { t.Error("handed over") })
	var c loop.Carrier
	var w writes
	if c.Later(&w) {
		t.Error("Later returned true without a batch")
	}
	if !l.Run(&c, func() {
		if !c.Later(&w) {
			t.Error("Later returned false within a batch")
		}
	}) {
		t.Error("the loop was left")
	}
	if c.Later(&w) {
		t.Error("Run handed the connection over")
	}
	if w.n != 0 {
		t.Error("flushed within the batch")
	}
	l.Flush()
	l.Flush()
	if w.n != 1 {
		t.Errorf("flushed %d times", w.n)
	}
}

// TestWaitHandsTheConnectionOver: Wait hands the connection over once, and flushes the data kept
// for the end of the batch.
func TestWaitHandsTheConnectionOver(t *testing.T) {
	handed := 0
	l := loop.New(func() { handed++ })
	var c loop.Carrier
	var w writes
	c.Wait() // has no effect without a Loop
	if l.Run(&c, func() {
		c.Later(&w)
		c.Wait()
		c.Wait()
		if c.Later(&w) {
			t.Error("Later returned true after Wait")
		}
	}) {
		t.Error("the loop was not left")
	}
	if handed != 1 || w.n != 1 {
		t.Errorf("handed over %d times, flushed %d times", handed, w.n)
	}
}

// TestReaderThatExitsHandsTheConnectionOver checks that another goroutine reads the connection after
// a reader has exited its goroutine.
func TestReaderThatExitsHandsTheConnectionOver(t *testing.T) {
	handed := 0
	l := loop.New(func() { handed++ })
	var wg sync.WaitGroup
	wg.Go(func() { l.Run(&loop.Carrier{}, runtime.Goexit) })
	wg.Wait()
	if handed != 1 {
		t.Errorf("handed over %d times", handed)
	}
}

// TestPartOfAStreamLendsItsLoop: the stream's Carrier has the Loop of the part whose message is
// being passed on.
func TestPartOfAStreamLendsItsLoop(t *testing.T) {
	l := loop.New(func() {})
	var part, whole loop.Carrier
	var w writes
	l.Run(&part, func() {
		lent := part.Lend(&whole)
		if !whole.Later(&w) {
			t.Error("the stream's Carrier has no Loop")
		}
		whole.Return(lent)
		if whole.Later(&w) {
			t.Error("the stream's Carrier still has a Loop")
		}
	})
	var none *loop.Carrier
	whole.Return(none.Lend(&whole))
	none.Return(l)
	none.Wait()
	if none.Later(&w) {
		t.Error("the stream's Carrier lost the Loop")
	}
}

// TestOtherGoroutinesMayUseACarrier while a Loop runs, under the race detector.
func TestOtherGoroutinesMayUseACarrier(t *testing.T) {
	var c loop.Carrier
	var reading sync.WaitGroup
	var start func()
	turns := 1000
	start = func() {
		l := loop.New(func() { reading.Go(start) })
		for turns > 0 {
			turns--
			if !l.Run(&c, func() {}) {
				return
			}
			l.Flush()
		}
	}
	reading.Go(start)
	for range 1000 {
		c.Wait()
		c.Later(&sink{})
	}
	reading.Wait()
	if turns != 0 {
		t.Errorf("%d messages were not carried", turns)
	}
}

type sink struct{}

func (*sink) Flush() {}

// TestLateMessageDoesNotTakeTheLoopOfTheNextCall: each call has a Carrier of its own.
func TestLateMessageDoesNotTakeTheLoopOfTheNextCall(t *testing.T) {
	handed := 0
	before, now := loop.New(func() { t.Error("the wrong loop was handed over") }), loop.New(func() { handed++ })
	var left, next, whole loop.Carrier
	now.Run(&next, func() {
		lent := next.Lend(&whole)
		before.Run(&left, func() {}) // a late message, which reaches no reader
		whole.Return(left.Lend(&whole))
		whole.Wait()
		whole.Return(lent)
	})
	if handed != 1 {
		t.Errorf("handed over %d times", handed)
	}
}
