package worker

import (
	"bytes"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/internal/whencetiny"
)

// slowFS has files each of whose reads takes a while.
type slowFS struct{ fs.FS }

func (s slowFS) Open(name string) (fs.File, error) {
	f, err := s.FS.Open(name)
	return slowFile{f}, err
}

type slowFile struct{ fs.File }

func (f slowFile) Read(b []byte) (int, error) {
	time.Sleep(50 * time.Millisecond)
	return f.File.Read(b)
}

func TestSlowLoadsLogTheirProgress(t *testing.T) {
	load := func(dir fs.FS) []string {
		var out bytes.Buffer
		c := Config{Weights: "int8"}
		if _, err := c.load(dir, "m", slog.New(slog.NewTextHandler(&out, nil))); err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(out.String()), "\n")
	}
	synctest.Test(t, func(t *testing.T) {
		if lines := load(whencetiny.FS()); len(lines) != 1 || lines[0] != "" {
			t.Errorf("a fast load logged %q", lines)
		}
		lines := load(slowFS{whencetiny.FS()})
		if len(lines) < 3 || !strings.Contains(lines[0], `msg="model is loading" model=m loaded=`) {
			t.Fatalf("a slow load logged %q", lines)
		}
		last := lines[len(lines)-1]
		if !strings.Contains(last, `msg="model loaded" model=m`) || !strings.Contains(last, "weights=int8") {
			t.Errorf("the last line is %q", last)
		}
	})
}

// On a terminal one line shows the progress, and nothing of it remains.
func TestSlowLoadsDrawTheirProgressOnATerminal(t *testing.T) {
	load := func(dir fs.FS) (drawn, logged string) {
		var terminal, log bytes.Buffer
		c := Config{Weights: "int8", Progress: &terminal}
		if _, err := c.load(dir, "a\x1b[2Jmodel with a very long name of many words", slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Fatal(err)
		}
		return terminal.String(), log.String()
	}
	synctest.Test(t, func(t *testing.T) {
		if drawn, logged := load(whencetiny.FS()); drawn != "" || logged != "" {
			t.Errorf("a fast load prints %q and logs %q", drawn, logged)
		}
		drawn, logged := load(slowFS{whencetiny.FS()})
		if strings.Contains(logged, "is loading") || !strings.Contains(logged, "model loaded") {
			t.Errorf("a slow load logs %q", logged)
		}
		const erase = "\x1b[K"
		frames := strings.Split(drawn, erase)
		if len(frames) < 4 || strings.Contains(drawn, "\n") || !strings.HasSuffix(drawn, "\r"+erase) {
			t.Fatalf("a slow load prints %q", drawn)
		}
		last := -1
		for _, frame := range frames[:len(frames)-2] {
			var percent, mib int
			_, rest, _ := strings.Cut(frame, "] ")
			if _, err := fmt.Sscanf(rest, "%d%% of %d MiB, ", &percent, &mib); err != nil || percent < last || percent > 100 || !strings.Contains(frame, "loading a[2Jmodel with a ve… [") || len(frame) > 80 {
				t.Errorf("%q: %v", frame, err)
			}
			last = percent
		}
	})
}
