package batch_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/llm-worker/batch"
)

// A diary is an Observer that records its calls.
type diary struct {
	waited []time.Duration
	steps  []step
	paused []time.Duration
}

type step struct {
	took    time.Duration
	streams int
	prefill bool
}

func (d *diary) Admitted(waited time.Duration) { d.waited = append(d.waited, waited) }
func (d *diary) Paused(took time.Duration)     { d.paused = append(d.paused, took) }
func (d *diary) Stepped(took time.Duration, streams int, prefill bool) {
	d.steps = append(d.steps, step{took, streams, prefill})
}

func TestObserverGetsQueueTimesAndSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		l, stop := run(t, newCounting(), batch.Options{MaxRunning: 2, Observer: &d})
		var readers sync.WaitGroup
		for range 3 { // two run together, one waits for a place
			readers.Go(func() {
				for _, err := range l.Generate(t.Context(), count(2)) {
					if err != nil {
						t.Error(err)
					}
				}
			})
			synctest.Wait()
		}
		readers.Wait()
		stop(nil)
		synctest.Wait()
		const ms = time.Millisecond // of a step
		if want := []time.Duration{0, ms, 3 * ms}; !slices.Equal(d.waited, want) {
			t.Errorf("waited %v, want %v", d.waited, want)
		}
		want := []step{{ms, 1, true}, {ms, 2, true}, {ms, 2, false}, {ms, 2, true}, {ms, 1, false}, {ms, 1, false}}
		if !slices.Equal(d.steps, want) {
			t.Errorf("steps %v, want %v", d.steps, want)
		}
	})
}
