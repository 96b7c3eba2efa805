package connection_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/common/config"
	"github.com/cloudwego/hertz/pkg/protocol"
	"github.com/cloudwego/hertz/pkg/route"

	"github.com/whence-dev/whence/api-service/connection"
	"github.com/whence-dev/whence/internal/coarse"
)

// The times of the server in stories; they pass in virtual time.
const (
	arrival = 30 * time.Second
	idle    = 2 * time.Minute
	write   = 20 * time.Second
)

// A stand is a server with a client on a connection in memory.
type stand struct {
	server *connection.Server
	client client
	in     *bufio.Reader // of the client
	over   chan struct{} // closed when the server has closed the connection
	bodies chan string   // the bodies that handlers have read, or the errors
	left   chan struct{} // receives a value when a handler's client has left
	taken  chan connection.Exchange
	given  chan connection.Exchange // all that were taken
	room   chan struct{}            // receives a value when one of them has room
}

// play plays a story in virtual time, plain and over TLS. The routes are /echo, which answers with the
// body of the request, /large with a large answer, /take, whose answer is left to the story, and /refuse,
// which reads nothing.
func play(t *testing.T, story func(t *testing.T, s *stand)) {
	t.Helper()
	own, theirs := certified(t)
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStand()
				server, end := newPipe()
				if s.client = end; secure {
					s.server.TLS = own
					s.client = secureClient{tls.Client(end, theirs), end}
				}
				s.in = bufio.NewReader(s.client)
				defer s.serve(server, end)()
				story(t, s)
			})
		})
	}
}

// certified returns the configurations of TLS for a server and its clients.
func certified(t *testing.T) (own, theirs *tls.Config) {
	t.Helper()
	protocol.ServerDateOnce.Do(protocol.UpdateServerDate) // its goroutine never ends, so it must be outside of the bubble
	lender := httptest.NewTLSServer(http.NotFoundHandler())
	defer lender.Close()
	roots := x509.NewCertPool()
	roots.AddCert(lender.Certificate())
	return &tls.Config{Certificates: lender.TLS.Certificates, MinVersion: tls.VersionTLS12},
		&tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
}

// serve serves a connection. end breaks it, and waits until nothing is left of the story.
func (s *stand) serve(server *pipe, client clientEnd) (end func()) {
	go func() {
		defer close(s.over)
		s.server.ServeStream(server)
	}()
	return func() {
		client.Reset()
		synctest.Wait()
		for len(s.given) > 0 {
			(<-s.given).Free(true)
		}
		<-s.over
		time.Sleep(time.Hour) // the goroutines of the story end
	}
}

func newStand() *stand {
	options := config.NewOptions(nil)
	options.DisablePrintRoute = true
	s := &stand{
		server: &connection.Server{Engine: route.NewEngine(options), Arrival: arrival, Idle: idle, Write: write, Clock: new(coarse.Clock)},
		over:   make(chan struct{}), bodies: make(chan string, 100), left: make(chan struct{}, 100),
		taken: make(chan connection.Exchange, 100), given: make(chan connection.Exchange, 100), room: make(chan struct{}, 100),
	}
	s.server.Engine.Any("/echo", s.echo)
	s.server.Engine.Any("/large", func(_ context.Context, c *app.RequestContext) { c.String(http.StatusOK, strings.Repeat("x", 1<<20)) })
	s.server.Engine.Any("/take", func(ctx context.Context, c *app.RequestContext) {
		connection.AfterLeft(ctx, func() { s.left <- struct{}{} })
		x := connection.Of(c)
		x.Take(func() { s.room <- struct{}{} })
		s.taken <- x
		s.given <- x
	})
	s.server.Engine.Any("/refuse", func(_ context.Context, c *app.RequestContext) { c.String(http.StatusForbidden, "no") })
	return s
}

func (s *stand) echo(_ context.Context, c *app.RequestContext) {
	body, err := io.ReadAll(connection.BodyOf(c))
	if err != nil {
		s.bodies <- err.Error()
		status := http.StatusBadRequest
		if errors.Is(err, os.ErrDeadlineExceeded) {
			status = http.StatusRequestTimeout
		}
		c.SetStatusCode(status)
		return
	}
	s.bodies <- string(body)
	c.String(http.StatusOK, string(body))
}

// say sends text.
func (s *stand) say(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(s.client, text); err != nil {
		t.Fatal(err)
	}
}

// hear reads an answer, and returns its status and body.
func (s *stand) hear(t *testing.T) (status int, body string, closes bool) {
	t.Helper()
	resp, err := http.ReadResponse(s.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Close
}

// wants reads an answer with a status and a body.
func (s *stand) wants(t *testing.T, status int, body string) {
	t.Helper()
	if gotStatus, got, _ := s.hear(t); gotStatus != status || got != body {
		t.Fatalf("%d %.100q, want %d %.100q", gotStatus, got, status, body)
	}
}

// ends checks that the server ends what it sends, and when.
func (s *stand) ends(t *testing.T, after time.Duration, want error) {
	t.Helper()
	begun := time.Now()
	_, err := s.in.ReadByte()
	if took := time.Since(begun); !errors.Is(err, want) || took < after || took > after+after/8 {
		t.Fatalf("%v after %v, want %v after %v", err, took, want, after)
	}
}

// asking returns a request with a body.
func asking(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

const get = "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"
