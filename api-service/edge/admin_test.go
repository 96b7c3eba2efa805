package edge_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/metrics"
)

var operatorsAt = regexp.MustCompile(`msg="serving operators" addr=\S+:(\d+)`)

// startWithAdmin starts an edge with an admin listener on listen, and returns the port of that listener.
func startWithAdmin(t *testing.T, listen string, change func(*edge.Config)) (url, port string) {
	t.Helper()
	return startWithAdminLogging(t, new(logtest.Log), listen, change)
}

// startWithAdminLogging is startWithAdmin with a log.
func startWithAdminLogging(t *testing.T, logs *logtest.Log, listen string, change func(*edge.Config)) (url, port string) {
	t.Helper()
	m, err := metrics.New("api-service")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(t.Context()) })
	url, _ = startLogging(t, logs, func(c *edge.Config) {
		c.Admin.Listen, c.Metrics = listen, m
		if change != nil {
			change(c)
		}
	})
	polltest.Eventually(t, "the edge has an admin listener", func() bool {
		at := operatorsAt.FindStringSubmatch(logs.String())
		if at != nil {
			port = at[1]
		}
		return at != nil
	})
	return url, port
}

// A probe is a request and the status that it must have.
type probe struct {
	method, path, key string
	want              int
}

func (p probe) check(t *testing.T, url string) {
	t.Helper()
	wantStatus(t, p.method, url+p.path, asking("start m end x"), p.key, p.want)
}

// TestOperatorsHaveAListenerOfTheirOwn: with an admin listener on loopback, it serves metrics, profiles, all streams,
// workers and the console to everybody who reaches it, and the public listener serves tenants alone.
func TestOperatorsHaveAListenerOfTheirOwn(t *testing.T) {
	keyed := keyFile(t, twoTenants)
	url, port := startWithAdmin(t, "127.0.0.1:0", keyed)
	admin := "http://127.0.0.1:" + port
	mine, yours := plainStream(t, url, bearer("me")...), plainStream(t, url, bearer("you")...)
	for _, p := range []probe{
		{"GET", "/healthz", "", 200}, {"GET", "/", "", 401}, {"GET", "/", "me", 404}, {"GET", "/assets/app.js", "me", 404},
		{"GET", "/metrics", "", 401}, {"GET", "/metrics", "me", 404}, {"GET", "/debug/pprof/heap", "me", 404},
		{"GET", "/v1/workers", "", 401}, {"GET", "/v1/workers", "me", 403}, {"GET", "/v1/streams", "", 401},
		{"GET", "/v1/streams/" + mine, "me", 200}, {"GET", "/v1/streams/" + yours, "me", 404}, {"DELETE", "/v1/streams/" + yours, "me", 404},
	} {
		p.check(t, url)
	}
	list := whole(t, ask(t, "GET", url+"/v1/streams", "", bearer("me")...))
	wantListed(t, "me", list, mine, true)
	wantListed(t, "me", list, yours, false)

	for _, p := range []probe{
		{"GET", "/healthz", "", 200}, {"GET", "/readyz", "", 503}, {"HEAD", "/healthz", "", 200}, {"GET", "/", "", 200}, {"GET", "/assets/app.js", "", 200},
		{"GET", "/debug/pprof/heap", "", 200}, {"GET", "/debug/pprof/", "", 200}, {"GET", "/debug/pprof/cmdline", "", 404},
		{"GET", "/v1/workers", "", 200}, {"GET", "/v1/models", "", 200}, {"GET", "/v1/streams/" + yours, "", 200},
		{"GET", "/v1/streams", "stranger", 401},                                                // no key is needed, but a wrong one is a mistake
		{"POST", "/v1/chat/completions", "", 403}, {"POST", "/v1/chat/completions", "me", 200}, // the console chats with an API key
		{"POST", "/v1/streams", "", 403}, {"POST", "/v1/streams", "me", 201}, {"GET", "/v1/streams/" + mine + "/events", "me", 410}, // it was not kept
		{"POST", "/v1/messages", "me", 404},
		{"DELETE", "/v1/streams/" + yours, "", 202}, {"DELETE", "/v1/streams/" + mine, "you", 202}, // which does not take the operator's rights away
	} {
		p.check(t, admin)
	}
	list = whole(t, ask(t, "GET", admin+"/v1/streams", "", bearer("me")...))
	if all := whole(t, ask(t, "GET", admin+"/v1/streams?state=ended", "")); !strings.Contains(list+all, mine) || !strings.Contains(list+all, yours) {
		t.Errorf("the lists of the operator lack a stream: %s %s", list, all)
	}
	if scrape := whole(t, ask(t, "GET", admin+"/metrics", "")); !strings.Contains(scrape, `whence_requests_refused_total{hop="api-service",reason="unauthenticated"}`) {
		t.Errorf("the metrics lack the refusals: %.500s", scrape)
	}
}

