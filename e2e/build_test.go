package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/whence-dev/whence/lab"
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
	if err := os.Mkdir(filepath.Join(dir, clockDir), 0o700); err != nil {
		return err
	}
	flags := strings.Fields(os.Getenv("E2E_BUILD_FLAGS"))
	if len(flags) == 0 {
		return buildInto(dir)
	}
	return buildWithClocks(dir, flags...) // no extra build for TestClockSteps
})

// shippedDir and clocksDir are the directories of binDir with the commands that buildShipped and
// buildClocks have built.
const (
	shippedDir = "shipped"
	clocksDir  = "clocks"
)

// buildShipped builds all commands as users build them, once.
var buildShipped = sync.OnceValue(func() error {
	if err := build(); err != nil { // makes binDir
		return err
	}
	return buildInto(filepath.Join(binDir, shippedDir))
})

// buildClocks builds all commands with clocks that can be set, once.
var buildClocks = sync.OnceValue(func() error {
	if err := build(); err != nil { // makes binDir
		return err
	}
	return buildWithClocks(filepath.Join(binDir, clocksDir))
})

func buildWithClocks(dir string, flags ...string) error {
	sources := filepath.Join(binDir, "overlay")
	if err := os.Mkdir(sources, 0o700); err != nil {
		return err
	}
	overlay, err := clockOverlay(sources)
	if err != nil {
		return err
	}
	return buildInto(dir, append(flags, "-overlay", overlay)...)
}

func buildInto(dir string, flags ...string) error {
	return lab.Build(context.Background(), "..", dir, flags, ".", apiService, chatService, llmWorker, "e2e/faulty")
}

// buildEarlier builds the services with built-in faults of the last release, once for all runs.
var buildEarlier = sync.OnceValues(func() (string, error) {
	return lab.EarlierRelease(context.Background(), "..", "e2e/faulty")
})

// earlierBinary returns the path of the command faulty of the last release.
func earlierBinary(t *testing.T) string {
	t.Helper()
	dir, err := buildEarlier()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "faulty")
}

// variants holds the directories of binDir whose commands tests start, by the tests' names. Others
// start those of binDir itself.
var variants sync.Map

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
	variants.Store(t.Name(), shippedDir)
}

// withClocks makes a test start commands whose clocks can be set.
func withClocks(t *testing.T) {
	t.Helper()
	if os.Getenv("E2E_BUILD_FLAGS") != "" {
		return // all commands have such clocks
	}
	if err := buildClocks(); err != nil {
		t.Fatal(err)
	}
	variants.Store(t.Name(), clocksDir)
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
	if dir, ok := variants.Load(test); ok {
		return filepath.Join(binDir, dir.(string), file)
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
