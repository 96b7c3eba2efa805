//go:build amd64 || arm64

package prefetch

// load prefetches the lines of n runs. n must not be 0.
//
//go:noescape
func load(runs *uintptr, n int)
