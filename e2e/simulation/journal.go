package simulation

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A journal is what all processes log, and what the simulation does, with virtual times.
type journal struct {
	mu      sync.Mutex // guards the following fields
	began   time.Time
	lines   []string
	endings []ending
	panics  int
}

// An ending is one line "stream ended".
type ending struct {
	process *process
	stream  string
	reason  streamerr.Reason
	path    string
	at      time.Time
}

func (e ending) String() string { return fmt.Sprintf("%s %s at %s", e.reason, e.path, e.process.name) }

// begin sets the moment from which lines count their time.
func (j *journal) begin(now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.began = now
}

// note adds a line.
func (j *journal) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	j.mu.Lock()
	defer j.mu.Unlock()
	line := fmt.Sprintf("  %-12v ", time.Since(j.began)) + text
	j.lines = append(j.lines, line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}

// of returns the endings of a stream in a process.
func (j *journal) of(p *process, stream string) (all []ending) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.endings {
		if e.process == p && e.stream == stream {
			all = append(all, e)
		}
	}
	return all
}

// A scribe is the log of one process.
type scribe struct {
	journal *journal
	process *process
}

// Enabled implements slog.Handler.
func (s scribe) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// WithAttrs implements slog.Handler.
func (s scribe) WithAttrs([]slog.Attr) slog.Handler { return s }

// WithGroup implements slog.Handler.
func (s scribe) WithGroup(string) slog.Handler { return s }

// Handle implements slog.Handler. A process that was killed writes nothing.
func (s scribe) Handle(_ context.Context, r slog.Record) error {
	if s.process.dead.Load() {
		return nil
	}
	var b strings.Builder
	var e ending
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "stream":
			e.stream = a.Value.String()
		case "reason":
			e.reason = streamerr.ParseReason(a.Value.String())
		case "path":
			e.path = a.Value.String()
		}
		if a.Key != "stack" {
			fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		}
		return true
	})
	s.journal.note("%s: %s%s", s.process.name, r.Message, b.String())
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	switch {
	case r.Message == "stream ended":
		e.process, e.at = s.process, time.Now()
		s.journal.endings = append(s.journal.endings, e)
	case strings.HasPrefix(r.Message, "panic"):
		s.journal.panics++
	}
	return nil
}
