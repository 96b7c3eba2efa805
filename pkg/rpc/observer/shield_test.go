package observer_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/pkg/rpc/observer"
)

// A journal is a Flow that keeps the kinds of its events. It panics at a StopHeard, and takes a
// second for a CallerGone.
type journal struct {
	observer.Nobody
	mu     sync.Mutex
	kinds  []observer.Kind
	closed int // kinds at the time of Close
}

func (j *journal) Note(e observer.Event) {
	switch e.Kind {
	case observer.StopHeard:
		panic("the observer panics at StopHeard")
	case observer.CallerGone:
		time.Sleep(time.Second)
	default:
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.kinds = append(j.kinds, e.Kind)
}

func (j *journal) Close() { j.closed = len(j.kinds) }

func TestPanicOfNoteIsCaught(t *testing.T) {
	var caught []any
	f := observer.Shield(&journal{}, func(v any) { caught = append(caught, v) })
	f.Note(observer.Event{Kind: observer.StopHeard})
	f.Close()
	if !slices.Equal(caught, []any{"the observer panics at StopHeard"}) {
		t.Error(caught)
	}
}

// TestCloseIsLast: Close waits for running calls of Note, and drops later events except those of calls
// that outlive the stream.
func TestCloseIsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		f := observer.Shield(j, func(v any) { t.Error(v) })
		var noting sync.WaitGroup
		noting.Go(func() { f.Note(observer.Event{Kind: observer.CallerGone}) })
		synctest.Wait()
		f.Close()
		noting.Wait()
		f.Note(observer.Event{Kind: observer.EndingSent})
		late := []observer.Kind{observer.Consumed, observer.Unreceived, observer.CalleeGone}
		for _, kind := range late {
			f.Note(observer.Event{Kind: kind})
		}
		f.Close()
		if want := append([]observer.Kind{observer.CallerGone}, late...); !slices.Equal(j.kinds, want) || j.closed != len(want) {
			t.Error(j.kinds, j.closed)
		}
	})
}

func TestUnshieldedReturnsTheWrappedFlow(t *testing.T) {
	j := &journal{}
	if f := observer.Unshielded(observer.Shield(j, nil)); f != observer.Flow(j) {
		t.Error(f)
	}
	if f := observer.Unshielded(j); f != observer.Flow(j) {
		t.Error(f)
	}
}
