// Package polltest waits for conditions and events in tests. Its bound is generous: only a failure
// takes this long, also on a machine that stops for a while. Tests of code that reads the clock use
// testing/synctest.
package polltest

import (
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/loopback"
)

// Patience bounds every wait.
const Patience = loopback.Patience

// interval is the time between two looks at a condition.
const interval = time.Millisecond

// Eventually waits until ok returns true, and fails the test if that takes longer than Patience. Use
// it only for a state that no event reports. It must run on the goroutine of the test.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for begun := time.Now(); !ok(); time.Sleep(interval) {
		if time.Since(begun) > Patience {
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
}

// Receive returns the next value of c, or the zero value if c is closed. It fails the test if that
// takes longer than Patience. It must run on the goroutine of the test.
func Receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	late := time.NewTimer(Patience)
	defer late.Stop()
	select {
	case v := <-c:
		return v
	case <-late.C:
		t.Fatalf("not within %v: %s", Patience, what)
		panic("unreachable")
	}
}
