package route

import (
	"time"

	"github.com/whence-dev/whence/chat-service/route/failover"
	"github.com/whence-dev/whence/pkg/stream"
)

// This file feeds the machine the events that are no messages: time, a worker's health, and the stream's turn to move.

// watch waits until the stream has ended or its reader has left, and feeds timer, health and turn events to the machine.
func (d *drive) watch() {
	var stopping <-chan struct{} // nil until the stream waits without a call
	for {
		a, idle := d.watched()
		var down <-chan struct{}
		if a != nil {
			down = a.down
		}
		var stopped <-chan struct{}
		if idle { // the call of an attempt watches for a stop itself
			if stopping == nil {
				stopping = stream.Stopping(d.ctx)
			}
			stopped = stopping
		}
		select {
		case <-d.done:
			return
		case <-d.changed:
		case <-d.timer.C:
			d.fire()
		case <-down:
			d.sicken(a)
		case <-d.waiter.ready:
			d.handle(failover.Turn)
		case <-stopped:
			d.handle(failover.Tick)
		}
	}
}

// rewatch has watch look for what it waits for.
func (d *drive) rewatch() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// watched returns the attempt whose worker's health matters, if there is one. idle reports that no call runs.
func (d *drive) watched() (a *attempt, idle bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a = d.current()
	if a != nil && a == d.ill {
		return nil, false
	}
	return a, a == nil && !d.yielding && !d.finished()
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
	d.ill = a
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
	d.timer.Reset(delay)
}
