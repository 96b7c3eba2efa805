package e2e

import (
	"os"
	"testing"

	"github.com/whence-dev/whence/lab"
)

// missing ends a test that cannot run here: the test is skipped, or fails with CI=true.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// tool returns the path of the first command of names that is installed.
func tool(t *testing.T, names ...string) string {
	t.Helper()
	path, err := lab.Tool(names...)
	if err != nil {
		missing(t, "%v", err)
	}
	return path
}
