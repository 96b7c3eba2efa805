package lab

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A Heap is the memory of a Go process after a garbage collection, in bytes.
type Heap struct {
	Alloc int64 // reachable objects
	InUse int64 // spans with reachable objects
	Stack int64 // goroutine stacks
	RSS   int64 // resident memory of the process
}

// Heap collects the garbage of a Go process that serves its profiles at p.Admin, and returns its
// memory.
func (p *Process) Heap() (h Heap, err error) {
	for range 2 { // pools are emptied in two cycles
		if _, err := p.profile("heap?gc=1"); err != nil {
			return Heap{}, err
		}
	}
	text, err := p.profile("heap?gc=1&debug=1")
	if err != nil {
		return Heap{}, err
	}
	fields := map[string]*int64{"# HeapAlloc = ": &h.Alloc, "# HeapInuse = ": &h.InUse, "# Stack = ": &h.Stack}
	for line := range strings.Lines(string(text)) {
		for prefix, field := range fields {
			number, ok := strings.CutPrefix(line, prefix)
			if !ok {
				continue
			}
			number, _, _ = strings.Cut(strings.TrimSpace(number), " ")
			if *field, err = strconv.ParseInt(number, 10, 64); err != nil {
				return Heap{}, fmt.Errorf("memory statistics of %s: %w", p.Name, err)
			}
			delete(fields, prefix)
			break
		}
	}
	if len(fields) > 0 {
		return Heap{}, fmt.Errorf("the profile of %s has no memory statistics", p.Name)
	}
	h.RSS, err = p.RSS()
	return h, err
}

// WriteHeap writes the heap profile and the goroutine profile of a process that serves its profiles
// at p.Admin to files whose names begin with prefix.
func (p *Process) WriteHeap(prefix string) error {
	return errors.Join(
		p.write(prefix+"-heap.pb.gz", "heap?gc=1"),
		p.write(prefix+"-goroutines.txt", "goroutine?debug=1"))
}

// WriteCPU profiles the next seconds of a process that serves its profiles at p.Admin, and writes
// them to a file whose name begins with prefix.
func (p *Process) WriteCPU(prefix string, seconds int) error {
	return p.write(prefix+"-cpu.pb.gz", fmt.Sprintf("profile?seconds=%d", seconds))
}

func (p *Process) write(file, profile string) error {
	b, err := p.profile(profile)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o600)
}

// profile returns one of the profiles of the process.
func (p *Process) profile(path string) ([]byte, error) {
	client := http.Client{Timeout: Patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + p.Admin + "/debug/pprof/" + path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return b, err
}
