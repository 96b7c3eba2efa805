//go:build !amd64 && !arm64

package matrix

// detect returns the portable code.
func detect() machine { return portable }
