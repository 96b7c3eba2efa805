package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOperatorsWatchADrain: every program that serves HTTP has the admin listener, which has the metrics of the process,
// stops the streams of every tenant, and answers until the last stream has drained.
func TestOperatorsWatchADrain(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(keys, []byte("keys: [{key: one, tenant: one}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	api := flags{api: []string{"--admin-listen", "127.0.0.1:0", "--keys", keys}, worker: []string{"--pace", "40"}}
	eachTopology(t, api, func(t *testing.T, w *whence) {
		p := w.processes[apiService]
		admin := "http://" + p.logged(t, "its admin listener", func(r record) bool { return r.Msg == "serving operators" }).Addr
		get := func(url string) reply {
			resp, err := w.http.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			return readAll(t, resp)
		}
		running := newLive(w.asTenant(t, "one", "one", greedy(long, "stream", true))).begun(t)
		p.terminate(t)
		p.logged(t, "that it drains", func(r record) bool { return strings.HasPrefix(r.Msg, "draining: live streams") })
		if got := get(admin + "/metrics"); !strings.Contains(string(got.body), `whence_streams_live{hop="api-service"} 1`) {
			t.Errorf("the metrics: %d: %.300s", got.status, got.body)
		}
		if got := get(w.url("/metrics")); got.status != http.StatusUnauthorized {
			t.Errorf("the public listener answers a scrape with %d", got.status)
		}
		var list struct{ Streams []struct{ ID string } }
		if got := get(admin + "/v1/streams"); json.Unmarshal(got.body, &list) != nil || len(list.Streams) != 1 || list.Streams[0].ID != running.id {
			t.Errorf("the list of the operator: %d: %s", got.status, got.body)
		}
		w.cancel(t, strings.TrimPrefix(admin, "http://"), running.id)
		if e := running.rest(t); e.err.reason() != "operator_stop" {
			t.Errorf("the stream ends with %v", e)
		}
		w.http.CloseIdleConnections()
		p.exit(t)
	})
}

// TestAdminListenerOfOthersNeedsAKey: a process whose operators' address other machines reach does not start without
// their key.
func TestAdminListenerOfOthersNeedsAKey(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"whence", gatewayCommand, apiService} {
		args := []string{"--listen", "127.0.0.1:0", "--admin-listen", "0.0.0.0:0"}
		switch name {
		case "whence":
			args = append(args, "--chat-listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0")
		case gatewayCommand:
			args = append(args, "--worker", "127.0.0.1:1")
		}
		if _, logs, status := output(t, name, args...); status != 2 || !strings.Contains(logs, "set --operator-key") {
			t.Errorf("%s ends with %d: %s", name, status, logs)
		}
	}
}

// TestProfilesStayOffThePublicListener: --pprof serves profiles only on --metrics-listen of every
// service.
func TestProfilesStayOffThePublicListener(t *testing.T) {
	profiled := flags{all: []string{"--metrics-listen", "127.0.0.1:0", "--pprof"}}
	eachTopology(t, profiled, func(t *testing.T, w *whence) {
		status := func(url string) int {
			resp, err := w.http.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.StatusCode
		}
		for _, p := range w.all() {
			if got := status("http://" + must(t)(p.Metrics()) + "/debug/pprof/goroutine"); got != http.StatusOK {
				t.Errorf("%s: the profile of goroutines has status %d", p.Name, got)
			}
		}
		if got := status(w.url("/debug/pprof/goroutine")); got != http.StatusNotFound {
			t.Errorf("the public listener answers a request for a profile with status %d", got)
		}
	})
}
