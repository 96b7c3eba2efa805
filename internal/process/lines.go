package process

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Lines returns a writer for a library that logs lines of text. Each line becomes a record of log:
// a line marked "[Error]" or "[Fatal]" a warning, because its stream has an ending of its own,
// other lines at level debug. Libraries quote requests that they fail to parse, so Lines drops
// everything after the first line, and everything after "contents:". Only the stack of a panic is kept,
// which Kitex writes behind "stack=" in the lines that follow.
//
// A library may repeat a line for each attempt to connect, dozens of times a second. Lines logs a
// line that differs from an earlier one at most in its digits again only after repeatAfter, with the
// number of lines that were dropped in between.
func Lines(log *slog.Logger, library string) io.Writer {
	return &lines{log: log.With("library", library), recent: map[string]*repetition{}}
}

type lines struct {
	log *slog.Logger

	mu     sync.Mutex             // guards recent
	recent map[string]*repetition // by line without digits; at most maxRecent
}

// A repetition counts the copies of a line.
type repetition struct {
	logged  time.Time
	dropped int // since logged
}

const (
	maxLine     = 300
	maxStack    = 16 << 10 // bytes
	maxRecent   = 64
	repeatAfter = 30 * time.Second
)

// due reports whether to log line, and how many copies were dropped before it.
func (l *lines) due(line string) (dropped int, ok bool) {
	key := strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, line)
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.recent[key]
	switch {
	case r == nil && len(l.recent) == maxRecent:
		clear(l.recent)
		fallthrough
	case r == nil:
		l.recent[key] = &repetition{logged: time.Now()}
		return 0, true
	case time.Since(r.logged) < repeatAfter:
		r.dropped++
		return 0, false
	}
	dropped = r.dropped
	*r = repetition{logged: time.Now()}
	return dropped, true
}

func (l *lines) Write(text []byte) (int, error) {
	level := slog.LevelDebug
	if bytes.Contains(text, []byte("[Error]")) || bytes.Contains(text, []byte("[Fatal]")) {
		level = slog.LevelWarn
	}
	line, rest, _ := strings.Cut(string(text), "\n")
	if _, after, ok := strings.Cut(line, "] "); ok {
		line = after
	}
	line, _, _ = strings.Cut(line, "contents:")
	line = line[:min(len(line), maxLine)]
	facts := []any{"text", line}
	dropped, ok := l.due(line)
	if !ok {
		return len(text), nil
	}
	if dropped > 0 {
		facts = append(facts, "repeated", dropped)
	}
	if stack, ok := strings.CutPrefix(rest, "stack="); ok {
		facts = append(facts, "stack", stack[:min(len(stack), maxStack)])
	}
	l.log.Log(context.Background(), level, "library says", facts...)
	return len(text), nil
}
