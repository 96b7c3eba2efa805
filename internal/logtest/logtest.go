// Package logtest collects what a program under test logs.
package logtest

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
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

// Await waits for a line that contains all words, and returns the first one. It fails the test if
// there is none within 20 seconds.
func (l *Log) Await(t testing.TB, words ...string) string {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < 20*time.Second; time.Sleep(5 * time.Millisecond) {
		if found := l.Lines(words...); len(found) > 0 {
			return found[0]
		}
	}
	t.Fatalf("the log has no line with %q:\n%s", words, l)
	return ""
}
