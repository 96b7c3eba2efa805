package streamtrace_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/internal/otlp"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
	"github.com/whence-dev/whence/pkg/tally"
)

func TestWrongFlagsAreReportedBeforeTheServicesStart(t *testing.T) {
	for want, c := range map[string]streamtrace.Config{
		"--trace is":           {Trace: "maybe"},
		"--trace-messages is":  {Messages: -1},
		"--trace-ratio is":     {Ratio: 1.5},
		"--trace-ratio is NaN": {Ratio: math.NaN()},
		"--trace-file needs":   {Trace: "off", File: "x"},
		"--trace-file:":        {File: filepath.Join(t.TempDir(), "no", "such")},
	} {
		err := c.Run("s", "", slog.New(slog.DiscardHandler), func(*streamtrace.Tracer) error { t.Error("started"); return nil })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func TestTraceOffMeansNilTracer(t *testing.T) {
	failed := errors.New("the service's own")
	c := streamtrace.Config{Trace: "off"}
	if err := c.Run("s", "", slog.New(slog.DiscardHandler), func(tracer *streamtrace.Tracer) error {
		if tracer != nil {
			t.Error(tracer)
		}
		return failed
	}); !errors.Is(err, failed) {
		t.Error(err)
	}
}

func TestFileHasALineOfJSONForEachBatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spans.json")
	for range 2 { // the second process appends
		c := streamtrace.Config{Messages: 1, File: path}
		if err := c.Run("s", "", slog.New(slog.DiscardHandler), func(tracer *streamtrace.Tracer) error {
			count := tally.New(time.Now())
			tr := tracer.Begin(count, streamtrace.ParseParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""), "")
			count.Sent(1, nil)
			endTrace(tracer, tr, streamerr.Internal)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	if len(lines) != 2 {
		t.Fatalf("%d lines", len(lines))
	}
	var data struct {
		ResourceSpans []struct {
			ScopeSpans []struct {
				Spans []struct {
					TraceID, SpanID, ParentSpanID string
					Kind                          int
					Events                        []struct{ Name string }
				}
			}
		}
	}
	if err := json.Unmarshal(lines[1], &data); err != nil {
		t.Fatal(err)
	}
	s := data.ResourceSpans[0].ScopeSpans[0].Spans[0]
	if s.TraceID != "0af7651916cd43dd8448eb211c80319c" || s.ParentSpanID != "b7ad6b7169203331" || len(s.SpanID) != 16 || s.Kind != 2 || len(s.Events) != 1 || s.Events[0].Name != "send" {
		t.Errorf("%+v", s)
	}
}

func TestLostCollectorIsLoggedAndFailsNothing(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	var log bytes.Buffer
	c := streamtrace.Config{}
	if err := c.Run("s", otlp.Collector(ln.Addr().String()), slog.New(slog.NewTextHandler(&log, nil)), func(tracer *streamtrace.Tracer) error {
		endTrace(tracer, beginTrace(tracer), streamerr.Internal)
		return nil
	}); err != nil || !strings.Contains(log.String(), "spans could not be exported") {
		t.Error(err, log.String())
	}
}
