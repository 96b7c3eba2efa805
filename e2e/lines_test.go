package e2e

import (
	"bytes"
	"strings"
	"sync"
)

// lines is an io.Writer that stores the output of a process by lines.
type lines struct {
	mu    sync.Mutex
	all   []string
	rest  []byte        // the incomplete line
	grown chan struct{} // closed and replaced when a line arrives
}

func newLines() *lines { return &lines{grown: make(chan struct{})} }

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, b...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		l.all, l.rest = append(l.all, string(line)), rest
		close(l.grown)
		l.grown = make(chan struct{})
	}
}

// since returns the lines from number n on, and a channel that is closed when there are more.
func (l *lines) since(n int) ([]string, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[n:len(l.all):len(l.all)], l.grown
}

// String returns everything.
func (l *lines) String() string {
	all, _ := l.since(0)
	return strings.Join(all, "\n")
}
