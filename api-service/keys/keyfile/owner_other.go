//go:build !unix

package keyfile

import "os"

// lock does nothing: replace still detects concurrent changes.
func lock(string) (unlock func(), err error) { return func() {}, nil }

func own(*os.File, os.FileInfo) error { return nil }
