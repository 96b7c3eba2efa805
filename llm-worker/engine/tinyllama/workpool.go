package tinyllama

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// A workPool splits the parts of a step over a bounded number of goroutines. It belongs to one
// goroutine, which calls all of its methods.
//
// Begin starts the goroutines of a step, and End ends them and waits for them: none outlives the
// step. In between, the caller of Begin calls Run, once for each part of the step, and takes part
// in the work. A goroutine that the system does not schedule claims no work, so it delays no part.
type workPool struct {
	workers int // at most, including the caller
	live    int // in the current step, including the caller
	group   sync.WaitGroup

	task atomic.Pointer[task] // the latest; nil before the first of a step
	// A worker without work spins for a while, because the next Run is usually only microseconds
	// away, and then waits for the condition that task has changed.
	parked  atomic.Int32
	mu      sync.Mutex
	changed sync.Cond // its lock is mu
}

// newWorkPool returns a pool of a number of workers, including the caller of Run.
func newWorkPool(workers int) *workPool {
	p := &workPool{workers: max(1, workers), live: 1}
	p.changed.L = &p.mu
	return p
}

// Workers returns the maximum number of workers.
func (p *workPool) Workers() int { return p.workers }

// Begin starts a step with at most a number of workers.
func (p *workPool) Begin(workers int) {
	p.live = max(1, min(workers, p.workers))
	p.task.Store(nil)
	for worker := 1; worker < p.live; worker++ {
		p.group.Go(func() { p.help(worker) })
	}
}

// End ends the step that Begin has started.
func (p *workPool) End() {
	if p.live > 1 {
		p.publish(&task{end: true})
		p.group.Wait()
	}
	p.live = 1
}

// A taskPart computes the units first to last of a task. worker is below Workers, and no two
// goroutines have the same one at a time.
type taskPart func(worker, first, last int)

// Run calls part for all of n units, in ranges whose bounds are multiples of grain, except for n
// itself. It returns when all are done. If a part panics, the others still run, and then Run
// panics with a *workPanic, or with the value itself if it ran alone.
func (p *workPool) Run(n, grain int, part taskPart) {
	if p.live == 1 || n <= grain {
		if n > 0 {
			part(0, 0, n)
		}
		return
	}
	const claims = 4 // of each worker: enough to balance workers of different speeds
	step := max(1, n/grain/(p.live*claims)) * grain
	t := &task{part: part, n: int64(n), step: int64(step)}
	p.publish(t)
	t.work(0)
	for spins := 0; t.done.Load() < t.n; spins++ {
		pause(spins)
	}
	if failure := t.failure.Load(); failure != nil {
		panic(failure)
	}
}

func (p *workPool) publish(t *task) {
	p.task.Store(t)
	if p.parked.Load() > 0 {
		p.mu.Lock()
		p.changed.Broadcast()
		p.mu.Unlock()
	}
}

// help works until the step ends.
func (p *workPool) help(worker int) {
	var last *task
	for {
		t := p.next(last)
		if t.end {
			return
		}
		t.work(worker)
		last = t
	}
}

// next returns the task after the last one. It may skip tasks, which others have done then.
func (p *workPool) next(last *task) *task {
	for spins := range maxSpins {
		if t := p.task.Load(); t != last && t != nil {
			return t
		}
		pause(spins)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parked.Add(1) // before the next look at task, so that publish either is seen or sees this
	defer p.parked.Add(-1)
	for {
		if t := p.task.Load(); t != last && t != nil {
			return t
		}
		p.changed.Wait()
	}
}

// maxSpins is some 50 microseconds of waiting: longer than most pauses between two parts of a step.
const maxSpins = 2000

// pause waits a moment, and lets other goroutines run now and then.
func pause(spins int) {
	if spins%8 == 7 {
		runtime.Gosched()
	}
}

// A task is one Run.
type task struct {
	// Static.
	part    taskPart
	n, step int64
	end     bool // of the step; there is nothing to do

	claimed atomic.Int64 // units, possibly more than n
	done    atomic.Int64 // units
	failure atomic.Pointer[workPanic]
}

// work claims and does ranges until there are none left.
func (t *task) work(worker int) {
	for {
		last := t.claimed.Add(t.step)
		first := last - t.step
		if first >= t.n {
			return
		}
		t.do(worker, first, min(last, t.n))
	}
}

func (t *task) do(worker int, first, last int64) {
	defer func() {
		if v := recover(); v != nil {
			t.failure.CompareAndSwap(nil, &workPanic{Value: v, Stack: debug.Stack()})
		}
		t.done.Add(last - first)
	}()
	t.part(worker, int(first), int(last))
}

// A workPanic is the panic of a part.
type workPanic struct {
	Value any
	Stack []byte // of the goroutine that panicked
}
