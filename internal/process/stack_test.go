package process_test

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/process"
)

// TestStackOfALibraryIsKept: other lines behind the first may quote requests, and are dropped.
func TestStackOfALibraryIsKept(t *testing.T) {
	var out bytes.Buffer
	w := process.Lines(slog.New(slog.NewJSONHandler(&out, nil)), "kitex")
	for text, want := range map[string]string{
		"2026 [Error] a panic: x\nstack=goroutine 7\nmain.f()": `"stack":"goroutine 7\nmain.f()"`,
		"2026 [Error] a bad request\nGET /secret":              `"text":"a bad request"`,
	} {
		out.Reset()
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); !strings.Contains(got, want) || strings.Contains(got, "secret") {
			t.Error(got)
		}
	}
}
