package process_test

import (
	"bytes"
	"flag"
	"log/slog"
	"strings"
	"testing"

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
