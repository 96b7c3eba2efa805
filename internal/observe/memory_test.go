package observe

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

const mib = 1 << 20

func TestWasteIsCollectedOnceTheBurstIsOver(t *testing.T) {
	var w watcher
	looks := []struct {
		s    state
		want action
	}{
		{state{live: 10 * mib, held: 20 * mib, allocated: 100 * mib}, wait},  // the first look knows no rate
		{state{live: 10 * mib, held: 60 * mib, allocated: 300 * mib}, wait},  // in the burst
		{state{live: 40 * mib, held: 120 * mib, allocated: 310 * mib}, wait}, // the 80 MiB are needed again in 8 s
		{state{live: 40 * mib, held: 120 * mib, allocated: 311 * mib}, release},
	}
	for i, look := range looks {
		if got := w.due(look.s, time.Second); got != look.want {
			t.Errorf("look %d: the action is %d, want %d", i, got, look.want)
		}
	}
}

func TestSmallWasteIsKept(t *testing.T) {
	for name, s := range map[string]state{
		"a small process":               {live: 2 * mib, held: 5 * mib},
		"a small part of a large heap":  {live: 400 * mib, held: 480 * mib},
		"less held than the live bytes": {live: 40 * mib, held: 30 * mib},
	} {
		var w watcher
		w.due(s, time.Second)
		if w.due(s, time.Second) != wait {
			t.Errorf("%s: the heap is collected", name)
		}
	}
}

func TestCollectionsTakeABoundedShareOfTheTime(t *testing.T) {
	var w watcher
	s := state{live: 40 * mib, held: 120 * mib}
	w.due(s, time.Second)
	w.released(state{live: 40 * mib, held: 40 * mib}, 100*time.Millisecond)
	if w.due(s, time.Second) != release {
		t.Error("a second burst is not collected")
	}
	w.released(state{live: 40 * mib, held: 40 * mib}, 300*time.Millisecond)
	for i := range 4 { // the debt is 80 ms, and a second pays 20 of them back
		if w.due(s, time.Second) != wait {
			t.Fatalf("collected %d s after collections that took 400 ms", i+1)
		}
	}
	if w.due(s, time.Second) != release {
		t.Error("not collected 5 s after collections that took 400 ms")
	}
}

// A heap whose waste a collection cannot return, because it is fragmented, is not collected each second.
func TestWasteThatCannotBeReturnedIsNotCollectedAgain(t *testing.T) {
	var w watcher
	s := state{live: 40 * mib, held: 120 * mib}
	w.due(s, time.Second)
	w.released(s, 0)
	for range 10 {
		if w.due(s, time.Second) != wait {
			t.Fatal("the heap is collected again")
		}
	}
	s.held += 40 * mib
	if w.due(s, time.Second) != release {
		t.Error("new waste is not collected")
	}
}

// stale returns a watcher whose count of the live bytes in s is old.
func stale(t *testing.T, s *state) *watcher {
	t.Helper()
	w := &watcher{}
	w.due(*s, time.Second)
	for i := range int(maxAge/time.Second) - 1 {
		s.allocated += mib
		if w.due(*s, time.Second) != wait {
			t.Fatalf("collected %d s after the last collection", i+1)
		}
	}
	s.allocated += mib
	if w.due(*s, time.Second) != recount {
		t.Fatalf("not collected %v after the last collection", maxAge)
	}
	return w
}

// A burst that was alive at the last collection is found dead by the next one.
func TestOldCountOfLiveBytesIsRenewed(t *testing.T) {
	s := state{live: 80 * mib, held: 90 * mib, cycles: 7}
	w := stale(t, &s)
	s.live, s.cycles = 10*mib, 8
	if w.recounted(s, 0) != release {
		t.Error("the waste that the recount found is not released")
	}
	s.held = 12 * mib
	w.released(s, 50*time.Millisecond)
	if want := maxCredit - 50*time.Millisecond; w.credit != want {
		t.Errorf("further collections may take %v, want %v", w.credit, want)
	}
	for range 2 * maxAge / time.Second {
		if w.due(s, time.Second) != wait {
			t.Fatal("the heap of an idle process is collected")
		}
	}
}

// The runtime's last collection in a burst has counted the streams of the burst, and a process that is
// idle after it allocates too little for another one.
func TestABurstIsFoundOverWithoutFurtherAllocations(t *testing.T) {
	var w watcher
	s := state{live: 10 * mib, held: 20 * mib, cycles: 7}
	w.due(s, time.Second)
	s = state{live: 40 * mib, held: 48 * mib, allocated: 100 * mib, cycles: 9}
	for range 2 * calm / time.Second { // the burst goes on without a collection
		s.allocated += 2 * calmRate
		if w.due(s, time.Second) != wait {
			t.Fatal("collected in the burst")
		}
	}
	if w.due(s, time.Second) != recount {
		t.Fatal("not collected once the burst is over")
	}
	s.live, s.cycles = 15*mib, 11
	if w.recounted(s, 0) != release {
		t.Error("the waste that the recount found is not released")
	}
	s.held = 16 * mib
	w.released(s, 0)
	s.cycles++ // the runtime collects every two minutes
	for range 2 * maxAge / time.Second {
		if w.due(s, time.Second) != wait {
			t.Fatal("the heap of an idle process is collected")
		}
	}
}

// A process that collects rarely has its live bytes counted, but keeps its memory.
func TestARecountWithoutWasteReleasesNothing(t *testing.T) {
	s := state{live: 80 * mib, held: 90 * mib, cycles: 7}
	w := stale(t, &s)
	s.cycles++
	if w.recounted(s, 100*time.Millisecond) != wait {
		t.Error("memory is released without waste")
	}
	if w.credit != maxCredit-100*time.Millisecond || w.kept != 0 {
		t.Errorf("further collections may take %v, and %d bytes are kept", w.credit, w.kept)
	}
}

var burst [][]byte

func TestReturnGivesBackABurst(t *testing.T) {
	for range 64 {
		burst = append(burst, make([]byte, mib))
	}
	runtime.GC()
	burst = nil
	before := newReader().read().held
	if before < 64*mib {
		t.Fatalf("%d bytes are held after the burst, want at least 64 MiB", before)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		go returnMemory(ctx)
		time.Sleep(maxAge / 2)
		for range 2 * minChurn / 1024 {
			few = make([]byte, 1024)
		}
		time.Sleep(maxAge)
		stop()
		synctest.Wait()
	})
	if after := newReader().read().held; after > before-48*mib {
		t.Errorf("%d bytes are held after Return, and %d before", after, before)
	}
}

var few []byte

func TestOneReturnRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		go returnMemory(ctx)
		synctest.Wait()
		returnMemory(ctx) // returns at once
		stop()
		synctest.Wait()
	})
}
