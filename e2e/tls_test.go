package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/rpc/mtls/mtlstest"
)

// newCertificate issues a certificate for loopback, and returns the roots of its clients.
func newCertificate(t *testing.T) (mtlstest.Pair, *x509.CertPool) {
	t.Helper()
	p := mtlstest.NewPair(t)
	return p, issue(t, p)
}

// issue writes a certificate of a new authority to files, and returns the roots of its clients.
func issue(t *testing.T, p mtlstest.Pair) *x509.CertPool {
	t.Helper()
	a := mtlstest.NewAuthority(t)
	a.Issue(t, p)
	return a.Pool()
}

// secured returns w through an api-service with TLS.
func (w *whence) secured(t *testing.T, api string, roots *x509.CertPool, h2 bool) *whence {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: h2, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!h2)
	transport.Protocols.SetHTTP2(h2)
	t.Cleanup(transport.CloseIdleConnections)
	s := *w
	s.api, s.tls, s.http = api, true, &http.Client{Transport: transport}
	return &s
}

func TestTLSStreamsStopsAndRenews(t *testing.T) {
	t.Parallel()
	w := run(t, separate, flags{worker: []string{"--pace", "200"}})
	pair, roots := newCertificate(t)
	p := service(t, apiService, "127.0.0.1:0", []string{"--chat", w.chat, "--name", "api-service/tls", "--tls-cert", pair.Cert, "--tls-key", pair.Key})
	api := p.listening(t)
	want := w.answer(t, greedy(short))
	for _, h2 := range []bool{false, true} {
		s := w.secured(t, api, roots, h2)
		s.ready(t)
		if got := s.answer(t, greedy(short)); got != want {
			t.Errorf("HTTP/2 %t: a whole answer is %q, want %q", h2, got, want)
		}
		var wg sync.WaitGroup
		for range 30 { // a truncated answer has no [DONE]
			l := s.open(t, greedy(short))
			wg.Go(func() {
				if e := l.rest(t); !e.done || e.text.String() != want {
					t.Errorf("HTTP/2 %t: a stream is %q, [DONE] %t", h2, e.text.String(), e.done)
				}
			})
		}
		wg.Wait()
		l := s.open(t, greedy(long)).begun(t)
		if proto := l.resp.ProtoMajor; (proto == 2) != h2 {
			t.Errorf("HTTP/2 %t: the response is HTTP/%d", h2, proto)
		}
		l.close()
		w.idle(t)
		r := w.ended(t, "llm-worker/0", l.id)
		if want := "client > api-service/tls > chat-service > llm-worker/0"; r.Reason != "client_gone" || r.Path != want {
			t.Errorf("HTTP/2 %t: the worker logged reason %s, path %q", h2, r.Reason, r.Path)
		}
		failed := s.open(t, greedy(long)).begun(t)
		w.cancel(t, w.api, failed.id)
		if e := failed.failed(t); e.reason() != "user_stop" {
			t.Errorf("HTTP/2 %t: a stopped stream ends with %s", h2, e.reason())
		}
	}

	renewed := issue(t, pair)
	polltest.Eventually(t, "the new certificate is served", func() bool {
		resp, err := w.secured(t, api, renewed, true).http.Get(fmt.Sprintf("https://%s/healthz", api))
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return true
	})
	if resp, err := w.http.Get("http://" + api + "/healthz"); err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("plain HTTP is answered on the TLS port")
		}
	}
}

func TestKilledEdgeBehindTLSNeverLooksLikeAnEnd(t *testing.T) {
	t.Parallel()
	w := run(t, separate, flags{worker: []string{"--pace", "40"}})
	pair, roots := newCertificate(t)
	p := service(t, apiService, "127.0.0.1:0", []string{"--chat", w.chat, "--tls-cert", pair.Cert, "--tls-key", pair.Key})
	s := w.secured(t, p.listening(t), roots, true)
	l := s.open(t, greedy(long)).begun(t)
	p.kill(t)
	for {
		if _, err := l.next(); err != nil {
			break
		}
	}
	if l.done || l.finish != "" {
		t.Error("the stream claims to be complete")
	}
	w.idle(t)
}

// TestTheWholePathServesTLS: `whence` takes the certificate that api-service takes, prints https
// addresses, and a client that leaves over HTTP/2 still stops the engine.
func TestTheWholePathServesTLS(t *testing.T) {
	t.Parallel()
	pair, roots := newCertificate(t)
	p := service(t, "whence", "127.0.0.1:0", []string{
		"--chat-listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0", "--pace", "40", "--tls-cert", pair.Cert, "--tls-key", pair.Key,
	})
	w := &whence{topology: allInOne, processes: map[string]*process{apiService: p, chatService: p, llmWorker: p}}
	w = w.secured(t, p.listening(t), roots, true)
	w.chat, w.worker = p.greeting(t)
	if out := p.Out.String(); !strings.Contains(out, " on https://"+w.api+":") || !strings.Contains(out, "curl -N https://"+w.api+"/v1/") || strings.Contains(out, "http://") {
		t.Errorf("the greeting does not have the address with https:\n%s", out)
	}
	l := w.open(t, greedy(long)).begun(t)
	if l.resp.ProtoMajor != 2 {
		t.Errorf("the response is HTTP/%d", l.resp.ProtoMajor)
	}
	l.close()
	w.clientGone(t, l.id)

	out, errs, status := output(t, "whence", "serve", "--tls-cert", pair.Cert)
	if status != 2 || !strings.Contains(errs, "--tls-cert and --tls-key must be given together") {
		t.Errorf("a certificate without its key: status %d, %s%s", status, out, errs)
	}
}
