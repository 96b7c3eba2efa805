package stand

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Builds holds the built services of this checkout.
type Builds struct {
	Dir    string // takes the logs and files of the processes
	Commit string // "" without git
	bin    string // has the programs
}

// programs are the services, and the client of another process.
var programs = []string{"api-service", "chat-service", "llm-worker", "bench/trust/victim"}

// Build builds the services, unless bin has services that were built earlier.
func Build(ctx context.Context, bin string) (*Builds, error) {
	dir, err := os.MkdirTemp("", "whence-trust-")
	if err != nil {
		return nil, err
	}
	b := &Builds{Dir: dir, bin: bin}
	out, _ := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output() // a checkout without git has no commit
	b.Commit = strings.TrimSpace(string(out))
	if bin != "" {
		return b, nil
	}
	b.bin = dir
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	for _, name := range programs {
		args = append(args, "github.com/whence-dev/whence/"+name)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Close()
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return b, nil
}

// Program returns the file of a program.
func (b *Builds) Program(name string) string { return filepath.Join(b.bin, name) }

// Close removes the services that Build has built, and the logs of their processes.
func (b *Builds) Close() { _ = os.RemoveAll(b.Dir) }
