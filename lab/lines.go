package lab

import (
	"bytes"
	"strings"
	"sync"
)

// Lines is an io.Writer that stores the output of a program by lines.
type Lines struct {
	mu    sync.Mutex
	all   []string
	rest  []byte        // the incomplete line
	grown chan struct{} // closed and replaced when a line arrives
}

// newLines returns an empty Lines.
func newLines() *Lines { return &Lines{grown: make(chan struct{})} }

// Write implements io.Writer.
func (l *Lines) Write(b []byte) (int, error) {
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

// Since returns the lines from number n on, and a channel that is closed when there are more.
func (l *Lines) Since(n int) ([]string, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[n:len(l.all):len(l.all)], l.grown
}

// All returns the complete lines so far.
func (l *Lines) All() []string {
	all, _ := l.Since(0)
	return all
}

// String returns everything, with the incomplete line.
func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(append(l.all[:len(l.all):len(l.all)], string(l.rest)), "\n")
}
