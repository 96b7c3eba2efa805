package connection_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/protocol"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/whence-dev/whence/api-service/connection"
)

// A muxStand is a stand whose client speaks HTTP/2.
type muxStand struct {
	*stand
	end   clientEnd
	wire  *tls.Conn // over end
	http  *http.Transport
	stall atomic.Bool // the client reads nothing
}

// playHTTP2 plays a story over HTTP/2 in virtual time.
func playHTTP2(t *testing.T, story func(t *testing.T, s *muxStand)) {
	t.Helper()
	own, theirs := certified(t)
	own.NextProtos, theirs.NextProtos = []string{http2.NextProtoTLS}, []string{http2.NextProtoTLS}
	synctest.Test(t, func(t *testing.T) {
		server, end := newPipe()
		s := &muxStand{stand: newStand(), end: end}
		s.server.TLS = own
		s.wire = tls.Client(stalling{end, &s.stall}, theirs)
		dialed := false
		s.http = &http.Transport{Protocols: new(http.Protocols), DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if dialed {
				return nil, net.ErrClosed
			}
			dialed = true
			return s.wire, s.wire.HandshakeContext(ctx)
		}}
		s.http.Protocols.SetHTTP2(true)
		defer s.serve(server, end)()
		story(t, s)
	})
}

// A stalling is a client's end that may stop reading.
type stalling struct {
	clientEnd
	stall *atomic.Bool
}

func (s stalling) Read(b []byte) (int, error) {
	for s.stall.Load() {
		time.Sleep(time.Second)
		s.mu.Lock()
		over := s.reset || s.closed
		s.mu.Unlock()
		if over {
			return 0, net.ErrClosed
		}
	}
	return s.clientEnd.Read(b)
}

// LocalAddr implements net.Conn.
func (s stalling) LocalAddr() net.Addr { return s.pipe.LocalAddr() }

// ask sends a request, and returns the answer and the function that leaves.
func (s *muxStand) ask(t *testing.T, path string, body io.Reader) (resp *http.Response, leave func(), err error) {
	t.Helper()
	ctx, leave := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://x"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err = s.http.RoundTrip(req)
	return resp, leave, err
}

// wants sends a request that must be answered with a status and a body.
func (s *muxStand) wants(t *testing.T, path, body string, status int, want string) {
	t.Helper()
	resp, leave, err := s.ask(t, path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	got, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status || string(got) != want || resp.ProtoMajor != 2 {
		t.Fatalf("%d %.100q %v over %s, want %d %.100q", resp.StatusCode, got, err, resp.Proto, status, want)
	}
}

// take sends a request whose answer the story gives, and begins the answer.
func (s *muxStand) take(t *testing.T) (x connection.Exchange, resp *http.Response, leave func()) {
	t.Helper()
	begun := make(chan connection.Exchange)
	go func() {
		x := <-s.taken
		if _, err := x.Send(append(x.Head(nil, new(protocol.ResponseHeader)), "begin"...)); err != nil {
			t.Error(err)
		}
		begun <- x
	}()
	resp, leave, err := s.ask(t, "/take", nil)
	if err != nil {
		t.Fatal(err)
	}
	return <-begun, resp, leave
}

func TestStreamsAreAnsweredAtOnce(t *testing.T) {
	playHTTP2(t, func(t *testing.T, s *muxStand) {
		x, resp, _ := s.take(t)
		s.wants(t, "/echo", "hello", http.StatusOK, "hello")
		s.wants(t, "/refuse", "unread", http.StatusForbidden, "no")
		s.wants(t, "/none", "", http.StatusNotFound, "Not Found")
		s.wants(t, "/large", "", http.StatusOK, strings.Repeat("x", 1<<20))
		if _, err := x.Send([]byte("hi")); err != nil {
			t.Fatal(err)
		}
		x.Free(false)
		if body, err := io.ReadAll(resp.Body); string(body) != "beginhi" || err != nil {
			t.Errorf("%q, %v", body, err)
		}
	})
}

// TestDeparturesFromStreamsAreNoticed: at once, whichever way the client leaves.
func TestDeparturesFromStreamsAreNoticed(t *testing.T) {
	for name, leave := range map[string]func(s *muxStand, leave func()){
		"RST_STREAM":         func(_ *muxStand, leave func()) { leave() },
		"a close":            func(s *muxStand, _ func()) { _ = s.wire.Close() },
		"no close_notify":    func(s *muxStand, _ func()) { s.end.CloseWrite() },
		"a reset":            func(s *muxStand, _ func()) { s.end.Reset() },
		"a part of a record": func(s *muxStand, _ func()) { s.end.Offer([]byte{23, 3, 3, 1}); s.end.CloseWrite() },
		"GOAWAY and a close": func(s *muxStand, _ func()) {
			_ = http2.NewFramer(s.wire, nil).WriteGoAway(0, http2.ErrCodeNo, nil)
			_ = s.wire.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			playHTTP2(t, func(t *testing.T, s *muxStand) {
				x, _, cancel := s.take(t)
				time.Sleep(time.Second)
				begun := time.Now()
				leave(s, cancel)
				<-s.left
				synctest.Wait()
				if took := time.Since(begun); took != 0 {
					t.Errorf("it takes %v", took)
				}
				if n, err := x.Send([]byte("late")); err == nil {
					t.Errorf("%d bytes are taken for a client that has left", n)
				}
				if name == "RST_STREAM" {
					s.wants(t, "/echo", "the others", http.StatusOK, "the others")
				}
			})
		})
	}
}

