package process_test

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/internal/process"
)

func TestLibrariesLinesBecomeRecordsWithoutWhatTheyQuote(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w := process.Lines(log, "kitex")
	for _, line := range []string{"2026/01/02 x.go:1: [Info] all is well\n", "x.go:2: [Error] parse failed\nGET /secret"} {
		if n, err := w.Write([]byte(line)); n != len(line) || err != nil {
			t.Error(n, err)
		}
	}
	got := out.String()
	if !strings.Contains(got, `level=DEBUG msg="library says" library=kitex text="all is well"`) || !strings.Contains(got, "level=WARN") || strings.Contains(got, "secret") {
		t.Error(got)
	}
}

// TestRepeatedLinesAreCounted: a library that repeats a line does not flood the log.
func TestRepeatedLinesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		w := process.Lines(slog.New(slog.NewTextHandler(&out, nil)), "kitex")
		say := func(format string, args ...any) {
			if _, err := fmt.Fprintf(w, "x.go:1: [Error] "+format+"\n", args...); err != nil {
				t.Error(err)
			}
		}
		for i := range 100 {
			say("connection %d failed: connection refused", i)
		}
		say("connection %d failed: no such host", 1)
		if lines := strings.Count(out.String(), "\n"); lines != 2 {
			t.Errorf("%d lines; want 2:\n%s", lines, out.String())
		}
		time.Sleep(30 * time.Second)
		say("connection %d failed: connection refused", 100)
		if text := out.String(); !strings.Contains(text, `text="connection 100 failed: connection refused" repeated=99`) {
			t.Error(text)
		}
		for i := range 1000 { // distinct lines are all logged, in bounded memory
			say("fault %s", strings.Repeat("x", i%200))
		}
		if lines := strings.Count(out.String(), "fault"); lines < 200 || lines > 1000 {
			t.Errorf("%d lines of 200 distinct faults", lines)
		}
	})
}

func TestLogFlags(t *testing.T) {
	var l process.Log
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	l.Flags(fs)
	if err := fs.Parse([]string{"--log-json", "--log-level", "warn"}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	log := l.Logger(&out)
	log.Info("hidden")
	log.Warn("shown")
	if got := out.String(); strings.Contains(got, "hidden") || !strings.Contains(got, `"msg":"shown"`) {
		t.Error(got)
	}
}
