package overhttp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/internal/nowait"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestConnectionOfACompleteAnswerIsUsedAgain covers the framings and habits that allow it.
func TestConnectionOfACompleteAnswerIsUsedAgain(t *testing.T) {
	body := "data: 1\n\ndata: [DONE]\n\n"
	for name, response := range map[string]string{
		"chunks":                      chunked("1", Done),
		"a length":                    head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body,
		"more behind [DONE]":          chunked("1", Done, "2"),
		"trailers":                    strings.TrimSuffix(chunked("1", Done), "\r\n") + "X-Took: 7\r\n\r\n",
		"HTTP/1.0 that is kept alive": strings.Replace(head, "1.1", "1.0", 1) + fmt.Sprintf("Connection: keep-alive\r\nContent-Length: %d\r\n\r\n", len(body)) + body,
		"informational responses":     "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + chunked("1", Done),
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, func(nc net.Conn, _, _ int) bool {
				_, err := io.WriteString(nc, response)
				return err == nil
			})
			c := newClient(t, p.url)
			for i := range 3 {
				if events, err := ask(c); err != nil || len(events) != 1 || events[0] != "1" {
					t.Fatal(i, events, err)
				}
				if idle := c.settled(t); idle != 1 {
					t.Fatalf("after the answer, %d connections are idle", idle)
				}
			}
			if n := p.conns.Load(); n != 1 {
				t.Errorf("3 requests took %d connections", n)
			}
		})
	}
}

// TestOtherExchangesUseConnectionsAgain covers probes, refusals and answers of one object.
func TestOtherExchangesUseConnectionsAgain(t *testing.T) {
	p := newPeer(t, func(nc net.Conn, _, _ int) bool {
		_, err := io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{} ")
		return err == nil
	})
	c := newClient(t, p.url)
	for what, call := range map[string]func() error{
		"a GET":  func() error { var into struct{}; return c.Get(t.Context(), "/", &into) },
		"a POST": func() error { return c.Post(t.Context(), "/", []byte("{}")) },
		"an exchange": func() error {
			var into struct{}
			return c.Exchange("/", []byte("{}"), 100).Do(t.Context(), &into)
		},
		"a refusal": func() error {
			_, err := ask(c) // the response is no stream
			if errors.Is(err, streamerr.EngineFailed) {
				return nil
			}
			return fmt.Errorf("the stream ended with %w", err)
		},
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if idle := c.settled(t); idle != 1 {
			t.Fatalf("after %s, %d connections are idle", what, idle)
		}
	}
	if n := p.conns.Load(); n != 1 {
		t.Errorf("4 requests took %d connections", n)
	}
}

// TestConnectionThatMayHoldOtherBytesIsClosed: the next request has a connection of its own, and never
// reads bytes of an older answer.
func TestConnectionThatMayHoldOtherBytesIsClosed(t *testing.T) {
	body := "data: 1\n\ndata: [DONE]\n\n"
	for name, response := range map[string]string{
		"HTTP/1.0":                     strings.Replace(head, "1.1", "1.0", 1) + "\r\n" + body,
		"neither length nor chunks":    head + "\r\n" + body,
		"Connection: close":            strings.Replace(chunked("1", Done), "\r\n", "\r\nConnection: close\r\n", 1),
		"a second response":            chunked("1", Done) + chunked("2", Done),
		"garbage behind the last one":  chunked("1", Done) + "\r\n",
		"a response of two":            head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body + chunked("2", Done),
		"much behind [DONE]":           chunked("1", Done, strings.Repeat("x", 16*maxRest)),
		"a wrong chunk behind [DONE]":  strings.TrimSuffix(chunked("1", Done), "0\r\n\r\n") + "x\r\n\r\n",
		"an upgrade behind the answer": chunked("1", Done) + "HTTP/1.1 101 Switching Protocols\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, func(nc net.Conn, conn, _ int) bool {
				if conn > 1 {
					_, err := io.WriteString(nc, chunked("3", Done))
					return err == nil
				}
				_, err := io.WriteString(nc, response)
				return err == nil
			})
			c := newClient(t, p.url)
			if events, err := ask(c); err != nil || len(events) != 1 || events[0] != "1" {
				t.Fatal(events, err)
			}
			if idle := c.settled(t); idle != 0 {
				t.Error("the connection is kept")
			}
			if events, err := ask(c); err != nil || len(events) != 1 || events[0] != "3" || p.conns.Load() != 2 {
				t.Error(events, err, p.conns.Load())
			}
		})
	}
}

