package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/internal/wstest"
	"github.com/whence-dev/whence/lab"
)

// withTLS has the flags of the processes that all rows over a carrier share.
var withTLS = drain(flags{worker: []string{"--pace", "100"}, api: []string{"--write-timeout", "500ms", "--max-unsent", "4096", "--client-timeout", "1s"}})

// securedRows lists the faults of the matrix over carriers with TLS. The rows over a carrier are played
// one after another against the same processes, which the last row ends.
var securedRows = []row{
	{name: "client closes its connection", over: overTLS, act: func(s *scene) *refusal {
		c := s.openSecured()
		s.fault(func() { _ = c.wire.CloseWrite(); _ = c.tcp.CloseWrite() })
		return c.untold()
	}},
	{name: "client resets its connection", over: overTLS, act: func(s *scene) *refusal {
		c := s.openSecured()
		_ = c.tcp.SetLinger(0)
		s.fault(func() { _ = c.tcp.Close() })
		return c.untold()
	}},
	{name: "client closes a request for a whole answer", over: overTLS, act: func(s *scene) *refusal {
		c := s.secured(false)
		c.request(greedy(long))
		s.busy(s.t, 1, 0)
		s.fault(func() { _ = c.wire.Close() })
		return c.untold()
	}},
	{name: "client's connection ends within a record", over: overTLS, act: func(s *scene) *refusal {
		c := s.openSecured()
		s.fault(func() { _, _ = c.tcp.Write([]byte{23, 3, 3, 1, 0, 7}); _ = c.tcp.CloseWrite() })
		return c.untold()
	}},
	{name: "client sends a stray byte and closes its connection", over: overTLS, act: func(s *scene) *refusal {
		c := s.openSecured()
		s.fault(func() { _, _ = c.wire.Write([]byte("\r")); _ = c.wire.Close() })
		return c.untold()
	}},
	{name: "client closes its WebSocket", over: []lab.Carrier{lab.Secure}, act: func(s *scene) *refusal {
		c := s.converse(wstest.Over(s.t, s.secured(false).wire, s.url("/v1/converse"), idName, s.id))
		s.fault(func() { c.Raw(wstest.CloseFrame(1001)) })
		return nil
	}},
	{name: "client resets its stream", over: []lab.Carrier{lab.HTTP2}, act: func(s *scene) *refusal {
		c := s.openSecured()
		s.fault(c.reset)
		return c.untold()
	}},
	{name: "client says GOAWAY and closes its connection", over: []lab.Carrier{lab.HTTP2}, act: func(s *scene) *refusal {
		c := s.openSecured()
		s.fault(func() {
			_ = http2.NewFramer(c.wire, nil).WriteGoAway(0, http2.ErrCodeNo, nil)
			_ = c.wire.Close()
		})
		return c.untold()
	}},
	{name: "client reads its connection, and not its stream", id: longID, over: []lab.Carrier{lab.HTTP2}, act: func(s *scene) *refusal {
		c := s.openSecured("ignore_eos", true)
		s.at = time.Now() // nobody reads the body
		polltest.Eventually(s.t, "the slow reader is cut", func() bool { return s.logged(api0) != "" })
		return c.untold()
	}},
	{name: "client reads a byte at a time", id: longID, over: overTLS, act: func(s *scene) *refusal {
		c := s.secured(true)
		c.request(greedy(long, "stream", true, "ignore_eos", true))
		c.answered()
		s.fault(c.stall)
		return s.readSlowlyFrom(c.tcp)
	}},
	{name: "client's connection goes dead", over: overTLS, act: func(s *scene) *refusal {
		c := s.openSecured()
		s.fault(func() { dropIncoming(s.t, c.tcp) })
		return nil
	}},
	{name: "DELETE of the stream", over: overTLS, act: func(s *scene) *refusal {
		c := s.openSecured()
		s.fault(func() { s.cancel(s.t, s.addrs[api0], s.id) })
		return c.live.failed(s.t)
	}},
	{name: "api-service drains", over: overTLS, act: func(s *scene) *refusal {
		c := s.openSecured()
		s.drain(api0)
		e := c.live.failed(s.t)
		s.procs[api0].exit(s.t)
		return e
	}},
}

// overTLS has the carriers with TLS.
var overTLS = []lab.Carrier{lab.Secure, lab.HTTP2}

// TestWhodunitOverTLS is TestWhodunit for clients over TLS and HTTP/2.
func TestWhodunitOverTLS(t *testing.T) {
	t.Parallel()
	for _, over := range overTLS {
		t.Run(string(over), func(t *testing.T) {
			t.Parallel()
			playTogether(t, over)
		})
	}
}

