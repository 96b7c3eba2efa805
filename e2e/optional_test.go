package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"
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
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	missing(t, "%s is not installed", strings.Join(names, " or "))
	return ""
}
