package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/cloudwego/kitex/pkg/klog"

	"github.com/whence-dev/whence/contrib/kitexstream/internal/kitextest"
	"github.com/whence-dev/whence/contrib/kitexstream/internal/tracedoc"
)

func TestMain(m *testing.M) {
	klog.SetOutput(io.Discard)
	kitextest.Main(m)
}

// TestTheTraceOfTheFirstBrokenStreamIsAsInTheDocs compares a run with docs/howto/kitexstream.md.
func TestTheTraceOfTheFirstBrokenStreamIsAsInTheDocs(t *testing.T) {
	var out bytes.Buffer
	if err := show(&out); err != nil {
		t.Fatal(err)
	}
	tracedoc.Compare(t, "../../../../docs/howto/kitexstream.md", "go -C contrib/kitexstream run -modfile=kitex/0.16.mod ./examples/kitexgrpc", out.String())
	if want := "exchange, server of prices.Prices/Watch: internal [exchange]\n  the feed broke\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is missing in\n%s", want, out.String())
	}
}
