package main

import (
	"io"
	"strings"
	"testing"

	"github.com/cloudwego/kitex/pkg/klog"

	"github.com/whence-dev/whence/contrib/kitexstream/telemetry"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/tracedoc"
)

func TestMain(m *testing.M) {
	klog.SetOutput(io.Discard)
	leaktest.Main(m)
}

// TestTheTraceOfTheFirstBrokenStreamIsAsInTheDocs compares a run with docs/howto/kitexstream.md.
func TestTheTraceOfTheFirstBrokenStreamIsAsInTheDocs(t *testing.T) {
	var out tracedoc.Buffer
	if err := run(&out, telemetry.Text(&out)); err != nil {
		t.Fatal(err)
	}
	tracedoc.Compare(t, "../../docs/howto/kitexstream.md", "go run ./examples/kitexgrpc", out.String())
	if want := "exchange, server of prices.Prices/Watch: internal [exchange]\n  the feed broke\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is missing in\n%s", want, out.String())
	}
}
