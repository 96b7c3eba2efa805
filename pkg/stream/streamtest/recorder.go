package streamtest

import (
	"sync/atomic"
	"testing"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/stream"
)

// A Recorder is a Reader that checks the order of the calls of an engine: an item after the Reader has
// left, two calls at the same time, and a second End fail the test.
type Recorder[Item any] struct {
	// OnItem takes the n-th item, from 1, and returns what Item returns. nil takes all items.
	OnItem func(on *stream.Loop, item Item, n int) (more bool)

	t       *testing.T
	inside  atomic.Bool // a call of the engine has not returned
	left    atomic.Bool // the Reader has left, or its Item did not return
	items   atomic.Int64
	endings atomic.Int64
	ended   chan error
}

// Record returns a Recorder of one stream.
func Record[Item any](t *testing.T, onItem func(on *stream.Loop, item Item, n int) (more bool)) *Recorder[Item] {
	t.Helper()
	return &Recorder[Item]{OnItem: onItem, t: t, ended: make(chan error, 1)}
}

// Item implements stream.Reader.
func (r *Recorder[Item]) Item(on *stream.Loop, item Item) (more bool) {
	if r.inside.Swap(true) {
		r.t.Error("two calls at the same time")
	}
	defer r.inside.Store(false)
	switch n := int(r.items.Add(1)); {
	case r.endings.Load() > 0:
		r.t.Errorf("item %d came after the ending", n)
	case r.left.Swap(true): // stays true if OnItem does not return
		r.t.Errorf("item %d came after the Reader had left", n)
	case r.OnItem == nil:
		more = true
	default:
		more = r.OnItem(on, item, n)
	}
	r.left.Store(!more)
	return more
}

// End implements stream.Reader.
func (r *Recorder[Item]) End(err error) {
	if r.inside.Swap(true) {
		r.t.Error("the ending came while an item was handled")
	}
	defer r.inside.Store(false)
	if r.endings.Add(1) > 1 {
		r.t.Errorf("a second ending: %v", err)
		return
	}
	r.ended <- err
}

// Await waits for the ending, and returns it with the number of items.
func (r *Recorder[Item]) Await() (items int, err error) {
	r.t.Helper()
	err = polltest.Receive(r.t, "the stream ends", r.ended)
	return int(r.items.Load()), err
}