// TestConnectionThatTalksWhileItIsIdleIsClosed: a server that answers what it will be asked, or that it
// closes idle connections, is not believed.
func TestConnectionThatTalksWhileItIsIdleIsClosed(t *testing.T) {
	for name, early := range map[string]string{"an early response": chunked("2", Done), "the end": ""} {
		t.Run(name, func(t *testing.T) {
			idle := make(chan struct{})
			p := newPeer(t, func(nc net.Conn, conn, _ int) bool {
				if conn > 1 {
					_, _ = io.WriteString(nc, chunked("3", Done))
					return true
				}
				_, _ = io.WriteString(nc, chunked("1", Done))
				<-idle
				_, _ = io.WriteString(nc, early)
				return early != ""
			})
			c := newClient(t, p.url)
			if _, err := ask(c); err != nil || c.settled(t) != 1 {
				t.Fatal(err)
			}
			close(idle)
			tcp := c.idle.idle[0].tcp
			polltest.Eventually(t, "bytes from the peer", func() bool { return !nowait.Silent(tcp) })
			if events, err := ask(c); err != nil || len(events) != 1 || events[0] != "3" || p.conns.Load() != 2 {
				t.Error(events, err, p.conns.Load())
			}
		})
	}
}

// TestRequestOnAClosedConnectionIsRepeatedOnce: only if the connection had been used before, and no byte of
// the response had come.
func TestRequestOnAClosedConnectionIsRepeatedOnce(t *testing.T) {
	for name, test := range map[string]struct {
		first    bool   // the first request on a connection is answered
		says     string // to the others, before it closes the connection
		requests int32
		err      error
	}{
		"an idle one":              {true, "", 3, nil},
		"that began to answer":     {true, "H", 2, streamerr.Unavailable},
		"that began to say 100":    {true, "HTTP/1.1 100 Continue\r\n\r\n", 2, streamerr.Unavailable},
		"that answered in part":    {true, strings.TrimSuffix(chunked("2"), "0\r\n\r\n"), 2, streamerr.PeerLost},
		"a new one":                {false, "", 1, streamerr.Unavailable},
		"a new one that says much": {false, "H", 1, streamerr.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t, func(nc net.Conn, _, request int) bool {
				if request == 1 && test.first {
					_, _ = io.WriteString(nc, chunked("1", Done))
					return true
				}
				_, _ = io.WriteString(nc, test.says)
				return false
			})
			c := newClient(t, p.url)
			if test.first {
				if _, err := ask(c); err != nil || c.settled(t) != 1 {
					t.Fatal(err)
				}
			}
			if _, err := ask(c); !errors.Is(err, test.err) || err != nil && test.err == nil {
				t.Errorf("the request ended with %v, want %v", err, test.err)
			}
			if n := p.requests.Load(); n != test.requests {
				t.Errorf("the server got %d requests, want %d", n, test.requests)
			}
		})
	}
}

