package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	args := append([]string{"build", "-o", dir + string(filepath.Separator)}, strings.Fields(os.Getenv("E2E_BUILD_FLAGS"))...)
	cmd := exec.Command("go", append(args, ".", "./api-service", "./chat-service", "./llm-worker", "./e2e/faulty")...)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return nil
})

// binary returns the path of a command: whence, whence gateway, api-service, chat-service,
// llm-worker or faulty.
func binary(t *testing.T, name string) string {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	file, _, _ := strings.Cut(name, " ")
	return filepath.Join(binDir, file)
}

// subcommand returns the first argument of a command that has subcommands.
func subcommand(name string) []string {
	if _, sub, ok := strings.Cut(name, " "); ok {
		return []string{sub}
	}
	return nil
}
