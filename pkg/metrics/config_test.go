package metrics_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	colmetricpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/internal/otlp"
	"github.com/whence-dev/whence/pkg/metrics"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestScrapesAreAnsweredWhileTheServicesRun(t *testing.T) {
	var log bytes.Buffer
	c := metrics.Config{Listen: "127.0.0.1:0"}
	url := ""
	err := c.Run("whence", "", slog.New(slog.NewJSONHandler(&log, nil)), func(m *metrics.Metrics) error {
		var line struct{ Msg, Addr string }
		if err := json.Unmarshal(log.Bytes(), &line); err != nil || line.Msg != "serving metrics" {
			t.Fatalf("%v: %s", err, &log)
		}
		m.Hop("h", metrics.Chat).Refused(streamerr.Invalid)
		url = "http://" + line.Addr
		for path, want := range map[string]int{"/metrics": 200, "/": 404} {
			resp, err := http.Get(url + path)
			if err != nil {
				return err
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s: status %d", path, resp.StatusCode)
			}
			if path == "/metrics" && !strings.Contains(string(body), `whence_requests_refused_total{hop="h",reason="invalid"} 1`) {
				t.Errorf("%s", body)
			}
		}
		return nil
	})
	http.DefaultClient.CloseIdleConnections()
	if err != nil {
		t.Error(err)
	}
	if resp, err := http.Get(url + "/metrics"); err == nil {
		_ = resp.Body.Close()
		t.Error("the listener answers scrapes after the services have ended")
	}
}

// TestProfilesAreServedOnlyIfEnabled: --pprof adds profiles to the metrics listener, but never the
// command line, which may have keys. The metrics of Go's runtime are always exported.
func TestProfilesAreServedOnlyIfEnabled(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	get := func(url string) (status int, body string) {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	for _, on := range []bool{false, true} {
		var log bytes.Buffer
		c := metrics.Config{Listen: "127.0.0.1:0", Pprof: on}
		if err := c.Run("whence", "", slog.New(slog.NewJSONHandler(&log, nil)), func(*metrics.Metrics) error {
			var line struct{ Addr string }
			if err := json.Unmarshal(log.Bytes(), &line); err != nil {
				t.Fatal(err)
			}
			url := "http://" + line.Addr
			want := http.StatusNotFound
			if on {
				want = http.StatusOK
			}
			for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=1", "/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=0.01"} {
				if status, _ := get(url + path); status != want {
					t.Errorf("pprof %t: %s has status %d, want %d", on, path, status, want)
				}
			}
			if status, body := get(url + "/debug/pprof/cmdline"); status == http.StatusOK {
				t.Errorf("pprof %t: the command line is served: %q", on, body)
			}
			_, scrape := get(url + "/metrics")
			for _, name := range []string{"go_goroutines ", "go_memstats_heap_inuse_bytes ", "go_gc_duration_seconds_count ", "go_gc_gomemlimit_bytes ", "go_sched_gomaxprocs_threads ",
				"go_sched_latencies_seconds_count ", "go_sched_pauses_total_gc_seconds_count "} {
				if !strings.Contains(scrape, "\n"+name) {
					t.Errorf("pprof %t: /metrics has no %s", on, name)
				}
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}

func TestProfilesNeedAListener(t *testing.T) {
	c := metrics.Config{Pprof: true}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "--metrics-listen") {
		t.Errorf("--pprof without --metrics-listen: %v", err)
	}
}

func TestNoExporterMeansNoMetrics(t *testing.T) {
	failed := errors.New("the service's own")
	if err := new(metrics.Config).Run("whence", "", slog.New(slog.DiscardHandler), func(m *metrics.Metrics) error {
		if m != nil {
			t.Error("metrics are not nil without an exporter")
		}
		return failed
	}); !errors.Is(err, failed) {
		t.Error(err)
	}
}

func TestWrongAddressesAreReportedBeforeTheServicesStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []metrics.Config{{Listen: "nowhere"}, {Listen: taken.Addr().String()}} {
		err := c.Run("whence", "", slog.New(slog.DiscardHandler), func(*metrics.Metrics) error {
			t.Errorf("%+v: the services run", c)
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), "--") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestCollectorGetsTheLastFigures: changes since the last push are pushed when the process ends.
func TestCollectorGetsTheLastFigures(t *testing.T) {
	got := make(chan map[string]string, 10) // units by name
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			var err error
			if body, err = gzip.NewReader(body); err != nil {
				t.Error(err)
				return
			}
		}
		b, err := io.ReadAll(body)
		if err != nil {
			t.Error(err)
		}
		var req colmetricpb.ExportMetricsServiceRequest
		if err := proto.Unmarshal(b, &req); err != nil {
			t.Error(err)
		}
		units := map[string]string{"path": r.URL.Path}
		for _, resource := range req.GetResourceMetrics() {
			for _, scope := range resource.GetScopeMetrics() {
				for _, m := range scope.GetMetrics() {
					units[m.GetName()] = m.GetUnit()
				}
			}
		}
		got <- units
	}))
	defer collector.Close()
	var c metrics.Config
	if err := c.Run("whence", otlp.Collector(collector.Listener.Addr().String()), slog.New(slog.DiscardHandler), func(m *metrics.Metrics) error {
		s := begin(m.Hop("h", metrics.Chat))
		s.In(1)
		s.End(streamerr.Completed, "engine")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	units := <-got
	for name, want := range map[string]string{
		"path": "/v1/metrics", "whence.messages": "{message}", "whence.message.gap": "s", "whence.stream.endings": "{stream}", "gen_ai.server.request.duration": "s",
	} {
		if units[name] != want {
			t.Errorf("%s: %q, want %q; all: %v", name, units[name], want, units)
		}
	}
}

// TestLostCollectorFailsNothing: the process has done its work.
func TestLostCollectorFailsNothing(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	var log bytes.Buffer
	var c metrics.Config
	begun := time.Now()
	if err := c.Run("whence", otlp.Collector(gone.Addr().String()), slog.New(slog.NewTextHandler(&log, nil)), func(*metrics.Metrics) error { return nil }); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("the end took %v", took)
	}
	if !strings.Contains(log.String(), "the last metrics could not be pushed") {
		t.Errorf("the log lacks the failed push: %s", &log)
	}
}

// TestErrorsOfSpansAreNotCalledErrorsOfMetrics: all signals share OpenTelemetry's error handler.
func TestErrorsOfSpansAreNotCalledErrorsOfMetrics(t *testing.T) {
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer collector.Close()
	var log bytes.Buffer
	var c metrics.Config
	to := otlp.Collector(strings.TrimPrefix(collector.URL, "http://"))
	err := c.Run("whence", to, slog.New(slog.NewTextHandler(&log, nil)), func(*metrics.Metrics) error {
		otel.Handle(errors.New("traces export: connection refused"))
		return nil
	})
	if got := log.String(); err != nil || !strings.Contains(got, `msg="telemetry could not be pushed"`) || !strings.Contains(got, "traces export: connection refused") || strings.Contains(got, "metrics") {
		t.Errorf("%v: %s", err, got)
	}
}
