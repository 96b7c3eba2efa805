package streamtrace

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"sync"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

// maxFile is the maximum size of a file of spans, in bytes. At that size the file is renamed to
// PATH.1, which it replaces, and a new file begins.
const maxFile = 64 << 20

// A file writes spans as OTLP's JSON, one line per batch. The otlpjsonfile receiver of collectors
// reads this format.
type file struct {
	path string
	max  int64

	mu   sync.Mutex // guards the following fields
	f    *os.File
	size int64
}

var _ otlptrace.Client = (*file)(nil)

// FileExporter returns an exporter that appends spans to a file, as lines of OTLP's JSON. When the
// file reaches 64 MB it is renamed to path.1.
func FileExporter(path string) (*otlptrace.Exporter, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	return otlptrace.NewUnstarted(f), nil
}

func openFile(path string) (*file, error) {
	w := &file{path: path, max: maxFile}
	return w, w.open()
}

func (w *file) open() error {
	f, err := os.OpenFile(w.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return err
	}
	w.f, w.size = f, info.Size()
	return nil
}

// Start implements otlptrace.Client.
func (w *file) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (w *file) Stop(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.f.Close()
}

// UploadTraces implements otlptrace.Client.
func (w *file) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) error {
	line, err := marshal(spans)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.size > 0 && w.size+int64(len(line)) > w.max {
		if err := w.rotate(); err != nil {
			return err
		}
	}
	n, err := w.f.Write(line)
	w.size += int64(n)
	return err
}

func (w *file) rotate() error {
	if err := os.Rename(w.path, w.path+".1"); err != nil {
		return fmt.Errorf("rotate: %w", err)
	}
	old := w.f
	if err := w.open(); err != nil {
		return fmt.Errorf("rotate: %w", err) // continues with the old file
	}
	return old.Close()
}

// marshal encodes spans as OTLP's JSON, which is protobuf's JSON with numbers for enums and hex for
// ids.
func marshal(spans []*tracepb.ResourceSpans) ([]byte, error) {
	for _, resource := range spans {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				span.TraceId, span.SpanId, span.ParentSpanId = inHex(span.GetTraceId()), inHex(span.GetSpanId()), inHex(span.GetParentSpanId())
			}
		}
	}
	line, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	return append(line, '\n'), err
}

// inHex returns the bytes that protobuf's JSON, which uses base64, writes as id in hex.
func inHex(id []byte) []byte {
	digits, err := base64.StdEncoding.DecodeString(hex.EncodeToString(id))
	if err != nil {
		panic(err) // cannot happen: 16 or 32 hex digits are valid base64
	}
	return digits
}
