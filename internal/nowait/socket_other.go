//go:build !unix

package nowait

const supported = false

func (*try) read(uintptr) (done bool) { return true }

func (*try) write(uintptr) (done bool) { return true }
