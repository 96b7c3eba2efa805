// Package process holds what the services of a process share: flags that several services declare,
// the log, and signals.
package process

import (
	"flag"
	"io"
	"log/slog"
)

// Log configures the log of a process. The zero value is text, from level info on.
type Log struct {
	JSON  bool
	Level slog.Level
}

// Flags adds the flags of l to fs, with the values of l as defaults.
func (l *Log) Flags(fs *flag.FlagSet) {
	fs.BoolVar(&l.JSON, "log-json", l.JSON, "log JSON instead of text")
	fs.TextVar(&l.Level, "log-level", l.Level, "log from this `level` on: debug, info, warn or error")
}

// Logger returns a logger that writes to w.
func (l *Log) Logger(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: l.Level}
	if l.JSON {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
