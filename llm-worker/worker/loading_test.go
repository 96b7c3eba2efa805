package worker

import (
	"bytes"
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