// playTogether plays the rows over a carrier against the same processes.
func playTogether(t *testing.T, over lab.Carrier) {
	t.Helper()
	rows := slices.DeleteFunc(ofCatalogue(t, securedRows, *asGateway), func(r row) bool { return !slices.Contains(r.over, over) })
	k := newTable(t, len(rows))
	traces := t.TempDir()
	var scenes []*scene
	t.Cleanup(func() { // after the processes have ended
		for i, s := range scenes {
			k.found[i].conclude(t, s)
		}
	})
	with := withTLS
	with.over, with.gateway = over, *asGateway
	shared := stage(t, "", traces, with)
	for i := range rows {
		r := &rows[i]
		s := *shared
		scenes = append(scenes, &s)
		f := k.add(r)
		t.Run(r.name, func(t *testing.T) {
			s.t, s.id = t, fmt.Sprintf("%s-%d", r.streamID(), i)
			t.Cleanup(func() { f.right = !t.Failed() })
			investigate(t, r, &s, f)
		})
	}
}

// A securedClient is a client's connection with TLS, for one request.
type securedClient struct {
	scene   *scene
	tcp     *net.TCPConn
	wire    *tls.Conn
	stalled chan struct{} // closed when the client reads nothing any more
	closed  chan struct{}
	close   func()          // closes closed
	http2   *http.Transport // nil over HTTP/1.1
	ctx     context.Context //nolint:containedctx // of the request over HTTP/2
	reset   func()          // ends the request over HTTP/2
	answers chan *http.Response
	live    *live
}

// secured opens a connection. narrow means small buffers for unread data.
func (s *scene) secured(narrow bool) *securedClient {
	s.t.Helper()
	c := &securedClient{scene: s, stalled: make(chan struct{}), closed: make(chan struct{}), answers: make(chan *http.Response, 1)}
	c.close = sync.OnceFunc(func() { close(c.closed) })
	if narrow {
		c.tcp = s.narrow().(*net.TCPConn)
	} else {
		c.tcp = s.connect(s.t)
	}
	config := s.http.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName = "127.0.0.1"
	if s.flags.over == lab.HTTP2 {
		config.NextProtos = []string{http2.NextProtoTLS}
	}
	c.wire = tls.Client(gate{c.tcp, c}, config)
	s.t.Cleanup(func() {
		c.close()
		_ = c.wire.Close()
	})
	if err := c.wire.Handshake(); err != nil {
		s.t.Fatal(err)
	}
	if s.flags.over == lab.HTTP2 {
		c.ctx, c.reset = context.WithCancel(s.t.Context())
		c.http2 = &http.Transport{
			DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return c.wire, nil },
			Protocols:      new(http.Protocols), HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10},
		}
		c.http2.Protocols.SetHTTP2(true)
	}
	return c
}

// A gate is the connection of a client that may stop reading.
type gate struct {
	*net.TCPConn
	client *securedClient
}

// Read implements net.Conn.
func (g gate) Read(b []byte) (int, error) {
	select {
	case <-g.client.stalled:
		<-g.client.closed
		return 0, net.ErrClosed
	default:
		return g.TCPConn.Read(b)
	}
}

// stall makes the client read nothing any more.
func (c *securedClient) stall() { close(c.stalled) }

// request sends the row's request.
func (c *securedClient) request(a ask) {
	s := c.scene
	s.t.Helper()
	if c.http2 == nil {
		s.ask(s.t, c.wire, a, s.id)
		return
	}
	body, err := json.Marshal(a)
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(c.ctx, http.MethodPost, s.url("/v1/chat/completions"), strings.NewReader(string(body)))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(idName, s.id)
	go func() {
		resp, _ := c.http2.RoundTrip(req)
		c.answers <- resp
	}()
}

// answered returns when the answer begins.
func (c *securedClient) answered() *live {
	s := c.scene
	s.t.Helper()
	var resp *http.Response
	var err error
	if c.http2 == nil {
		resp, err = http.ReadResponse(bufio.NewReader(c.wire), nil)
	} else {
		resp = polltest.Receive(s.t, "the answer", c.answers)
	}
	if err != nil || resp == nil || resp.StatusCode != http.StatusOK || (resp.ProtoMajor == 2) != (s.flags.over == lab.HTTP2) {
		s.t.Fatalf("%+v, %v", resp, err)
	}
	c.live = newLive(resp)
	return c.live
}

// openSecured requests the stream on a new connection, and returns at the first text.
func (s *scene) openSecured(more ...any) *securedClient {
	s.t.Helper()
	c := s.secured(false)
	c.request(greedy(long, append(more, "stream", true)...))
	c.answered().begun(s.t)
	return c
}

// untold reads what is left of an answer whose client is told nothing.
func (c *securedClient) untold() *refusal {
	if c.live != nil {
		_, _ = io.Copy(io.Discard, c.live.resp.Body)
	}
	return nil
}
