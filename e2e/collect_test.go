package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/whence-dev/whence/internal/tier"
)

// TestProxiesThatCollectTokensAreNamed: the reports of clients reveal an nginx that buffers, but
// not an nginx with our configuration.
func TestProxiesThatCollectTokensAreNamed(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	node := tool(t, "node")
	chromium := tool(t, "chromium", "chromium-browser", "google-chrome")
	w := run(t, allInOne, flags{all: append([]string{"--trust-forwarded"}, measured...), worker: []string{"--pace", "40"}})
	collecting := nginx(t, w.api, "location / { proxy_pass http://whence; proxy_ignore_headers X-Accel-Buffering; }")
	passing := nginx(t, w.api, "include whence.conf;")
	for _, addr := range []string{collecting, passing} {
		behind := *w
		behind.api = addr
		behind.ready(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), nodePatience)
	defer cancel()
	if out, err := runNode(ctx, node, "client-js", nil, "DIRECT_URL=http://"+w.api, "COLLECTING_URL=http://"+collecting, "PASSING_URL=http://"+passing); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	nodeTest(t, "browser", nil, "COLLECTING_URL=http://"+collecting, "CHROMIUM="+chromium)
	for addr, want := range map[string]string{collecting: "wrong    delivery   nginx/", passing: "ok       delivery "} {
		if out, _, _ := output(t, "whence doctor", "--url", "http://"+addr); !strings.Contains(out, want) {
			t.Errorf("doctor says no %q:\n%s", want, out)
		}
	}
	s := w.scrape(t)
	for verdict, want := range map[string]float64{"buffered": 3, "flowing": 3} {
		if n := s.Sum("whence_streams_judged_total", "verdict="+verdict); n != want {
			t.Errorf("%v streams were %s, want %v", n, verdict, want)
		}
	}
	lines := w.processes[apiService].Log.All()
	if n := strings.Count(strings.Join(lines, "\n"), "a proxy collects tokens"); n != 1 {
		t.Errorf("the log names the proxy %d times", n)
	}
}
