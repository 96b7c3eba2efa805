package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cloudwego/kitex"
	"github.com/cloudwego/kitex/pkg/klog"

	"github.com/whence-dev/whence/contrib/kitexstream/internal/kitextest"
	"github.com/whence-dev/whence/contrib/kitexstream/internal/tracedoc"
)

func TestMain(m *testing.M) {
	if kitex.Version < "v0.15" { // over TTHeader Streaming, Kitex sent no cancels
		return
	}
	klog.SetOutput(io.Discard)
	kitextest.Main(m)
}

// TestTheTraceOfTheFirstBrokenStreamIsAsInTheDocs compares a run with docs/howto/kitexstream.md.
func TestTheTraceOfTheFirstBrokenStreamIsAsInTheDocs(t *testing.T) {
	var out bytes.Buffer
	if err := show(&out); err != nil {
		t.Fatal(err)
	}
	tracedoc.Compare(t, "../../../../docs/howto/kitexstream.md", "go -C contrib/kitexstream run -modfile=kitex/0.16.mod ./examples/kitexttstream", out.String())
	for _, want := range []string{
		"exchange, server of Prices/Watch: client_gone [user > shop > exchange]\n",
		"the stream ended: client gone: the user closed the tab [user > shop]\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

var update = flag.Bool("update", false, "redraw the picture of the trace in the docs")

// TestThePictureInTheDocsIsOfThisTrace compares everything except times and positions. With -update
// it redraws the picture.
func TestThePictureInTheDocsIsOfThisTrace(t *testing.T) {
	const file = "../../../../docs/images/kitexttstream.svg"
	records := new(kitextest.Records)
	if err := run(io.Discard, records, records); err != nil {
		t.Fatal(err)
	}
	svg := tracedoc.Picture(records.All())
	if *update {
		if err := os.WriteFile(file, []byte(svg), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if want, got := tracedoc.Texts(string(committed)), tracedoc.Texts(svg); !slices.Equal(want, got) {
		t.Errorf("%s shows %q, but the example prints %q", file, want, got)
	}
}
