// Package logtest collects what a program under test logs.
package logtest

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/whence-dev/whence/internal/polltest"
)

// A Log is a log that tests can read while several goroutines write it. The zero Log is empty.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns the whole log.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count returns how often the log contains text.
func (l *Log) Count(text string) int { return strings.Count(l.String(), text) }

// Lines returns the lines that contain all words, each with its line feed.
func (l *Log) Lines(words ...string) (found []string) {
lines:
	for line := range strings.Lines(l.String()) {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue lines
			}
		}
		found = append(found, line)
	}
	return found
}

// Await waits for a line that contains all words, and returns the first one.
func (l *Log) Await(t testing.TB, words ...string) string {
	t.Helper()
	var found []string
	defer func() {
		if len(found) == 0 {
			t.Logf("the log:\n%s", l)
		}
	}()
	polltest.Eventually(t, fmt.Sprintf("the log has a line with %q", words), func() bool {
		found = l.Lines(words...)
		return len(found) > 0
	})
	return found[0]
}
