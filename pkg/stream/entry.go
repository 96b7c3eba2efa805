package stream

import "context"

// An Entry is the door through which the items of one stream enter the Readers of a hop. The engine that
// makes or receives the items has an Entry as a part of its own memory. In this one place, a panic or an
// exit of any Reader above is caught: Item then returns false, as if the Reader had left, and End ends
// the stream with the Failure. So the engine below needs no second way to end.
//
// One goroutine at a time uses an Entry.
type Entry[Item any] struct {
	to      Reader[Item]
	ctl     *Control
	state   entryState
	failure *Failure // of a Reader; nil if there is none
}

type entryState uint8

const (
	open   entryState = iota
	inside            // a Reader has an item, or did not return
	shut              // the Reader wants no more items
)

// Init prepares an Entry for the stream of ctx.
func (e *Entry[Item]) Init(ctx context.Context, to Reader[Item]) {
	e.to, e.ctl = to, ControlOf(ctx)
}

// Item implements Reader.
func (e *Entry[Item]) Item(on *Loop, item Item) (more bool) {
	if e.state != open {
		return false
	}
	e.state = inside
	defer e.caught()
	if more = e.to.Item(on, item); more {
		e.state = open
	} else {
		e.state = shut
	}
	return more
}

// caught records the failure of a Reader that did not return. A deferred call calls it.
func (e *Entry[Item]) caught() {
	if e.state == inside {
		e.failure, e.state = failureOf(recover()), shut
	}
}

// Open reports whether the Reader wants more items.
func (e *Entry[Item]) Open() bool { return e.state == open }

// Failure returns the failure of a Reader above, or nil.
func (e *Entry[Item]) Failure() *Failure {
	if e.state == inside { // the Reader is exiting this goroutine
		return failureOf(nil)
	}
	return e.failure
}

// End implements Reader. If a Reader panics in End, the Readers above it cannot be reached in order, and
// the stream breaks.
func (e *Entry[Item]) End(err error) {
	if e.failure != nil {
		err = e.failure
	}
	Guard(func() { e.to.End(err) }, func(failure *Failure) { e.ctl.Break(failure) })
}

// Run calls pass, which passes the items, and ends the stream with its result. A panic or an exit of pass
// is a failure of the engine. An engine that has a goroutine runs it with Run: a Reader that exits the
// goroutine leaves pass without returning to it.
func (e *Entry[Item]) Run(pass func() error) {
	var err error
	defer func() { e.End(err) }()
	Guard(func() { err = pass() }, func(failure *Failure) { err = failure })
}