// TestEndsOfStreams: an answer ends cleanly, without an end, or is dropped, and the others go on.
func TestEndsOfStreams(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(connection.Exchange)
		want string
		err  bool
	}{
		"Free":  {func(x connection.Exchange) { x.Free(false) }, "beginmore", false},
		"Cut":   {func(x connection.Exchange) { x.Cut(); x.Free(false) }, "beginmore", true},
		"Reset": {func(x connection.Exchange) { x.Reset(); x.Cut() }, "beginmore", true}, // some of it may have been sent
	} {
		t.Run(name, func(t *testing.T) {
			playHTTP2(t, func(t *testing.T, s *muxStand) {
				x, resp, _ := s.take(t)
				begin := make([]byte, len("begin"))
				if _, err := io.ReadFull(resp.Body, begin); err != nil {
					t.Fatal(err)
				}
				if _, err := x.Send([]byte("more")); err != nil {
					t.Fatal(err)
				}
				c.end(x)
				rest, err := io.ReadAll(resp.Body)
				if got := string(begin) + string(rest); !strings.HasPrefix(c.want, got) || !c.err && got != c.want || (err != nil) != c.err {
					t.Errorf("%q, %v", got, err)
				}
				s.wants(t, "/echo", "the others", http.StatusOK, "the others")
			})
		})
	}
}

// TestAStreamIsReadAsSlowlyAsAnyOther: its writer is told when there is room, and only the writer
// decides that the client is too slow.
func TestAStreamIsReadAsSlowlyAsAnyOther(t *testing.T) {
	playHTTP2(t, func(t *testing.T, s *muxStand) {
		x, resp, _ := s.take(t)
		s.stall.Store(true)
		sent := 0
		for more := true; more; synctest.Wait() {
			n, err := x.Send(make([]byte, 10000))
			if err != nil {
				t.Fatal(err)
			}
			sent += n
			more = n > 0
		}
		if sent > 2*window {
			t.Errorf("%d bytes are taken", sent)
		}
		time.Sleep(write + write/2) // longer than any ping would wait
		if n, err := x.Send([]byte("x")); n != 0 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		s.stall.Store(false)
		<-s.room
		x.Free(false)
		if body, err := io.ReadAll(resp.Body); len(body) != len("begin")+sent || err != nil {
			t.Errorf("%d bytes, %v", len(body), err)
		}
	})
}

// TestAConnectionWithoutReadersIsClosed: when its streams have ended, and nobody takes their rest.
func TestAConnectionWithoutReadersIsClosed(t *testing.T) {
	playHTTP2(t, func(t *testing.T, s *muxStand) {
		s.wants(t, "/echo", "", http.StatusOK, "")
		s.stall.Store(true)
		for range 10 {
			go func() {
				if resp, _, err := s.ask(t, "/large", nil); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
				}
			}()
		}
		begun := time.Now()
		<-s.over
		if took := time.Since(begun); took > 3*write {
			t.Errorf("it takes %v", took)
		}
	})
}

// TestBodiesOfStreamsMustArriveInTime: however busy the client is.
func TestBodiesOfStreamsMustArriveInTime(t *testing.T) {
	playHTTP2(t, func(t *testing.T, s *muxStand) {
		body, more := io.Pipe()
		go func() {
			for {
				if _, err := more.Write([]byte("x")); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		begun := time.Now()
		resp, _, err := s.ask(t, "/echo", body)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); resp.StatusCode != http.StatusRequestTimeout || took < arrival || took > arrival+arrival/8 {
			t.Errorf("%d after %v", resp.StatusCode, took)
		}
		_ = body.Close()
	})
}

// TestStreamsEndBeforeTheServer: a drain refuses further requests, and closes the connection after the
// last answer.
func TestStreamsEndBeforeTheServer(t *testing.T) {
	playHTTP2(t, func(t *testing.T, s *muxStand) {
		x, resp, _ := s.take(t)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.server.End(time.Minute)
		}()
		time.Sleep(10 * time.Second)
		if _, _, err := s.ask(t, "/echo", nil); err == nil {
			t.Error("a request is answered while the server drains")
		}
		x.Free(false)
		if body, err := io.ReadAll(resp.Body); string(body) != "begin" || err != nil {
			t.Errorf("%q, %v", body, err)
		}
		<-ended
		<-s.over
	})
}

// An attacker sends frames that no client would send.
type attacker struct {
	*muxStand
	out    bytes.Buffer
	frames *http2.Framer // to out
	block  bytes.Buffer
	fields *hpack.Encoder // to block
}

