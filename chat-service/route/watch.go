package route

import (
	"time"

	"github.com/whence-dev/whence/chat-service/crash"
	"github.com/whence-dev/whence/chat-service/route/failover"
)

// This file feeds the machine the events that are no messages: time, a worker's health, and the stream's turn to move.

// watch calls f on a goroutine that an event has started. f may call the reader, the policy of the pool and the log; their panic ends
// the stream.
func (d *drive) watch(f func()) {
	crash.Watch(f, func(c *crash.Crash) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.collapse(c)
	})
}

// called has a goroutine take the stream's turn to move.
func (d *drive) called() {
	if d.turns.CompareAndSwap(false, true) {
		go d.watch(func() {
			d.turns.Store(false)
			d.handle(failover.Turn)
		})
	}
}

// halt tells the machine that the stream was stopped. The call of an attempt hears of the stop itself.
func (d *drive) halt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current() == nil {
		d.notice(failover.Tick)
	}
}

// current returns the attempt whose messages the stream waits for; nil while the stream waits for its turn.
func (d *drive) current() *attempt {
	switch {
	case d.prefill != nil && !d.prefill.attempt.closed:
		return d.prefill.attempt
	case d.attempt != nil && !d.attempt.closed:
		return d.attempt
	default:
		return nil
	}
}

// handle steps the machine with an event that has no arguments, or leaves that to the goroutine that carries a message.
func (d *drive) handle(kind failover.Kind) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notice(kind)
}

func (d *drive) notice(kind failover.Kind) {
	if d.over || d.finished() {
		return
	}
	if d.yielding || d.ending {
		d.pending.Add(kind)
		return
	}
	d.now = time.Since(d.began)
	d.step(event{Kind: kind})
}

// fire handles the timer.
func (d *drive) fire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armed = 0
	d.notice(failover.Tick)
}

// sicken notes that the worker of an attempt is down.
func (d *drive) sicken(a *attempt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a == d.current() {
		d.notice(failover.Down)
	}
}

// arm has the timer fire at or before the machine's next Wake; the time that the reader had a message after the event in hand is
// added, because the worker was not awaited. The timer is armed again only for an earlier time, so that tokens cost no timer: a
// timer that fires too early is armed again then.
func (d *drive) arm() {
	wake := d.machine.Wake()
	if wake == 0 || d.armed != 0 && d.armed <= wake {
		return
	}
	delay := wake - d.now
	d.armed = time.Since(d.began) + delay
	if d.timer == nil {
		d.timer = time.AfterFunc(delay, func() { d.watch(d.fire) })
	} else {
		d.timer.Reset(delay)
	}
}
