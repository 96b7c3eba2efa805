package overhttp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/whence-dev/whence/internal/polltest"
)

// A peer is a server that writes what a test wants.
type peer struct {
	url      string
	conns    atomic.Int32 // that were accepted
	requests atomic.Int32
}

// newPeer starts a server. play writes the response to each request: the number request on the
// number conn, both from 1. The connection is closed when play returns false.
func newPeer(t *testing.T, play func(nc net.Conn, conn, request int) (more bool)) *peer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{url: "http://" + ln.Addr().String()}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, nc)
			mu.Unlock()
			conn := int(p.conns.Add(1))
			wg.Go(func() {
				defer func() { _ = nc.Close() }()
				r := bufio.NewReader(nc)
				for n := 1; ; n++ {
					req, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					p.requests.Add(1)
					if !play(nc, conn, n) {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for _, nc := range open {
			_ = nc.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return p
}

const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"

// chunked returns a whole response of these events.
func chunked(events ...string) string {
	b := head + "Transfer-Encoding: chunked\r\n\r\n"
	for _, event := range events {
		b += chunk("data: " + event + "\n\n")
	}
	return b + "0\r\n\r\n"
}

func chunk(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }

// ask reads a stream until [DONE], releases its connection, and returns the other events.
func ask(c *Client) (events []string, err error) {
	s := c.Stream("/v1/completions", []byte(`{}`), 3)
	if err := s.Open(context.Background()); err != nil {
		return nil, err
	}
	for {
		data, err := s.Next()
		switch {
		case err != nil:
			s.HangUp()
			return events, err
		case string(data) == Done:
			s.wire.release()
			s.HangUp() // does nothing
			return events, nil
		}
		events = append(events, string(data))
	}
}

// settled waits until no response is drained, and returns the number of idle connections.
func (c *Client) settled(t *testing.T) (idle int) {
	t.Helper()
	polltest.Eventually(t, "the responses are read to their ends", func() bool {
		c.idle.mu.Lock()
		defer c.idle.mu.Unlock()
		idle = len(c.idle.idle)
		return len(c.idle.draining) == 0
	})
	return idle
}

func newClient(t *testing.T, url string) *Client {
	t.Helper()
	c := New(url, "")
	t.Cleanup(c.Close)
	return c
}
