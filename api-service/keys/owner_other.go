//go:build !unix

package keys

import "os"

// lock does nothing: replaceFile still detects concurrent changes.
func lock(string) (unlock func(), err error) { return func() {}, nil }

func own(*os.File, os.FileInfo) error { return nil }