// TestAdminListenerTakesTheOperatorsKey: where there is an operator's key, the admin listener takes it for everything but
// health and the files of the console, and the public listener does not know it.
func TestAdminListenerTakesTheOperatorsKey(t *testing.T) {
	keyed := keyFile(t, twoTenants)
	url, port := startWithAdmin(t, "0.0.0.0:0", func(c *edge.Config) { keyed(c); c.OperatorKey = "op" })
	for _, p := range []probe{
		{"GET", "/v1/streams", "op", 401}, {"GET", "/v1/workers", "op", 401}, {"GET", "/v1/streams", "me", 200}, {"GET", "/v1/workers", "me", 403},
	} {
		p.check(t, url)
	}
	for _, p := range []probe{
		{"GET", "/healthz", "", 200}, {"GET", "/", "", 200},
		{"GET", "/metrics", "", 401}, {"GET", "/metrics", "me", 401}, {"GET", "/metrics", "op", 200},
		{"GET", "/debug/pprof/heap", "", 401}, {"GET", "/debug/pprof/heap", "op", 200},
		{"GET", "/v1/streams", "", 401}, {"GET", "/v1/streams", "me", 401}, {"GET", "/v1/streams", "op", 200},
		{"GET", "/v1/workers", "me", 401}, {"GET", "/v1/workers", "op", 200}, {"POST", "/v1/chat/completions", "op", 403},
	} {
		p.check(t, "http://127.0.0.1:"+port)
	}
}

// TestAnAdminListenerClosesThePublicLists: without any keys, too.
func TestAnAdminListenerClosesThePublicLists(t *testing.T) {
	url, port := startWithAdmin(t, "127.0.0.1:0", nil)
	mine := plainStream(t, url, bearer("me")...)
	for _, p := range []probe{
		{"GET", "/v1/streams", "", 401}, {"GET", "/v1/workers", "", 403}, {"GET", "/v1/streams/" + mine, "", 404}, {"GET", "/v1/streams/" + mine, "me", 200},
		{"POST", "/v1/chat/completions", "", 200},
	} {
		p.check(t, url)
	}
	wantListed(t, "you", whole(t, ask(t, "GET", url+"/v1/streams", "", bearer("you")...)), mine, false)
	wantListed(t, "", whole(t, ask(t, "GET", "http://127.0.0.1:"+port+"/v1/streams", "")), mine, true)
}

// TestConsoleCanBeSwitchedOff: on either listener.
func TestConsoleCanBeSwitchedOff(t *testing.T) {
	hidden := func(c *edge.Config) { c.Admin.NoConsole = true }
	url, _ := start(t, hidden)
	beside, port := startWithAdmin(t, "127.0.0.1:0", hidden)
	for _, at := range []string{url, beside, "http://127.0.0.1:" + port} {
		for _, path := range []string{"/", "/assets/app.js", "/favicon.ico"} {
			probe{"GET", path, "", 404}.check(t, at)
		}
		probe{"GET", "/v1/models", "", 200}.check(t, at)
	}
}

// TestAdminListenerUsesTLSBeyondLoopback: the operator's key does not cross a network in plain text where there is a
// certificate.
func TestAdminListenerUsesTLSBeyondLoopback(t *testing.T) {
	cert, key, roots := writeCertificate(t)
	_, port := startWithAdmin(t, "0.0.0.0:0", func(c *edge.Config) { c.TLS.Cert, c.TLS.Key, c.OperatorKey = cert, key, "op" })
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:"+port+"/v1/streams", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer op")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if body := whole(t, resp); resp.StatusCode != http.StatusOK {
		t.Error(resp.StatusCode, body)
	}
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(polltest.Patience))
	_, _ = io.WriteString(conn, "GET /v1/streams HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer op\r\n\r\n")
	if answer, _ := io.ReadAll(conn); strings.Contains(string(answer), " 200 ") {
		t.Errorf("the admin listener answers plain HTTP: %s", answer)
	}
}

