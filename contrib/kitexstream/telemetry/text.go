package telemetry

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Text returns an exporter that writes each span as text: a line with its reason and path, then a
// line for each event.
func Text(w io.Writer) sdktrace.SpanExporter { return &textExporter{w: w} }

type textExporter struct {
	mu sync.Mutex // guards w
	w  io.Writer
}

// ExportSpans implements the SDK's SpanExporter.
func (t *textExporter) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	var b strings.Builder
	for _, span := range spans {
		writeSpan(&b, span)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := io.WriteString(t.w, b.String())
	return err
}

// Shutdown implements the SDK's SpanExporter.
func (t *textExporter) Shutdown(context.Context) error { return nil }

func writeSpan(b *strings.Builder, span sdktrace.ReadOnlySpan) {
	has := values(span.Attributes())
	fmt.Fprintf(b, "%s, %s of %s: %s [%s]\n", has["whence.hop"], span.SpanKind(), span.Name(), has["whence.reason"], has["whence.path"])
	if text := span.Status().Description; text != "" {
		fmt.Fprintf(b, "  %s\n", text)
	}
	for _, e := range span.Events() {
		fmt.Fprintf(b, "  %9.3f ms  %s", float64(e.Time.Sub(span.StartTime()))/float64(time.Millisecond), e.Name)
		for _, a := range e.Attributes {
			if name := strings.TrimPrefix(string(a.Key), "whence."); name != "side" {
				fmt.Fprintf(b, " %s=%s", name, a.Value.String())
			}
		}
		b.WriteByte('\n')
	}
}

// values returns attributes by key.
func values(all []attribute.KeyValue) map[string]string {
	m := make(map[string]string, len(all))
	for _, a := range all {
		m[string(a.Key)] = a.Value.String()
	}
	return m
}
