package world

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Journal has the log lines of all processes and the actions of the simulation, with virtual
// times.
type Journal struct {
	mu      sync.Mutex // guards the following fields
	began   time.Time
	lines   []string
	endings []Ending
	unsaid  []Ending // of killed processes
	panics  []*Process
}

// An Ending is one "stream ended" line.
type Ending struct {
	Process *Process
	Stream  string
	Reason  streamerr.Reason
	Path    string
	At      time.Time
}

func (e Ending) String() string { return fmt.Sprintf("%s %s at %s", e.Reason, e.Path, e.Process.Name) }

// Begin sets the origin of the times of lines.
func (j *Journal) Begin(now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.began = now
}

// Since returns the time of the schedule.
func (j *Journal) Since(t time.Time) time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return t.Sub(j.began)
}

// Note adds a line.
func (j *Journal) Note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	j.mu.Lock()
	defer j.mu.Unlock()
	line := fmt.Sprintf("  %-12v ", time.Since(j.began)) + text
	j.lines = append(j.lines, line)
}

func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}

// Of returns the endings of a stream in a process, in order.
func (j *Journal) Of(p *Process, stream string) []Ending {
	return j.those(&j.endings, func(e *Ending) bool { return e.Process == p && e.Stream == stream })
}

// At returns the endings of all streams in a process, in order.
func (j *Journal) At(p *Process) []Ending {
	return j.those(&j.endings, func(e *Ending) bool { return e.Process == p })
}

// Unsaid returns the endings of a stream in a process after the process was killed. No hop has seen
// them, but they show why the process was ending the stream.
func (j *Journal) Unsaid(p *Process, stream string) []Ending {
	return j.those(&j.unsaid, func(e *Ending) bool { return e.Process == p && e.Stream == stream })
}

func (j *Journal) those(of *[]Ending, which func(*Ending) bool) (all []Ending) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range *of {
		if e := &(*of)[i]; which(e) {
			all = append(all, *e)
		}
	}
	return all
}

// Panics returns the process of each panic that was logged.
func (j *Journal) Panics() []*Process {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.panics)
}

// ended is the message of the line that ends a stream.
const ended = "stream ended"

// A scribe is the log handler of one process.
type scribe struct {
	journal *Journal
	process *Process
}

// Enabled implements slog.Handler.
func (s scribe) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// WithAttrs implements slog.Handler.
func (s scribe) WithAttrs([]slog.Attr) slog.Handler { return s }

// WithGroup implements slog.Handler.
func (s scribe) WithGroup(string) slog.Handler { return s }

// Handle implements slog.Handler. A killed process writes nothing.
func (s scribe) Handle(_ context.Context, r slog.Record) error {
	dead := s.process.Dead()
	if dead && r.Message != ended {
		return nil
	}
	var b strings.Builder
	var e Ending
	panicked := false
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "stream":
			e.Stream = a.Value.String()
		case "reason":
			e.Reason = streamerr.ParseReason(a.Value.String())
		case "path":
			e.Path = a.Value.String()
		case "panic":
			panicked = true
		}
		if a.Key != "stack" {
			fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		}
		return true
	})
	e.Process, e.At = s.process, time.Now()
	if !dead {
		s.journal.Note("%s: %s%s", s.process.Name, r.Message, b.String())
	}
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	switch {
	case dead:
		s.journal.unsaid = append(s.journal.unsaid, e)
	case r.Message == ended:
		s.journal.endings = append(s.journal.endings, e)
	}
	if panicked {
		s.journal.panics = append(s.journal.panics, s.process)
	}
	return nil
}