// TestAdminListenerBeyondLoopbackNeedsAKey: without the operator's key, the edge does not start.
func TestAdminListenerBeyondLoopbackNeedsAKey(t *testing.T) {
	for listen, needs := range map[string]bool{"127.0.0.1:0": false, "[::1]:0": false, "localhost:0": false, "0.0.0.0:0": true, ":0": true, "[::]:0": true, "192.0.2.1:9090": true} {
		for _, key := range []string{"", "op"} {
			c := edge.Config{Chat: "127.0.0.1:1", MaxBody: 1, MaxStreams: 1, ReadTimeout: 1, WriteTimeout: 1, HeadersAfter: 1, OperatorKey: key}
			c.Admin.Listen = listen
			err := c.Validate()
			if refused := needs && key == ""; refused != (err != nil) || refused && !strings.Contains(err.Error(), "--operator-key") {
				t.Errorf("--admin-listen %s with the operator's key %q: %v", listen, key, err)
			}
		}
	}
}

// TestAdminListenerIsNotForPagesOfOtherOrigins: also not for those that --cors-origin lets use the public listener.
func TestAdminListenerIsNotForPagesOfOtherOrigins(t *testing.T) {
	const friend = "https://app.example"
	url, port := startWithAdmin(t, "127.0.0.1:0", func(c *edge.Config) { c.Origins = []string{friend} })
	for at, want := range map[string]string{url: friend, "http://127.0.0.1:" + port: ""} {
		for _, method := range []string{http.MethodGet, http.MethodOptions} {
			resp := ask(t, method, at+"/v1/streams", "", "Origin", friend, "Access-Control-Request-Method", "DELETE")
			whole(t, resp)
			if got := resp.Header.Get("Access-Control-Allow-Origin"); got != want || want == "" && resp.Header.Get("Access-Control-Allow-Methods") != "" {
				t.Errorf("%s %s allows the origin %q, want %q: %v", method, at, got, want, resp.Header)
			}
		}
	}
}

// TestAdminListenerBoundsConnections: with and without TLS. Without TLS, beyond loopback, the log has a warning.
func TestAdminListenerBoundsConnections(t *testing.T) {
	cert, key, roots := writeCertificate(t)
	for name, c := range map[string]struct {
		listen  string
		change  func(*edge.Config)
		secure  *tls.Config
		warning bool
	}{
		"on loopback":     {"127.0.0.1:0", nil, nil, false},
		"beyond loopback": {"0.0.0.0:0", func(c *edge.Config) { c.OperatorKey = "op" }, nil, true},
		"over TLS":        {"0.0.0.0:0", func(c *edge.Config) { c.TLS.Cert, c.TLS.Key, c.OperatorKey = cert, key, "op" }, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}, false},
	} {
		t.Run(name, func(t *testing.T) {
			logs := new(logtest.Log)
			_, port := startWithAdminLogging(t, logs, c.listen, c.change)
			open, most := 0, 300
			for open < most {
				if _, err := opened(t, "127.0.0.1:"+port, c.secure); err != nil {
					break
				}
				open++
			}
			if open == 0 || open == most {
				t.Errorf("%d connections are open", open)
			}
			if got := strings.Contains(logs.String(), "clear text"); got != c.warning {
				t.Errorf("the log has the warning: %t, want %t", got, c.warning)
			}
		})
	}
}

// TestPoolMetricsNeedNoKey: on the public listener alone, and only if they are asked for. The admin
// listener still has all metrics.
func TestPoolMetricsNeedNoKey(t *testing.T) {
	keyed := keyFile(t, twoTenants)
	url, port := startWithAdmin(t, "127.0.0.1:0", func(c *edge.Config) {
		keyed(c)
		c.PoolMetrics = true
	})
	if text := whole(t, ask(t, "GET", url+"/metrics", "")); !strings.Contains(text, "vllm:num_requests_waiting 0") || strings.Contains(text, "whence_") {
		t.Error(text)
	}
	if text := whole(t, ask(t, "GET", "http://127.0.0.1:"+port+"/metrics", "")); !strings.Contains(text, "whence_streams_live") {
		t.Error(text)
	}
	probe{"GET", "/v1/models", "", 401}.check(t, url)
}