func (a *attacker) encode(fields ...string) []byte {
	a.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = a.fields.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // a buffer takes everything
	}
	return bytes.Clone(a.block.Bytes())
}

// request sends the header of the i-th request.
func (a *attacker) request(i int, whole bool, more ...string) {
	fields := append([]string{":method", "POST", ":scheme", "https", ":path", "/wait", ":authority", "x"}, more...)
	_ = a.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: a.encode(fields...), EndHeaders: whole})
}

// TestFloodsOfFramesEndWithTheirConnection: the server takes a bounded number of frames, runs a bounded
// number of handlers, and closes the connection.
func TestFloodsOfFramesEndWithTheirConnection(t *testing.T) {
	long := strings.Repeat("a", 3<<10)
	for name, c := range map[string]struct {
		begin func(a *attacker)
		send  func(a *attacker, i int)
		most  int // frames
	}{
		"PING":          {nil, func(a *attacker, _ int) { _ = a.frames.WritePing(false, [8]byte{}) }, 30_000},
		"SETTINGS":      {nil, func(a *attacker, _ int) { _ = a.frames.WriteSettings() }, 30_000},
		"PRIORITY":      {nil, func(a *attacker, i int) { _ = a.frames.WritePriority(uint32(2*i+1), http2.PriorityParam{}) }, 30_000},
		"WINDOW_UPDATE": {nil, func(a *attacker, _ int) { _ = a.frames.WriteWindowUpdate(0, 1) }, 30_000},
		"empty DATA":    {func(a *attacker) { a.request(0, true) }, func(a *attacker, _ int) { _ = a.frames.WriteData(1, false, nil) }, 30_000},
		"rapid reset": {nil, func(a *attacker, i int) {
			a.request(i, true)
			_ = a.frames.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel)
		}, 30_000},
		"open streams": {nil, func(a *attacker, i int) { a.request(i, true) }, 30_000},
		"CONTINUATION": {func(a *attacker) { a.request(0, false) }, func(a *attacker, i int) {
			_ = a.frames.WriteContinuation(1, false, a.encode("x", strconv.Itoa(i)+long))
		}, 1000},
		"empty CONTINUATION": {func(a *attacker) { a.request(0, false) }, func(a *attacker, _ int) { _ = a.frames.WriteContinuation(1, false, nil) }, 30_000},
		"HPACK bomb": {func(a *attacker) { a.request(0, true, "x", long) }, func(a *attacker, i int) {
			block := append(a.encode(":method", "POST", ":scheme", "https", ":path", "/wait"), bytes.Repeat([]byte{0x80 | 62}, 10<<10)...) // the long field, again and again
			_ = a.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 3), BlockFragment: block, EndHeaders: true})
		}, 3000},
	} {
		t.Run(name, func(t *testing.T) {
			playHTTP2(t, func(t *testing.T, s *muxStand) {
				var running, most atomic.Int64
				s.server.Engine.POST("/wait", func(ctx context.Context, _ *app.RequestContext) {
					most.Store(max(most.Load(), running.Add(1)))
					defer running.Add(-1)
					<-ctx.Done()
				})
				a := &attacker{muxStand: s}
				a.frames, a.fields = http2.NewFramer(&a.out, nil), hpack.NewEncoder(&a.block)
				a.frames.AllowIllegalWrites = true
				a.out.WriteString(http2.ClientPreface)
				_ = a.frames.WriteSettings()
				if c.begin != nil {
					c.begin(a)
				}
				sent := 0
				go func() { _, _ = io.Copy(io.Discard, s.wire) }()
				for err := error(nil); err == nil && sent <= c.most; a.out.Reset() {
					for ; a.out.Len() < 16<<10; sent++ {
						c.send(a, sent)
					}
					_, err = s.wire.Write(a.out.Bytes())
					synctest.Wait()
				}
				if sent > c.most {
					t.Fatalf("the server takes %d frames", sent)
				}
				<-s.over
				synctest.Wait()
				if most.Load() > 250 || running.Load() != 0 {
					t.Errorf("%d handlers ran at a time, and %d run on", most.Load(), running.Load())
				}
			})
		})
	}
}

// TestAHalfHeaderIsNotAwaitedForEver: the connection is closed, as without any request.
func TestAHalfHeaderIsNotAwaitedForEver(t *testing.T) {
	for name, send := range map[string]func(f *http2.Framer){
		"nothing": func(*http2.Framer) {},
		"a header": func(f *http2.Framer) {
			_ = f.WriteSettings()
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			playHTTP2(t, func(t *testing.T, s *muxStand) {
				if _, err := io.WriteString(s.wire, http2.ClientPreface); err != nil {
					t.Fatal(err)
				}
				send(http2.NewFramer(s.wire, nil))
				begun := time.Now()
				_, err := io.Copy(io.Discard, s.wire)
				if took := time.Since(begun); took > idle+idle/8 {
					t.Errorf("%v after %v", err, took)
				}
			})
		})
	}
}
