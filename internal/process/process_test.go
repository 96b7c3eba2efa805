package process_test

import (
	"bytes"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/process"
)

func flags() (*flag.FlagSet, *string, *int) {
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	return fs, fs.String("who-listens", "default", "the `address`"), fs.Int("count", 1, "how many")
}

func TestFlagsWinOverEnvironmentOverFileOverDefault(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("who-listens: from-file\ncount: 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		env  string
		want string
		n    int
	}{
		{nil, "", "default", 1},
		{[]string{"--config", file}, "", "from-file", 5},
		{[]string{"--config", file}, "from-env", "from-env", 5},
		{[]string{"--config", file, "--who-listens", "from-flag"}, "from-env", "from-flag", 5},
	} {
		if test.env != "" {
			t.Setenv("WHENCE_WHO_LISTENS", test.env)
		}
		fs, s, n := flags()
		if err := process.Parse(fs, test.args, &bytes.Buffer{}); err != nil || *s != test.want || *n != test.n {
			t.Errorf("%v: %q, %d, %v", test, *s, *n, err)
		}
	}
}

func TestBadConfigurationIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("who-listns: typo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--nope"}, {"--count", "many"}, {"stray"}, {"--config", file}, {"--config", file + ".missing"}} {
		fs, _, _ := flags()
		if err := process.Parse(fs, args, &bytes.Buffer{}); err == nil || errors.Is(err, flag.ErrHelp) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestHelpNamesEveryFlagWithItsVariableAndDefault(t *testing.T) {
	var help bytes.Buffer
	fs, _, _ := flags()
	if err := process.Parse(fs, []string{"--help"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	for _, want := range []string{"--who-listens address", "WHENCE_WHO_LISTENS, default default", "--count", "--config file"} {
		if !strings.Contains(help.String(), want) {
			t.Errorf("help lacks %q:\n%s", want, &help)
		}
	}
}

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
	if err := process.Parse(fs, []string{"--log-json", "--log-level", "warn"}, &bytes.Buffer{}); err != nil {
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
