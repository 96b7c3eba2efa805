package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/tier"
)

// TestEnvoyPassesCutAnswers: through Envoy with our configuration, answers that fail look cut. Many that
// fail at once, because their worker is lost, do not make Envoy take the api-service out, as they do with the
// defaults of its outlier detection.
func TestEnvoyPassesCutAnswers(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	binaries, err := filepath.Glob(filepath.Join(clientsDir(t), "envoy/lib/python*/site-packages/envoy/_bin/envoy"))
	if err != nil || len(binaries) != 1 {
		t.Fatal(binaries, err)
	}
	config, err := os.ReadFile("../deploy/envoy/whence.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w := run(t, separate, flags{api: []string{"--trust-forwarded"}, worker: []string{"--engine", "sim", "--sim-step", "400ms", "--max-running", "32"}})
	before, _, _ := strings.Cut(string(config), "      # A stream that fails is cut")
	ours := startEnvoy(t, binaries[0], string(config), w)
	standard := startEnvoy(t, binaries[0], before+"      max_ejection_percent: 100\n", w)
	bodies := append(ours.begin(t), standard.begin(t)...)
	w.processes[llmWorker].kill(t)
	for _, body := range bodies {
		text, err := io.ReadAll(body)
		if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(string(text), `"error"`) {
			t.Errorf("an answer ends with %v: %s", err, text)
		}
	}
	if n := ours.ejections(t); n != 0 {
		t.Errorf("after cut answers, Envoy has taken out the api-service %v times", n)
	}
	if n := standard.ejections(t); n == 0 {
		t.Error("Envoy's defaults do not take the api-service out any more: say so in docs/howto/proxies.md")
	}
}

// An envoy is Envoy in front of a path.
type envoy struct {
	*whence
	admin string
}

// startEnvoy starts Envoy with a configuration, whose addresses are replaced.
func startEnvoy(t *testing.T, binary, config string, w *whence) *envoy {
	t.Helper()
	e := &envoy{w.through(freeAddr(t)), freeAddr(t)}
	place := func(addr string) string {
		host, port, _ := strings.Cut(addr, ":")
		return fmt.Sprintf("{address: %s, port_value: %s}", host, port)
	}
	config = strings.NewReplacer("{address: 127.0.0.1, port_value: 10000}", place(e.api), "{address: 127.0.0.1, port_value: 8080}", place(w.api)).Replace(config)
	config += "admin: {address: {socket_address: " + place(e.admin) + "}}\n"
	file := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	startFile(t, "envoy", binary, "--config-path", file, "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warn")
	e.ready(t)
	return e
}

// begin returns the bodies of streams that have begun.
func (e *envoy) begin(t *testing.T) (bodies []io.Reader) {
	t.Helper()
	for range 8 { // Envoy's default is to take an instance out after five failures on end
		resp, err := e.send(t, greedy(long, "stream", true, "max_tokens", 900, "ignore_eos", true), "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
		bodies = append(bodies, resp.Body)
	}
	return bodies
}

// ejections returns how often Envoy has taken out the api-service.
func (e *envoy) ejections(t *testing.T) (n int) {
	t.Helper()
	resp, err := e.http.Get("http://" + e.admin + "/stats?filter=ejections_enforced_total")
	if err != nil {
		t.Fatal(err)
	}
	got := readAll(t, resp)
	if _, err := fmt.Sscanf(string(got.body), "cluster.whence.outlier_detection.ejections_enforced_total: %d", &n); err != nil {
		t.Fatalf("%v: %s", err, got.body)
	}
	return n
}
