package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// proxies are common proxies in front of api-service. start starts the proxy in front of w, and
// returns w through it.
var proxies = []struct {
	name  string
	start func(t *testing.T, w *whence) *whence
}{
	{"nginx", func(t *testing.T, w *whence) *whence { return w.through(nginx(t, w.api, "include whence.conf;")) }},
	// nginx's defaults: HTTP/1.0, a connection for each request, and buffers.
	{"nginx, plain", func(t *testing.T, w *whence) *whence {
		return w.through(nginx(t, w.api, "location / { proxy_pass http://whence; }"))
	}},
	{"haproxy", func(t *testing.T, w *whence) *whence { return w.through(haproxy(t, w.api)) }},
	{"caddy", func(t *testing.T, w *whence) *whence {
		addr := freeAddr(t)
		caddy(t, w.api, "http://"+addr, "")
		return w.through(addr)
	}},
	{"caddy, HTTP/2", caddyTLS},
}

// through returns w through a proxy at addr.
func (w *whence) through(addr string) *whence {
	p := *w
	p.api = addr
	return &p
}

// nginx starts nginx with a server block.
func nginx(t *testing.T, api, server string) string {
	t.Helper()
	dir, addr := t.TempDir(), freeAddr(t)
	snippet, err := os.ReadFile("../deploy/nginx/whence.conf")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`
daemon off; worker_processes 1; pid nginx.pid; error_log stderr;
events {}
http {
	access_log off;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	upstream whence { server %s; keepalive 4; }
	server { listen %s; %s }
}`, api, addr, server)
	for name, text := range map[string]string{"whence.conf": string(snippet), "nginx.conf": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	startFile(t, "nginx", tool(t, "nginx", "/usr/sbin/nginx"), "-p", dir, "-c", "nginx.conf", "-e", "stderr")
	return addr
}

func haproxy(t *testing.T, api string) string {
	t.Helper()
	addr := freeAddr(t)
	p := startFile(t, "haproxy", tool(t, "env"), "WHENCE_BIND="+addr, "WHENCE_API="+api, tool(t, "haproxy", "/usr/sbin/haproxy"), "-q", "-db", "-f", "../deploy/haproxy/whence.cfg")
	t.Cleanup(func() { p.kill(t) }) // SIGTERM's status would not be 0
	return addr
}

// caddy starts Caddy with a site that has our snippet, and more.
func caddy(t *testing.T, api, site, more string) {
	t.Helper()
	dir := t.TempDir()
	snippet, err := filepath.Abs("../deploy/caddy/whence.caddy")
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("{\n\tadmin off\n\tauto_https disable_redirects\n}\n%s {\n\t%s\n\timport %s\n}\n", site, more, snippet)
	file := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	startFile(t, "caddy", tool(t, "env"), "WHENCE_API="+api, "HOME="+dir, tool(t, "caddy"), "run", "--config", file, "--adapter", "caddyfile")
}

func caddyTLS(t *testing.T, w *whence) *whence {
	t.Helper()
	addr := freeAddr(t)
	pair, roots := newCertificate(t)
	caddy(t, w.api, "https://"+addr, fmt.Sprintf("tls %s %s", pair.Cert, pair.Key))
	return w.secured(t, addr, roots, true)
}

// TestProxiesPassTokensAndDepartures: through each proxy the answer is the same, tokens arrive one
// by one while the stream runs, and the engine stops when the client leaves.
func TestProxiesPassTokensAndDepartures(t *testing.T) {
	t.Parallel()
	for _, p := range proxies {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			direct := run(t, separate, flags{api: []string{"--trust-forwarded"}, worker: []string{"--pace", "40"}})
			want := direct.answer(t, greedy("What is 2 + 3?"))
			w := p.start(t, direct)
			w.ready(t)
			if got := w.open(t, greedy("What is 2 + 3?")).completed(t); got != want {
				t.Errorf("a stream is %q, want %q", got, want)
			}
			if got := w.answer(t, greedy("What is 2 + 3?")); got != want {
				t.Errorf("a whole answer is %q, want %q", got, want)
			}
			l := w.open(t, greedy(long)).begun(t)
			if s := direct.why(t, l.id); s.State != "live" {
				t.Errorf("at the first text the stream was %s", s.State)
			} else if p.name != "nginx, plain" && !strings.HasPrefix(s.Hops[0].Peer, "127.0.0.1") {
				t.Errorf("the client's address is %q", s.Hops[0].Peer)
			}
			l.close()
			w.idle(t)
			w.clientGone(t, l.id)
			if w.tls {
				return // its certificate is no public one
			}
			out, _, status := output(t, "whence doctor", "--url", "http://"+w.api)
			for _, want := range []string{"ok       answer ", "ok       leave      client_gone along client > api-service; the engine had stopped ", "ok       resume "} {
				if status != 0 || !strings.Contains(out, want) {
					t.Errorf("doctor: status %d, no %q in\n%s", status, want, out)
				}
			}
		})
	}
}
