package ttrpc

import (
	"context"
	"sync"
)

// Abandon ends the streams of a Kitex client when their contexts end. Kitex notices the end of a
// context when the application receives, and otherwise by a timer of 5 s that all streams share; until
// then the callee works for a caller that has gone.
type Abandon struct {
	receive func() error
	stop    func() bool

	mu   sync.Mutex // held while the application, or the hook on the context, receives
	lost error      // the last error of receive, which the hook has got
}

// NewAbandon returns the Abandon of a stream with the context ctx. receive receives and drops a
// message.
func NewAbandon(ctx context.Context, receive func() error) *Abandon {
	a := &Abandon{receive: receive}
	a.stop = context.AfterFunc(ctx, a.drain)
	return a
}

// drain receives until the stream has ended. ctx is done, so each receive returns at once; Kitex
// chooses at random between a message that has arrived and the end of the context.
func (a *Abandon) drain() {
	a.mu.Lock() // an application that receives notices the end of the context itself
	defer a.mu.Unlock()
	for a.lost == nil {
		a.lost = a.receive()
	}
}

// Receive runs an application's receive, whose error ends the stream if ends reports so.
func (a *Abandon) Receive(receive func() error, ends func(error) bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lost != nil {
		return a.lost
	}
	err := receive()
	if err != nil && ends(err) {
		a.lost = err
		a.stop()
	}
	return err
}
