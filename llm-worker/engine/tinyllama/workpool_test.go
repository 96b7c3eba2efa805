package tinyllama

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/whence-dev/whence/internal/polltest"
)

// All units run exactly once, in ranges of whole grains, before Run returns.
func TestEveryUnitRunsOnce(t *testing.T) {
	for _, workers := range []int{0, 1, 2, 7} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			p := newWorkPool(workers)
			for step := range 30 {
				p.Begin(1 + step%8)
				for n := range 60 {
					grain := 1 + n%5
					counts, users := make([]int, n), make([]atomic.Bool, p.Workers())
					p.Run(n, grain, func(worker, first, last int) {
						if !users[worker].CompareAndSwap(false, true) {
							t.Errorf("two goroutines are worker %d", worker)
						}
						if first%grain != 0 || last%grain != 0 && last != n || first >= last {
							t.Errorf("range %d to %d of %d in grains of %d", first, last, n, grain)
						}
						for i := first; i < last; i++ {
							counts[i]++ // the race detector sees units that run twice, or after Run
						}
						users[worker].Store(false)
					})
					for i, count := range counts {
						if count != 1 {
							t.Fatalf("unit %d of %d ran %d times", i, n, count)
						}
					}
				}
				p.End()
			}
		})
	}
}

// Workers that have waited for long enough to park are woken for the next part, and for the end.
func TestParkedWorkersWake(t *testing.T) {
	p := newWorkPool(3)
	p.Begin(3)
	parked := func() bool { return p.parked.Load() == 2 }
	polltest.Eventually(t, "the workers have parked", parked)
	var together sync.WaitGroup
	together.Add(3)
	p.Run(3, 1, func(int, int, int) { // returns only if three goroutines run it at once
		together.Done()
		together.Wait()
	})
	polltest.Eventually(t, "the workers have parked again", parked)
	p.End()
}

func TestPanicReachesTheCaller(t *testing.T) {
	p := newWorkPool(4)
	p.Begin(4)
	defer p.End()
	for range 50 {
		var ran atomic.Int32
		func() {
			defer func() {
				failure, ok := recover().(*workPanic)
				if !ok || failure.Value != "bad" || !strings.Contains(string(failure.Stack), "TestPanicReachesTheCaller") {
					t.Errorf("recovered %+v", failure)
				}
			}()
			p.Run(40, 1, func(_, first, last int) {
				ran.Add(int32(last - first))
				if first <= 20 && 20 < last {
					panic("bad")
				}
			})
			t.Error("Run returned")
		}()
		if ran.Load() != 40 {
			t.Errorf("%d units ran", ran.Load())
		}
	}
	p.Run(40, 1, func(int, int, int) {}) // still works
}

func BenchmarkRun(b *testing.B) {
	p := newWorkPool(2)
	p.Begin(2)
	defer p.End()
	for b.Loop() {
		p.Run(2, 1, func(int, int, int) {})
	}
}
