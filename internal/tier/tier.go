// Package tier separates the tests of the short tier, ./scripts/test, from those that only
// ./scripts/test full runs. CONTRIBUTING.md says what belongs to which.
package tier

import (
	"os"
	"testing"
)

// env is the variable that scripts/test sets.
const env = "TEST_TIER"

// IsFull reports whether the full tier runs.
func IsFull() bool { return os.Getenv(env) == "full" }

// Of returns the size of a test: full in the full tier, and short in the short one.
func Of(short, full int) int {
	if IsFull() {
		return full
	}
	return short
}

// Full skips a test that belongs to the full tier only, unless that tier runs.
func Full(t testing.TB) {
	t.Helper()
	if !IsFull() {
		t.Skip("only ./scripts/test full runs this test (" + env + "=full)")
	}
}
