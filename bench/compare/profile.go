package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/whence-dev/whence/lab"
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
		if err := p.WriteHeap(b.profilePrefix(s, sys, p)); err != nil {
			return err
		}
	}
	return nil
}

// profileCPU begins to profile the services of Whence, if --profiles is set. The function that it
// returns waits until the profiles are written.
func (b *bench) profileCPU(s *scenario, sys *system, r *deployment, window time.Duration) (wait func() error) {
	var all errgroup.Group
	for _, p := range r.procs {
		if p.Admin != "" {
			all.Go(func() error {
				return p.WriteCPU(b.profilePrefix(s, sys, p), max(1, int(window.Seconds())))
			})
		}
	}
	return all.Wait
}

// profilePrefix returns the beginning of the paths of a process's profiles.
func (b *bench) profilePrefix(s *scenario, sys *system, p *lab.Process) string {
	name := strings.ReplaceAll(strings.Join([]string{sys.name, s.name, p.Name}, "-"), " ", "-")
	return filepath.Join(b.options.profiles, name)
}
