package process

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
)

// Lines returns a writer for a library that logs lines of text. Each line becomes a record of log:
// a line marked "[Error]" or "[Fatal]" a warning, because its stream has an ending of its own,
// other lines at level debug. Libraries quote requests that they fail to parse, so Lines drops
// everything after the first line, and everything after "contents:". Only the stack of a panic is kept,
// which Kitex writes behind "stack=" in the lines that follow.
func Lines(log *slog.Logger, library string) io.Writer {
	return lines{log.With("library", library)}
}

type lines struct{ log *slog.Logger }

const (
	maxLine  = 300
	maxStack = 16 << 10 // bytes
)

func (l lines) Write(text []byte) (int, error) {
	level := slog.LevelDebug
	if bytes.Contains(text, []byte("[Error]")) || bytes.Contains(text, []byte("[Fatal]")) {
		level = slog.LevelWarn
	}
	line, rest, _ := strings.Cut(string(text), "\n")
	if _, after, ok := strings.Cut(line, "] "); ok {
		line = after
	}
	line, _, _ = strings.Cut(line, "contents:")
	facts := []any{"text", line[:min(len(line), maxLine)]}
	if stack, ok := strings.CutPrefix(rest, "stack="); ok {
		facts = append(facts, "stack", stack[:min(len(stack), maxStack)])
	}
	l.log.Log(context.Background(), level, "library says", facts...)
	return len(text), nil
}
