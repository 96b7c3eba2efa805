package process

import (
	"fmt"
	"io/fs"

	"github.com/whence-dev/whence/internal/gguf"
)

// CheckModel reports whether the directory or GGUF file of --model lacks one of the files. "" stands
// for the embedded model, which has all files.
func CheckModel(path string, files ...string) error {
	if path == "" {
		return nil
	}
	dir, err := gguf.Directory(path)
	if err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	for _, name := range files {
		if _, err := fs.Stat(dir, name); err != nil {
			return fmt.Errorf("--model is %q, and must be the directory of a model or a GGUF file: %w", path, err)
		}
	}
	return nil
}
