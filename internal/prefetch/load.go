//go:build amd64 || arm64

package prefetch

import "unsafe"

// load prefetches n lines. n must not be 0.
//
//go:noescape
func load(lines *unsafe.Pointer, n int)
