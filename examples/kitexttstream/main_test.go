package main

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/cloudwego/kitex/pkg/klog"

	"github.com/whence-dev/whence/contrib/kitexstream/telemetry"
	"github.com/whence-dev/whence/internal/leaktest"
)

func TestMain(m *testing.M) {
	klog.SetOutput(io.Discard)
	leaktest.Main(m)
}

// A buffer that several exporters write to.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// aTime matches what differs between two runs.
var aTime = regexp.MustCompile(` +\d+\.\d+ ms`)

// TestTheTraceOfTheFirstBrokenStreamIsAsInTheDocs compares the lines of docs/kitexstream.md with those of a run, without times.
func TestTheTraceOfTheFirstBrokenStreamIsAsInTheDocs(t *testing.T) {
	var out buffer
	if err := run(&out, telemetry.Text(&out)); err != nil {
		t.Fatal(err)
	}
	got := aTime.ReplaceAllString(out.b.String(), "")
	docs, err := os.ReadFile("../../docs/kitexstream.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(docs), "go run ./examples/kitexttstream\n\n")
	if !found {
		t.Fatal("docs/kitexstream.md does not run the example")
	}
	lines := 0
	for line := range strings.Lines(block) {
		text, inBlock := strings.CutPrefix(line, "    ")
		if !inBlock {
			break
		}
		lines++
		if want := aTime.ReplaceAllString(text, ""); !strings.Contains(got, want) {
			t.Errorf("the docs say %q; the run says\n%s", text, out.b.String())
		}
	}
	if lines != strings.Count(got, "\n") {
		t.Errorf("the docs have %d lines; the run says\n%s", lines, out.b.String())
	}
	for _, want := range []string{
		"exchange, server of Prices/Watch: client_gone [user > shop > exchange]\n",
		"shop, client of Prices/Watch: client_gone [user > shop]\n",
		"the stream ended: client gone: the user closed the tab [user > shop]\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}
