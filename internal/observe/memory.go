package observe

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// interval is the time between two looks at the heap.
	interval = time.Second
	// minWaste is the number of wasted bytes that are worth a collection.
	minWaste = 4 << 20
	// wastePart is the part of the live heap that the waste must reach. A process whose waste is
	// smaller gains little, and a large heap is expensive to collect.
	wastePart = 4
	// soon is how long a process must need, at its current rate of allocation, to fill the wasted
	// bytes again. A process that needs them soon keeps them.
	soon = 20 * time.Second
	// calm is the time after a collection after which a burst is over, if the process allocates less
	// than calmRate bytes per second. The live bytes are counted again then, because that collection
	// may have counted those of the burst.
	calm     = 5 * time.Second
	calmRate = 1 << 20
	// A count of the live bytes that is older than maxAge is renewed, because a burst that was alive
	// when the count was taken may have ended since. A process that has allocated less than minChurn
	// in that time keeps its old count.
	maxAge   = 20 * time.Second
	minChurn = 1 << 20
	// Collections take about one part in maxShare of the time, and maxCredit besides: two bursts may
	// follow each other closely, as at the start of a process.
	maxShare  = 50
	maxCredit = 300 * time.Millisecond
)

// running is set while a goroutine of the process executes returnMemory.
var running atomic.Bool

// returnMemory collects garbage and returns free memory to the system after each burst of
// allocations, until ctx is done. A process needs one returnMemory: it returns at once if another
// one is running.
//
// The heap of a Go process grows to about twice the size of its live objects at the last garbage
// collection before the next collection starts. A process that has opened thousands of streams in a
// second, and then carries their tokens with few allocations, therefore keeps the garbage of the
// burst for as long as two minutes, and the freed pages for longer. returnMemory collects and
// returns both once the burst is over, some seconds after the last collection of the runtime.
func returnMemory(ctx context.Context) {
	if !running.CompareAndSwap(false, true) {
		return
	}
	defer running.Store(false)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	heap, last := newReader(), time.Now()
	var w watcher
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		action := w.due(heap.read(), now.Sub(last))
		last = now
		if action == recount {
			took := cost(func() {
				runtime.GC()
				runtime.GC() // a sync.Pool drops its items in the second collection
			})
			action = w.recounted(heap.read(), took)
		}
		if action == release {
			took := cost(debug.FreeOSMemory)
			w.released(heap.read(), took)
		}
		if action != wait {
			last = time.Now()
		}
	}
}

// cost calls f, and returns the time that f has taken. On a machine that is busy with other processes,
// that is the CPU time of this process.
func cost(f func()) time.Duration {
	begun, burnt := time.Now(), cpuTime()
	f()
	took := time.Since(begun)
	if cpu := cpuTime() - burnt; cpu > 0 {
		took = min(took, cpu)
	}
	return took
}

// cpuTime returns the CPU time of the process, or 0 if it is unknown.
func cpuTime() time.Duration {
	var use unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &use) != nil {
		return 0
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// An action is what the watcher asks for.
type action int

const (
	wait    action = iota
	recount        // collect garbage to renew the count of the live bytes
	release        // collect garbage, and return the free memory to the system
)

// A state is what the runtime says about the heap, in bytes.
type state struct {
	live      uint64 // reachable at the last collection
	held      uint64 // objects, dead ones included, and pages that were not returned to the system
	allocated uint64 // since the process began
	cycles    uint64 // collections since the process began
}

// waste returns the bytes that a collection would return to the system, at most: some of the objects
// allocated since the last collection are alive.
func (s state) waste() uint64 { return s.held - min(s.held, s.live) }

// A watcher decides when the heap is collected.
type watcher struct {
	before state // at the last look
	seen   bool
	rate   float64       // allocated bytes per second, between the last two looks
	credit time.Duration // that collections may take; negative after a long one
	kept   uint64        // waste that the last release could not return
	age    time.Duration // of the last collection, by whoever
	churn  uint64        // bytes allocated since
	since  uint64        // bytes allocated since the watcher has last asked for one
}

// due takes the state of the heap, elapsed after the last look, and returns what to do now.
func (w *watcher) due(s state, elapsed time.Duration) action {
	allocated := s.allocated - w.before.allocated
	first := !w.seen
	w.age, w.churn, w.since = w.age+elapsed, w.churn+allocated, w.since+allocated
	if s.cycles != w.before.cycles {
		w.age, w.churn = 0, 0
	}
	w.before, w.seen, w.rate = s, true, float64(allocated)/elapsed.Seconds()
	if first {
		w.credit = maxCredit
		return wait
	}
	if w.credit = min(w.credit+elapsed/maxShare, maxCredit); w.credit <= 0 {
		return wait
	}
	if w.wasteful(s) {
		return release
	}
	if w.age >= maxAge && w.churn >= minChurn || w.age >= calm && w.rate < calmRate && w.since >= minChurn {
		return recount
	}
	return wait
}

// wasteful reports whether the waste is worth a release.
func (w *watcher) wasteful(s state) bool {
	waste := s.waste() - min(s.waste(), w.kept)
	return waste >= minWaste && waste >= s.live/wastePart && w.rate*soon.Seconds() < float64(waste)
}

// recounted takes the state after a recount that took a time, and returns what to do next.
func (w *watcher) recounted(s state, took time.Duration) action {
	w.collected(s, took)
	if w.wasteful(s) {
		return release
	}
	return wait
}

// released takes the state after a release that took a time.
func (w *watcher) released(s state, took time.Duration) {
	w.collected(s, took)
	w.kept = s.waste()
}

// collected takes the state after a collection that took a time.
func (w *watcher) collected(s state, took time.Duration) {
	w.before = s
	w.credit -= took
	w.age, w.churn, w.since = 0, 0, 0
}

// A reader reads the state of the heap.
type reader struct{ samples []metrics.Sample }

func newReader() *reader {
	r := &reader{}
	for _, name := range []string{
		"/gc/heap/live:bytes", "/gc/heap/allocs:bytes",
		"/memory/classes/heap/objects:bytes", "/memory/classes/heap/unused:bytes", "/memory/classes/heap/free:bytes",
		"/gc/cycles/total:gc-cycles",
	} {
		r.samples = append(r.samples, metrics.Sample{Name: name})
	}
	return r
}

func (r *reader) read() state {
	metrics.Read(r.samples)
	value := func(i int) uint64 { return r.samples[i].Value.Uint64() }
	return state{live: value(0), allocated: value(1), held: value(2) + value(3) + value(4), cycles: value(5)}
}
