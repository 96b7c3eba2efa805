package matrix

import "golang.org/x/sys/cpu"

// detect returns the assembly, if this processor and its system have AVX2 and FMA.
func detect() machine {
	if !cpu.X86.HasAVX2 || !cpu.X86.HasFMA {
		return portable
	}
	return assembly("AVX2")
}
