package overhttp

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestServersOfHTTP2AreCalledOverHTTP1: a stop closes a connection of its own.
func TestServersOfHTTP2AreCalledOverHTTP1(t *testing.T) {
	var conns atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: %s\n\ndata: [DONE]\n\n", r.Proto)
	}))
	server.EnableHTTP2 = true
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()
	c := newClient(t, server.URL)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	c.Trust(roots)
	for range 3 {
		if events, err := ask(c); err != nil || len(events) != 1 || events[0] != "HTTP/1.1" {
			t.Fatal(events, err)
		}
		if c.settled(t) != 1 {
			t.Fatal("the connection is not kept")
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("3 requests took %d connections", n)
	}
}

// A batch is a connection whose writes go out together.
type batch struct {
	net.Conn
	held *bytes.Buffer // nil while writes go out at once
}

func (b *batch) Write(p []byte) (int, error) {
	if b.held != nil {
		return b.held.Write(p)
	}
	return b.Conn.Write(p)
}

// TestResponseInTheNextRecordOfTLSIsNotBelieved: TLS has read it with the answer, and nothing below shows it.
func TestResponseInTheNextRecordOfTLSIsNotBelieved(t *testing.T) {
	lender := httptest.NewTLSServer(nil) // of its certificate
	defer lender.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer ln.Close()
	wg.Go(func() {
		for conn := 1; ; conn++ {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer nc.Close()
				b := &batch{Conn: nc}
				server := tls.Server(b, &tls.Config{Certificates: lender.TLS.Certificates})
				for {
					if _, err := http.ReadRequest(bufio.NewReader(server)); err != nil {
						return
					}
					if conn > 1 {
						_, _ = io.WriteString(server, chunked("3", Done))
						continue
					}
					b.held = new(bytes.Buffer)
					_, _ = io.WriteString(server, chunked("1", Done))
					_, _ = io.WriteString(server, chunked("2", Done))
					_, _ = nc.Write(b.held.Bytes())
					b.held = nil
				}
			})
		}
	})
	c := newClient(t, "https://"+strings.Replace(ln.Addr().String(), "127.0.0.1", "localhost", 1))
	roots := x509.NewCertPool()
	roots.AddCert(lender.Certificate())
	c.Trust(roots)
	c.dialer.tls.ServerName = "example.com" // the lender's
	for _, want := range []string{"1", "3"} {
		if events, err := ask(c); err != nil || len(events) != 1 || events[0] != want {
			t.Fatal(events, err)
		}
		c.settled(t)
	}
	c.Close()
}

// TestStopAtTheEndNeverReachesAnotherRequest stops streams at random moments around their ends: a stream that
// is not stopped has its own answer, all of it.
func TestStopAtTheEndNeverReachesAnotherRequest(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range 3 {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", id)
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	defer server.Close()
	c := newClient(t, server.URL)
	var whole, stopped atomic.Int32
	var wg sync.WaitGroup
	for client := range 8 {
		wg.Go(func() {
			for i := range 100 {
				id := fmt.Sprintf("%d-%d", client, i)
				s := c.Stream("/", []byte(id), 3)
				stop := i%2 == 1
				var stopping sync.WaitGroup
				err := s.Open(context.Background())
				if err != nil {
					t.Errorf("%s: %v", id, err)
					return
				}
				for n := 0; err == nil; n++ {
					var data []byte
					if data, err = s.Next(); err != nil {
						break
					}
					if stop && n == i/2%4 {
						stopping.Go(s.HangUp)
					}
					if string(data) == Done && n == 3 {
						s.wire.release()
						break
					}
					if string(data) != id {
						t.Errorf("stream %s got %q", id, data)
					}
				}
				if stopping.Wait(); stop {
					stopped.Add(1)
				} else if err != nil {
					t.Errorf("stream %s ended with %v", id, err)
				} else {
					whole.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if whole.Load() != 400 || stopped.Load() != 400 {
		t.Error(whole.Load(), stopped.Load())
	}
}
