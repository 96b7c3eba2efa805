//go:build !unix

package usage

import "os"

// openStandardOutput returns the standard output. Only Unix ends a process that writes to a pipe
// without a reader.
func openStandardOutput() (*os.File, error) { return os.Stdout, nil }
