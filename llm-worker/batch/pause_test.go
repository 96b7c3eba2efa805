package batch_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/llm-worker/batch"
)

// A pausingModel pauses all sequences except the oldest one.
type pausingModel struct{ *countingModel }

func (m pausingModel) Paused(id uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for other := range m.at {
		if other < id {
			return true
		}
	}
	return false
}

// A paused sequence is not stepped, and the loop waits for those that run instead of spinning.
func TestPausedSequencesAreNotStepped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newCounting()
		var d diary
		l, stop := run(t, pausingModel{m}, batch.Options{Pace: 10, Observer: &d})
		var streams sync.WaitGroup
		for range 3 {
			streams.Go(func() {
				if ids, _, _, err := read(t.Context(), l, count(4), nil); err != nil || !slices.Equal(ids, []uint32{1, 2, 3, 4}) {
					t.Error(ids, err)
				}
			})
			synctest.Wait() // the second and the third arrive during the first one's step, and join together
		}
		streams.Wait()
		stop(nil)
		synctest.Wait()
		// The second sequence waits for the first one, and the third for both.
		if len(d.paused) != 2 || d.paused[0] < 300*time.Millisecond || d.paused[1] < 2*d.paused[0] {
			t.Errorf("pauses of %v", d.paused)
		}
		if m.steps != 15 { // four tokens and an end for each stream
			t.Errorf("%d steps", m.steps)
		}
	})
}

// A sharingModel has room for one sequence. Once that has four tokens, its memory shrinks, and
// there is room for another.
type sharingModel struct{ *countingModel }

func (m sharingModel) KV() (used, total uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, at := range m.at {
		if used += 2; at > 4 {
			m.room = 2
			used--
		}
	}
	return used, 2
}

func TestFreedMemoryAdmitsAStreamBeforeAnotherLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newCounting()
		m.room = 1
		l, _ := run(t, sharingModel{m}, batch.Options{})
		var streams sync.WaitGroup
		for i := range 2 {
			streams.Go(func() {
				if _, _, _, err := read(t.Context(), l, count(20), nil); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Duration(1-i) * 100 * time.Microsecond)
		}
		streams.Wait()
		if m.most != 2 {
			t.Errorf("at most %d streams ran together", m.most)
		}
	})
}
