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

	"github.com/whence-dev/whence/internal/whencetiny"
)

// buildCollector builds an OpenTelemetry Collector once, as its module of tools has it. The first build on a machine takes a minute.
var buildCollector = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := build(); err != nil { // which makes the directory
		return "", err
	}
	path := filepath.Join(binDir, "collector")
	cmd := exec.CommandContext(ctx, "go", "-C", filepath.Join("..", "scripts", "tools", "collector"), "build", "-o", path, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return path, nil
})

// realCollector starts an OpenTelemetry Collector that passes on what it gets to one that tests can look into, and returns where it
// listens, by scheme.
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
	eventually(t, "the collector answers", func() bool {
		resp, err := http.Post("http://"+addrs["http"]+"/v1/traces", "application/json", strings.NewReader("{}"))
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
	return addrs
}

// states are the events of a span that are no messages, in the order in which they happened, each with its side.
func (s span) states() (all []string) {
	slices.SortStableFunc(s.events, func(a, b spanEvent) int { return int(a.at) - int(b.at) })
	for _, e := range s.events {
		if e.name != "send" && e.name != "recv" {
			all = append(all, e.name+" "+e.attributes["whence.side"])
		}
	}
	return all
}

// when is the time of a span's event.
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

// TestCollectorGetsOneTreeOfAStoppedStream: over either protocol, one span for each of three hops, each below the one above, with
// what happened in its order: the stop goes down, the ending comes up.
func TestCollectorGetsOneTreeOfAStoppedStream(t *testing.T) {
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
				if i == len(hops)-1 { // below it there is but the engine
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
					t.Errorf("%s heard of the stop after %s", hops[i], hops[i+1])
				}
				if above.when(t, "send_trailer", "up") < below.when(t, "send_trailer", "up") {
					t.Errorf("%s told the ending before %s", hops[i], hops[i+1])
				}
			}
		})
	}
}

// TestLongStreamIsToldByItsEnds: of ten thousand tokens a span has the first messages and the last.
func TestLongStreamIsToldByItsEnds(t *testing.T) {
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
	if n := utf8.RuneCountInString(l.completed(t)); n != tokens { // each is a byte that is no character
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
			if err != nil || n < 100 { // a reader that lags gets larger messages, and fewer
				t.Errorf("%s: %s is %q", hop, total, s.attributes[total])
			}
			if want := []int{0, 1, 2, n - 3, n - 2, n - 1}; !slices.Equal(kept[name], want) {
				t.Errorf("%s: %s has %v, want %v", hop, name, kept[name], want)
			}
		}
	}
}
