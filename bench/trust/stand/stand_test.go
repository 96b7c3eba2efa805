package stand

import (
	"testing"

	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestFailedServicesDoNotBlockTheEndOfARow: a stand ends although a service did not start.
func TestFailedServicesDoNotBlockTheEndOfARow(t *testing.T) {
	s := New(&Builds{Dir: t.TempDir()})
	if _, err := s.add(&s.Workers, "llm-worker"); err == nil || len(s.Workers) != 1 {
		t.Errorf("%v, with %d workers", err, len(s.Workers))
	}
	if len(s.Alive()) != 0 {
		t.Error("a service that did not start is alive")
	}
	s.End()
}

// TestARestartedServiceHasNoGrowth: the usage of a process is compared only with its own.
func TestARestartedServiceHasNoGrowth(t *testing.T) {
	before := Usage{Goroutines: 10, Descriptors: 5, generation: 1}
	if u := (Usage{Goroutines: 30, Descriptors: 6, generation: 1}).Since(before); u.Goroutines != 20 || u.Descriptors != 1 {
		t.Errorf("the growth is %+v", u)
	}
	if u := (Usage{Goroutines: 30, Descriptors: 6, generation: 2}).Since(before); u.Goroutines != 0 || u.Descriptors != 0 {
		t.Errorf("after a restart, the growth is %+v", u)
	}
}
