package bigstack_test

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"testing"

	"github.com/whence-dev/whence/internal/bigstack"
	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// stacks returns the memory of all stacks, in bytes.
func stacks() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func TestStackIsLargeFromTheBeginning(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the garbage collector shrinks stacks
	const goroutines, each = 256, 16 << 10
	var running, ended sync.WaitGroup
	release := make(chan struct{})
	running.Add(goroutines)
	ended.Add(goroutines)
	before := stacks()
	for range goroutines {
		bigstack.Go(func() {
			defer ended.Done()
			running.Done()
			<-release
		})
	}
	running.Wait()
	// Both figures include stacks that were free before.
	if grown := int64(stacks() - before); grown < goroutines*each*3/4 {
		t.Errorf("%d goroutines have %d KiB of stack, want about %d KiB", goroutines, grown>>10, goroutines*each>>10)
	}
	close(release)
	ended.Wait()
}

// deep uses about 8 KiB of stack in 32 frames.
//
//go:noinline
func deep(n int) byte {
	var frame [200]byte
	if n == 0 {
		return 0
	}
	frame[n] = deep(n - 1)
	return frame[n/2]
}

func BenchmarkDeepCall(b *testing.B) {
	for name, start := range map[string]func(func()){"go": func(f func()) { go f() }, "bigstack": bigstack.Go} {
		b.Run(name, func(b *testing.B) {
			var done sync.WaitGroup
			for range b.N {
				done.Add(1)
				start(func() { defer done.Done(); deep(32) })
				done.Wait()
			}
		})
	}
}
