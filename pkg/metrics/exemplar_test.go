package metrics_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// at returns a context with a trace whose id repeats the byte b.
func at(b byte) func(streamerr.Reason) context.Context {
	return func(streamerr.Reason) context.Context {
		var id trace.TraceID
		var span trace.SpanID
		for i := range id {
			id[i] = b
		}
		span[0] = b
		sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.FlagsSampled})
		return trace.ContextWithSpanContext(context.Background(), sc)
	}
}

// exemplarLines returns the lines of a scrape that have an exemplar, in the format of accept.
func exemplarLines(t *testing.T, m *metrics.Metrics, accept string) (lines []string) {
	t.Helper()
	req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	req.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, req)
	for line := range strings.Lines(w.Body.String()) {
		if strings.Contains(line, " # {") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

const openMetrics = "application/openmetrics-text;version=1.0.0"

func TestFiguresLinkToTraces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetrics(t)
		h := m.Hop("h", metrics.Chat)
		run := func(link func(streamerr.Reason) context.Context, longest time.Duration) {
			s := begin(h)
			s.Link(link)
			s.Started("m", 1)
			for _, gap := range []time.Duration{3 * time.Millisecond, longest, 4 * time.Millisecond} {
				s.In(1)
				s.Out(1)
				time.Sleep(gap)
			}
			s.In(1)
			s.Out(1)
			s.Stopped(time.Millisecond, streamerr.UserStop)
			s.End(streamerr.UserStop, "client")
		}
		run(func(streamerr.Reason) context.Context { return context.Background() }, time.Second)
		if lines := exemplarLines(t, m, openMetrics); len(lines) != 0 {
			t.Errorf("exemplars of traces that are not exported: %q", lines)
		}
		for range 100 { // each bucket keeps one of them
			run(at(0xaa), 40*time.Millisecond)
		}
		run(at(0xbb), 700*time.Millisecond)
		if lines := exemplarLines(t, m, "text/plain"); len(lines) != 0 {
			t.Errorf("the text format has exemplars: %q", lines)
		}
		lines := exemplarLines(t, m, openMetrics)
		for _, want := range []struct{ series, trace, value string }{ // for some series, OpenTelemetry keeps any exemplar
			{`gen_ai_server_time_to_first_token_seconds_bucket`, "", "1e-09"},
			{`gen_ai_server_request_duration_seconds_bucket`, "aa", "0.047"},
			{`gen_ai_server_request_duration_seconds_bucket`, "bb", "0.707"},
			{`whence_message_gap_seconds_bucket{direction="recv",hop="h",le="0.05"}`, "aa", "0.04"},
			{`whence_message_gap_seconds_bucket{direction="send",hop="h",le="1.0"}`, "bb", "0.7"},
			{`whence_stop_duration_seconds_bucket`, "", "0.001"},
			{`whence_stream_endings_total{hop="h",origin="client",reason="user_stop"}`, "", "1.0"},
		} {
			found := false
			for _, line := range lines {
				id := `trace_id="` + strings.Repeat(want.trace, 16)
				found = found || strings.HasPrefix(line, want.series) && strings.Contains(line, id) && strings.Contains(line, "} "+want.value+" ")
			}
			if !found {
				t.Errorf("no exemplar of %s with trace %s and value %s", want.series, want.trace, want.value)
			}
		}
		if len(lines) > 20 || t.Failed() {
			t.Errorf("%d exemplars of 101 streams:\n%s", len(lines), strings.Join(lines, "\n"))
		}
	})
}
