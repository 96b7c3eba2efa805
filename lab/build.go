package lab

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
)

const module = "github.com/whence-dev/whence"

// Build builds commands of a checkout into a directory. root is the directory of the checkout, or a
// directory within it. A command is named by its directory; "." is whence.
func Build(ctx context.Context, root, into string, flags []string, commands ...string) error {
	args := slices.Concat([]string{"build", "-o", into + string(filepath.Separator)}, flags)
	for _, name := range commands {
		args = append(args, filepath.ToSlash(filepath.Join(module, name)))
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return nil
}