// TestRepeatedRequestIsNotRepeatedAgain: however many connections were idle, a request that makes the server
// close the connection is sent twice.
func TestRepeatedRequestIsNotRepeatedAgain(t *testing.T) {
	const idle = 5
	var poison atomic.Bool
	all := make(chan struct{})
	p := newPeer(t, func(nc net.Conn, conn, _ int) bool {
		if poison.Load() {
			return false
		}
		if conn == idle {
			close(all)
		}
		<-all
		_, _ = io.WriteString(nc, chunked("1", Done))
		return true
	})
	c := newClient(t, p.url)
	var wg sync.WaitGroup
	for range idle {
		wg.Go(func() {
			if _, err := ask(c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := c.settled(t); n != idle {
		t.Fatalf("%d connections are idle", n)
	}
	poison.Store(true)
	if _, err := ask(c); !errors.Is(err, streamerr.Unavailable) || p.requests.Load() != idle+2 {
		t.Errorf("%v after %d requests", err, p.requests.Load()-idle)
	}
}

// TestEndingDoesNotWaitForTheEndOfTheResponse: a server that holds the connection open behind [DONE] loses it
// later.
func TestEndingDoesNotWaitForTheEndOfTheResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := make(chan time.Time, 1)
		c := New("http://server", "")
		c.DialWith(func(context.Context, string, string) (net.Conn, error) {
			nc, server := net.Pipe()
			go func() {
				if req, err := http.ReadRequest(bufio.NewReader(server)); err == nil {
					_, _ = io.Copy(io.Discard, req.Body)
				}
				_, _ = io.WriteString(server, strings.TrimSuffix(chunked("1", Done), "0\r\n\r\n"))
				_, _ = server.Read(make([]byte, 1))
				lost <- time.Now()
			}()
			return nc, nil
		})
		begun := time.Now()
		for closes := range 2 {
			if _, err := ask(c); err != nil || time.Since(begun) > 0 {
				t.Errorf("the answer took %v and ended with %v", time.Since(begun), err)
			}
			wait := restWait
			if closes == 1 { // also a Close, which does not wait until the response has ended
				c.Close()
				wait = 0
			}
			if took := (<-lost).Sub(begun); took != wait {
				t.Errorf("the connection was closed after %v, want %v", took, wait)
			}
			begun = time.Now()
		}
	})
}

// TestLongRequestMayBeRefusedUnread: the response is read while the request is written, and the connection, on
// which the rest of the request is missing, is closed.
func TestLongRequestMayBeRefusedUnread(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	done := make(chan struct{})
	var server sync.WaitGroup
	server.Go(func() {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		_, _ = io.WriteString(nc, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nlong")
		<-done
	})
	c := newClient(t, "http://"+ln.Addr().String())
	s := c.Stream("/", make([]byte, 32<<20), 3)
	if err := s.Open(t.Context()); !errors.Is(err, streamerr.Invalid) || !strings.Contains(err.Error(), "long") {
		t.Error(err)
	}
	if c.settled(t) != 0 {
		t.Error("the connection is kept")
	}
	close(done)
	server.Wait()
}

func TestIdleConnectionsAreFewAndYoung(t *testing.T) {
	p := newPeer(t, func(nc net.Conn, _, _ int) bool {
		_, err := io.WriteString(nc, chunked("1", Done))
		return err == nil
	})
	c := newClient(t, p.url)
	if _, err := ask(c); err != nil || c.settled(t) != 1 {
		t.Fatal(err)
	}
	c.idle.idle[0].since = time.Now().Add(-maxIdleTime - time.Millisecond)
	if _, err := ask(c); err != nil || c.settled(t) != 1 || p.conns.Load() != 2 {
		t.Error("an old connection is used:", err, p.conns.Load())
	}
	for range maxIdle + 1 {
		nc, _ := net.Pipe()
		c.idle.put(&conn{Conn: nc, tcp: nc}, true)
	}
	if n := c.settled(t); n != maxIdle {
		t.Errorf("%d connections are idle", n)
	}
	c.Close()
	if n := c.settled(t); n != 0 {
		t.Errorf("%d connections are idle after Close", n)
	}
	if _, err := ask(c); err != nil || c.settled(t) != 0 {
		t.Error("a connection is kept after Close:", err)
	}
}
