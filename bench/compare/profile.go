package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// profile prints the memory that each service of Whence holds per open stream, after a garbage
// collection, and writes its profiles, if --profiles is set.
func (b *bench) profile(s *scenario, sys *system, r *deployment) error {
	for _, p := range r.procs {
		if p.Admin == "" {
			continue
		}
		h, err := p.Heap()
		if err != nil {
			return err
		}
		each := func(bytes int64) float64 { return float64(bytes) / float64(s.streams) / 1024 }
		fmt.Fprintf(os.Stderr, "%s, %s: KiB per stream: objects %.1f, heap %.1f, stacks %.1f, resident %.1f\n",
			sys.name, p.Name, each(h.Alloc), each(h.InUse), each(h.Stack), each(h.RSS))
		name := strings.ReplaceAll(strings.Join([]string{sys.name, s.name, p.Name}, "-"), " ", "-")
		if err := p.WriteProfiles(filepath.Join(b.options.profiles, name)); err != nil {
			return err
		}
	}
	return nil
}
