package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// binDir holds the commands that this run has built. build sets it, and TestMain removes the
// directory.
var binDir string

// build builds all commands, once. E2E_BUILD_FLAGS are flags of go build: scripts/test sets -race,
// and a command that reports a data race then fails the test that started it. Without the variable,
// commands are built as users build them, which is faster.
var build = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "whence-e2e-")
	if err != nil {
		return err
	}
	binDir = dir
	return buildInto(dir, strings.Fields(os.Getenv("E2E_BUILD_FLAGS"))...)
})

// shippedDir is the directory of binDir with the commands that buildShipped has built.
const shippedDir = "shipped"

// buildShipped builds all commands as users build them, once.
var buildShipped = sync.OnceValue(func() error {
	if err := build(); err != nil { // makes binDir
		return err
	}
	return buildInto(filepath.Join(binDir, shippedDir))
})

func buildInto(dir string, flags ...string) error {
	cmd := exec.Command("go", slices.Concat([]string{"build", "-o", dir + string(filepath.Separator)}, flags, []string{".", "./api-service", "./chat-service", "./llm-worker", "./e2e/faulty"})...)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return nil
}

// shipped holds the names of the tests that have called asShipped.
var shipped sync.Map

// asShipped makes a test start commands that are built as users build them. Tests that bound the
// memory of processes call it, since the race detector multiplies the memory of a process, and tests
// that need the speed of the embedded engine.
func asShipped(t *testing.T) {
	t.Helper()
	if os.Getenv("E2E_BUILD_FLAGS") == "" {
		return // all commands are
	}
	if err := buildShipped(); err != nil {
		t.Fatal(err)
	}
	shipped.Store(t.Name(), true)
}

// binary returns the path of a command: whence, whence gateway, api-service, chat-service,
// llm-worker or faulty.
func binary(t *testing.T, name string) string {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	file, _, _ := strings.Cut(name, " ")
	test, _, _ := strings.Cut(t.Name(), "/")
	if _, ok := shipped.Load(test); ok {
		return filepath.Join(binDir, shippedDir, file)
	}
	return filepath.Join(binDir, file)
}

// subcommand returns the first argument of a command that has subcommands.
func subcommand(name string) []string {
	if _, sub, ok := strings.Cut(name, " "); ok {
		return []string{sub}
	}
	return nil
}
