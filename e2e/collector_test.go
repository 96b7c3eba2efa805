package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/tier"
	"github.com/whence-dev/whence/internal/whencetiny"
)

// buildCollector builds the OpenTelemetry Collector of scripts/tools once. The first build on a
// machine takes a minute.
var buildCollector = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := build(); err != nil { // creates the directory
		return "", err
	}
	path := filepath.Join(binDir, "collector")
	cmd := exec.CommandContext(ctx, "go", "-C", filepath.Join("..", "scripts", "tools", "collector"), "build", "-o", path, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return path, nil
})

// realCollector starts an OpenTelemetry Collector that forwards everything to the test's own
// collector, and returns its addresses by scheme.
func realCollector(t *testing.T, to *collector) map[string]string {
	t.Helper()
	path, err := buildCollector()
	if err != nil {
		missing(t, "the collector cannot be built: %v", err)
	}
	addrs := map[string]string{"grpc": freeAddr(t), "http": freeAddr(t)}
	config := filepath.Join(t.TempDir(), "collector.yml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
receivers: {otlp: {protocols: {grpc: {endpoint: %q}, http: {endpoint: %q}}}}
exporters: {otlphttp: {endpoint: "http://%s"}}
service:
  telemetry: {metrics: {level: none}, logs: {level: warn}}
  pipelines:
    traces: {receivers: [otlp], exporters: [otlphttp]}
    metrics: {receivers: [otlp], exporters: [otlphttp]}
`, addrs["grpc"], addrs["http"], to.addr), 0o600); err != nil {
		t.Fatal(err)
	}
	startFile(t, "collector", path, "--config", "file:"+config)
	polltest.Eventually(t, "the collector answers", func() bool {
		resp, err := http.Post("http://"+addrs["http"]+"/v1/traces", "application/json", strings.NewReader("{}"))
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
	return addrs
}

// states returns the events of a span that are not messages, in chronological order, each with its
// side.
func (s span) states() (all []string) {
	slices.SortStableFunc(s.events, func(a, b spanEvent) int { return int(a.at) - int(b.at) })
	for _, e := range s.events {
		if e.name != "send" && e.name != "recv" {
			all = append(all, e.name+" "+e.attributes["whence.side"])
		}
	}
	return all
}

// when returns the time of a span's event.
func (s span) when(t *testing.T, name, side string) uint64 {
	t.Helper()
	for _, e := range s.events {
		if e.name == name && e.attributes["whence.side"] == side {
			return e.at
		}
	}
	t.Errorf("%s has no %s %s", s.service, name, side)
	return 0
}

// TestCollectorGetsOneTreeOfAStoppedStream: over either protocol, each of three hops has one span
// below the span of its caller, with its events in order: the stop goes down, the ending comes up.
func TestCollectorGetsOneTreeOfAStoppedStream(t *testing.T) {
	tier.Full(t)
	for _, scheme := range []string{"grpc", "http"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			c := newCollector(t)
			addrs := realCollector(t, c)
			w := run(t, separate, flags{all: []string{"--otlp", scheme + "://" + addrs[scheme]}, worker: []string{"--pace", "40"}})
			l := w.open(t, greedy(long)).begun(t)
			w.cancel(t, w.api, l.id)
			l.failed(t)
			spans := c.of(t, l.id, len(hops))
			between := []string{
				"recv_header up", "send_header down", "recv_header down", "send_header up",
				"recv_rst up", "send_rst down", "recv_trailer down", "send_trailer up",
			}
			for i, hop := range hops {
				s, want, parent := spans[hop], between, ""
				if i > 0 {
					parent = spans[hops[i-1]].id
				}
				if i == len(hops)-1 { // only the engine is below
					want = []string{"recv_header up", "send_header up", "recv_rst up", "send_trailer up"}
				}
				if s.trace != spans[hops[0]].trace || s.parent != parent {
					t.Errorf("%s is below %q in %s", hop, s.parent, s.trace)
				}
				if got := s.states(); !slices.Equal(got, want) {
					t.Errorf("%s: %v\nwant %v", hop, got, want)
				}
			}
			for i := range len(hops) - 1 {
				above, below := spans[hops[i]], spans[hops[i+1]]
				if above.when(t, "recv_rst", "up") > below.when(t, "recv_rst", "up") {
					t.Errorf("%s received the stop after %s", hops[i], hops[i+1])
				}
				if above.when(t, "send_trailer", "up") < below.when(t, "send_trailer", "up") {
					t.Errorf("%s sent the ending before %s", hops[i], hops[i+1])
				}
			}
		})
	}
}

// TestSpanOfALongStreamHasItsFirstAndLastMessages: the stream has ten thousand tokens.
func TestSpanOfALongStreamHasItsFirstAndLastMessages(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	const tokens, keep = 10_000, 3
	c := newCollector(t)
	addrs := realCollector(t, c)
	dir := wideModel(t, 16384)
	engine := badEngine(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range tokens - 1 {
			event(w, "a", "")
		}
		event(w, "a", "length")
		fmt.Fprint(w, "data: [DONE]\n\n")
	})
	model := []string{"--model", dir, "--model-name", whencetiny.Name}
	w := run(t, separate, flags{
		all:    []string{"--otlp", "grpc://" + addrs["grpc"], "--trace-ratio", "1", "--trace-messages", strconv.Itoa(keep)},
		chat:   model,
		worker: append([]string{"--engine", "openai", "--upstream", engine}, model...),
	})
	l := w.open(t, greedy(short, "max_tokens", tokens))
	if n := utf8.RuneCountInString(l.completed(t)); n != tokens { // each token is a byte that is not a character
		t.Fatalf("%d characters", n)
	}
	for hop, s := range c.of(t, l.id, len(hops)) {
		kept := map[string][]int{}
		for _, e := range s.events {
			if e.name == "send" || e.name == "recv" {
				i, err := strconv.Atoi(e.attributes["whence.index"])
				if err != nil {
					t.Fatal(err)
				}
				kept[e.name] = append(kept[e.name], i)
			}
		}
		for name, total := range map[string]string{"send": "whence.messages.sent", "recv": "whence.messages.received"} {
			n, err := strconv.Atoi(s.attributes[total])
			if err != nil || n < 100 { // a slow reader gets fewer and larger messages
				t.Errorf("%s: %s is %q", hop, total, s.attributes[total])
			}
			if want := []int{0, 1, 2, n - 3, n - 2, n - 1}; !slices.Equal(kept[name], want) {
				t.Errorf("%s: %s has %v, want %v", hop, name, kept[name], want)
			}
		}
	}
}
