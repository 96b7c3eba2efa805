//go:build unix

package keys

import (
	"errors"
	"os"
	"syscall"
)

// lock allows one process at a time to change the files of a directory, until unlock.
func lock(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX) //nolint:gosec // a descriptor is small
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, &os.PathError{Op: "flock", Path: dir, Err: err}
	}
	return func() { _ = f.Close() }, nil
}

// own gives a file the user and the group of another one.
func own(f *os.File, like os.FileInfo) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	is, known := info.Sys().(*syscall.Stat_t)
	want, alsoKnown := like.Sys().(*syscall.Stat_t)
	if !known || !alsoKnown || is.Uid == want.Uid && is.Gid == want.Gid {
		return nil
	}
	return f.Chown(int(want.Uid), int(want.Gid))
}
