package usage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// standardOutput is the path that means the standard output.
const standardOutput = "-"

// A file writes records as lines of JSON. It reopens its path after another program, such as
// logrotate, has renamed or removed the file.
type file struct {
	path string
	to   *os.File
	buf  bytes.Buffer
	torn bool // the last line is incomplete
}

// openFile returns the sink for a path.
func openFile(path string) (*file, error) {
	f := &file{path: path}
	return f, f.open()
}

func (f *file) open() (err error) {
	if f.path == standardOutput {
		f.to, err = openStandardOutput()
	} else {
		f.to, err = os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	}
	f.torn = err == nil && f.path != standardOutput && endsTorn(f.path)
	return err
}

// endsTorn reports whether a file ends within a line, as a full disk or a crash leaves it.
func endsTorn(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	in, err := os.Open(path)
	if err != nil {
		return false
	}
	defer in.Close() //nolint:errcheck // it was only read
	last := make([]byte, 1)
	_, err = in.ReadAt(last, info.Size()-1)
	return err == nil && last[0] != '\n'
}

// Name implements Sink.
func (*file) Name() string { return "file" }

// Write implements Sink.
func (f *file) Write(_ context.Context, records []Record) (written int, err error) {
	if err := f.follow(); err != nil {
		return 0, err
	}
	f.buf.Reset()
	if f.torn {
		f.buf.WriteByte('\n')
	}
	lines := json.NewEncoder(&f.buf)
	lines.SetEscapeHTML(false)
	for i := range records {
		if err := lines.Encode(&records[i]); err != nil {
			return 0, fmt.Errorf("encode a usage record: %w", err)
		}
	}
	written, f.torn, err = writeLines(f.to, f.buf.Bytes(), f.torn)
	return written, err
}

// writeLines writes lines, and returns how many of them were written completely. torn and still
// report whether the file ends with an incomplete line, before and after the call. If torn is set,
// the first line only ends the incomplete line, and does not count.
func writeLines(to io.Writer, lines []byte, torn bool) (written int, still bool, err error) {
	n, err := to.Write(lines)
	if n == 0 {
		return 0, torn, err
	}
	written = bytes.Count(lines[:n], []byte{'\n'})
	if torn {
		written--
	}
	return written, lines[n-1] != '\n', err
}

// follow reopens the path if it names another file by now.
func (f *file) follow() error {
	if f.path == standardOutput {
		return nil
	}
	if f.to != nil {
		now, err := os.Stat(f.path)
		if err == nil {
			if own, err := f.to.Stat(); err == nil && os.SameFile(now, own) {
				return nil
			}
		}
		_ = f.to.Close() // all data has been written
		f.to = nil
	}
	return f.open()
}

// Close implements Sink.
func (f *file) Close(context.Context) error {
	if f.to == nil {
		return nil
	}
	return f.to.Close()
}
