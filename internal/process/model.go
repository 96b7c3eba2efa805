package process

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"

	"github.com/whence-dev/whence/internal/gguf"
	"github.com/whence-dev/whence/internal/hub"
	"github.com/whence-dev/whence/internal/textonly"
)

// CheckModel reports whether the directory or GGUF file of --model lacks config.json, or has none of
// the other files. "" stands for the embedded model, which has all files, and textonly.Model for none. The files of an id on the hub are
// looked for later.
func CheckModel(path string, oneOf ...string) error {
	if path == "" || path == textonly.Model || hub.IsID(path) {
		return nil
	}
	open := gguf.Directory
	if len(oneOf) > 0 { // a service that needs these does not need weights
		open = gguf.Description
	}
	dir, err := open(path)
	if err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	has := func(name string) bool {
		_, statErr := fs.Stat(dir, name)
		err = cmp.Or(err, statErr)
		return statErr == nil
	}
	if has("config.json") && (len(oneOf) == 0 || slices.ContainsFunc(oneOf, has)) {
		return nil
	}
	return fmt.Errorf("--model is %q, and must be the directory of a model or a GGUF file: %w", path, err)
}
