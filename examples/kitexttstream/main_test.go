package main

import (
	"context"
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cloudwego/kitex/pkg/klog"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

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
	tracedoc.Compare(t, "../../docs/howto/kitexstream.md", "go run ./examples/kitexttstream", out.String())
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
	const file = "../../docs/images/kitexttstream.svg"
	spans := retainingExporter{tracetest.NewInMemoryExporter()}
	if err := run(io.Discard, spans); err != nil {
		t.Fatal(err)
	}
	svg := tracedoc.Picture(spans.GetSpans())
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

// A retainingExporter retains its spans when the monitors close.
type retainingExporter struct{ *tracetest.InMemoryExporter }

// Shutdown implements the SDK's SpanExporter.
func (retainingExporter) Shutdown(context.Context) error { return nil }
