package streamtrace

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

func TestFileIsRotated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spans.json")
	w, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	batch := func() []*tracepb.ResourceSpans {
		return []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{{TraceId: bytes.Repeat([]byte{255}, 16), SpanId: bytes.Repeat([]byte{7}, 8)}}}}}}
	}
	line, err := marshal(batch())
	if err != nil {
		t.Fatal(err)
	}
	w.max = int64(3*len(line)) + 10
	for range 8 {
		if err := w.UploadTraces(t.Context(), batch()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, lines := range map[string]int{path: 2, path + ".1": 3} {
		b, err := os.ReadFile(name)
		if got := bytes.Count(b, []byte("\n")); err != nil || got != lines {
			t.Errorf("%s has %d lines, want %d: %v", filepath.Base(name), got, lines, err)
		}
	}
}
