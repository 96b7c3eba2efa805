package process

import (
	"fmt"
	"os"
	"path/filepath"
)

// CheckModel reports whether the directory of --model lacks one of the files. "" stands for the
// embedded model, which has all files.
func CheckModel(dir string, files ...string) error {
	if dir == "" {
		return nil
	}
	for _, name := range files {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("--model must be the directory of a model: %w", err)
		}
	}
	return nil
}
