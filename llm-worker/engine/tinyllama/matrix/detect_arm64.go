package matrix

// detect returns the assembly: every arm64 processor has NEON.
func detect() machine { return assembly("NEON") }
