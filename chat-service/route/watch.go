package route

import (
	"time"

	"github.com/whence-dev/whence/chat-service/route/failover"
	"github.com/whence-dev/whence/pkg/stream"
)

// This file feeds the machine timers, worker health, stops, and the stream's turn to move.

// watch calls f, which an event has started on a goroutine. A panic of f ends the stream.
func (d *drive) watch(f func()) {
	stream.Guard(f, func(failure *stream.Failure) {
		d.mu.Lock()
		defer d.unlock()
		if !d.told {
			d.collapse(failure)
		}
	})
}

// takeTurn starts a goroutine that takes the stream's turn to move.
func (d *drive) takeTurn() {
	if d.turns.CompareAndSwap(false, true) {
		go d.watch(func() {
			d.turns.Store(false)
			d.handle(failover.Turn)
		})
	}
}

// halt handles a stop of the stream. A running call gets the stop itself, but not a call that fetches a
// prompt: halt stops it once it has the prompt.
func (d *drive) halt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch a := d.current(); {
	case d.over || d.finished():
	case a == nil || a.isFetching():
		go d.watch(d.giveUp) // which calls the reader
	case a.fetches && !a.over:
		a.stop(stream.Cause(d.ctx))
	}
}

// giveUp ends a stopped stream that has no call, or whose call fetches a prompt and goes on until it
// has the prompt.
func (d *drive) giveUp() {
	d.mu.Lock()
	defer d.unlock()
	switch a := d.current(); {
	case d.over || d.finished():
	case a == nil:
		d.notice(failover.Tick)
	case a.isFetching():
		d.abandonFetch()
	case a.fetches && !a.over: // it has its prompt since
		a.stop(stream.Cause(d.ctx))
	}
}

// current returns the attempt whose messages the stream awaits, or nil if there is none.
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

// closing reports whether the current call has its last message. It steps the machine when it is over.
func (d *drive) closing() bool {
	a := d.current()
	return a != nil && a.over
}

// handle steps the machine, or leaves the event to the goroutine that carries a message.
func (d *drive) handle(kind failover.Kind) {
	d.mu.Lock()
	defer d.unlock()
	d.notice(kind)
}

func (d *drive) notice(kind failover.Kind) {
	if d.over || d.finished() {
		return
	}
	if d.inside || d.closing() {
		d.pending.Add(kind)
		return
	}
	d.now = time.Since(d.began)
	d.step(event{Kind: kind})
}

// fire handles an expired timer.
func (d *drive) fire() {
	d.mu.Lock()
	defer d.unlock()
	d.armed = 0
	d.notice(failover.Tick)
}

// workerDown tells the machine that the worker of an attempt is unhealthy.
func (d *drive) workerDown(a *attempt) {
	d.mu.Lock()
	defer d.unlock()
	if a == d.current() {
		d.notice(failover.Down)
	}
}

// arm sets the timer to fire at or before the machine's next Wake, without the time that the reader
// spent on the event in hand, because the worker was not awaited then. It resets the timer only to
// an earlier time, so that tokens cost no timer: a timer that fires too early is armed again.
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
