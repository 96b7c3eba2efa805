package e2e

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/tier"
)

// modulePatience bounds the download of a module's dependencies, and the build and run of its
// tests.
const modulePatience = 10 * time.Minute

// TestAnthropicGo runs the tests of sdk-anthropic-go: Anthropic's official Go client, in a module
// of its own.
func TestAnthropicGo(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	playModule(t, "sdk-anthropic-go")
}

// TestOllamaGo runs the tests of sdk-ollama-go: Ollama's official Go client.
func TestOllamaGo(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	playModule(t, "sdk-ollama-go")
}

// playModule runs the tests of the module of a directory against the whole path.
func playModule(t *testing.T, dir string) {
	t.Helper()
	w := run(t, allInOne, flags{worker: []string{"--pace", "100"}}) // slow enough for a stop in mid-answer
	ctx, cancel := context.WithTimeout(t.Context(), modulePatience)
	defer cancel()
	if out, err := inModule(ctx, dir, nil, "mod", "download"); err != nil {
		missing(t, "go mod download: %v\n%s", err, out)
	}
	if out, err := inModule(ctx, dir, []string{"WHENCE_URL=" + w.url("")}, "test", "-count=1", "./..."); err != nil {
		t.Errorf("go test: %v\n%s", err, out)
	}
	w.idle(t)
}

// inModule runs the go command in the module of a directory, whose go.mod and go.sum it must not
// change.
func inModule(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly -trimpath"), env...)
	return cmd.CombinedOutput()
}
