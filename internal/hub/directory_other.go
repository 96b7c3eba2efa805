//go:build !linux

package hub

// listenerDirectory returns "": the working directory of another process is not known here.
func listenerDirectory(int) string { return "" }
