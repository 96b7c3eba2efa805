package trial

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/whence-dev/whence/lab"
)

// Builds holds the built services of this checkout.
type Builds struct {
	Dir    string // takes the files of the processes
	Commit string // "" without git
	bin    string // has the programs
}

// Build builds the services, and the client of another process, unless bin has programs that were
// built earlier.
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
	if err := lab.Build(ctx, "", dir, nil, lab.APIService, lab.ChatService, lab.LLMWorker, "bench/trust/victim"); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Start starts one of the programs.
func (b *Builds) Start(name string, args ...string) (*lab.Process, error) {
	return lab.Start(lab.Command{Name: name, File: filepath.Join(b.bin, name), Args: args})
}

// Close removes the programs that Build has built, and the files of their processes.
func (b *Builds) Close() { _ = os.RemoveAll(b.Dir) }
