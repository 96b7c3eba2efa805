package link_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/rpc/link/frame"
	"github.com/whence-dev/whence/pkg/rpc/link/mux"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/rpc/mtls/mtlstest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// appendItem appends an ITEMS frame of one message.
func appendItem(t testing.TB, b []byte, id uint32, m proto.Message) []byte {
	t.Helper()
	message, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	b, at := frame.Begin(b, frame.Items)
	b = append(frame.AppendItemHead(b, id, len(message)), message...)
	frame.Finish(b, at)
	return b
}

// begin opens a stream of n items of width tokens.
func begin(t testing.TB, ctx context.Context, client workerv1.WorkerClient, id string, n, width uint32) workerv1.Worker_GenerateClient { //nolint:revive // t comes first in tests
	t.Helper()
	st, err := client.Generate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(methods.Worker.Open(&workerv1.TokenRequest{StreamId: id, Prompt: []uint32{n, width}})); err != nil {
		t.Fatal(err)
	}
	return st
}

// TestPeerThatDoesNotReadIsBounded: hundreds of streams wait on a connection whose peer does not
// read.
func TestPeerThatDoesNotReadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, ln := serveInMemory(t, link.Options{Mux: mux.Options{PingEvery: time.Hour}}, count)
		nc, err := ln.Dial()
		if err != nil {
			t.Fatal(err)
		}
		const streams = 300
		b := frame.AppendHello(nil, frame.Greeting{Version: frame.Version, Window: 1 << 30, MaxMessage: 1 << 30})
		for id := range uint32(streams) {
			b, _ = frame.AppendOpen(b, frame.Call{Stream: id + 1, Method: workerv1.Worker_Generate_FullMethodName})
			b = appendItem(t, b, id+1, methods.Worker.Open(&workerv1.TokenRequest{Prompt: []uint32{1 << 30, 1000}}))
		}
		if _, err := nc.Write(b); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until all streams wait
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if live := w.hop.Live.Len(); live != streams || m.HeapAlloc > 100<<20 {
			t.Errorf("%d MiB are buffered for %d streams of a peer that does not read", m.HeapAlloc>>20, live)
		}
		_ = nc.Close()
		awaitNone(t, w.hop)
	})
}

// TestLargeRequestsDoNotDelayTokens: a request of 4 MB is sent in parts, with other messages
// between them.
func TestLargeRequestsDoNotDelayTokens(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	// The other end reads one frame after the other, so that the order is the order on the wire.
	frames := make(chan frame.Frame)
	go func() {
		defer close(frames)
		var have []byte
		buf := make([]byte, 1<<10)
		for {
			n, err := far.Read(buf)
			if err != nil {
				return
			}
			have = append(have, buf[:n]...)
			for {
				f, size, err := frame.Decode(have)
				if err != nil {
					t.Error(err)
					return
				}
				if size == 0 {
					break
				}
				frames <- f
				have = have[size:]
			}
		}
	}()
	cc := link.NewClient("peer", link.Options{Links: 1, Dial: func(context.Context, string, string) (net.Conn, error) {
		go func() {
			_, _ = far.Write(frame.AppendHello(nil, frame.Greeting{Version: 1, Window: 1 << 20, MaxMessage: 1 << 24}))
		}()
		return near, nil
	}})
	defer cc.Close()
	client := workerv1.NewWorkerClient(cc)
	opened := make(chan error, 1)
	var large, small workerv1.Worker_GenerateClient
	go func() {
		var err error
		if large, err = client.Generate(t.Context()); err == nil {
			err = large.Send(methods.Worker.Open(&workerv1.TokenRequest{Prompt: make([]uint32, 3<<20)}))
		}
		opened <- err
	}()
	parts, behind := 0, -1
	for f := range frames {
		switch f.Kind {
		case frame.Part:
			if len(f.Payload) > 16<<10 {
				t.Fatalf("a part of %d bytes", len(f.Payload))
			}
			if parts++; parts == 3 { // the connection is busy with the large request
				if err := <-opened; err != nil {
					t.Fatal(err)
				}
				var err error
				if small, err = client.Generate(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := small.Send(methods.Worker.Open(&workerv1.TokenRequest{Prompt: []uint32{1}})); err != nil {
					t.Fatal(err)
				}
			}
		case frame.Items:
			behind = parts
		default:
		}
		if behind >= 0 {
			break
		}
	}
	if behind < 0 || behind > 10 {
		t.Errorf("a small request came after %d parts of a large request", behind)
	}
	_ = near.Close()
	for range frames { // until the reader ends
	}
}

// TestIdleConnectionStaysOpen: both ends answer PINGs.
func TestIdleConnectionStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, ln := serveInMemory(t, link.Options{}, func(ctx context.Context, _ *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
			return func(yield func(*workerv1.GenerateResponse, error) bool) {
				time.Sleep(time.Hour)
				count(ctx, &workerv1.TokenRequest{Prompt: []uint32{3, 1}})(yield)
			}
		})
		for _, err := range engineAt(dialInMemory(t, ln, link.Options{})).Range(t.Context(), &workerv1.TokenRequest{Prompt: []uint32{1, 1}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestDrainLetsStreamsFinish: after a GOAWAY the streams of a connection finish, and it accepts no
// new streams.
func TestDrainLetsStreamsFinish(t *testing.T) {
	_, s, addr := serve(t, link.Options{}, count)
	client := dial(t, addr, link.Options{Links: 1})
	st := begin(t, t.Context(), client, "last", 20_000, 10)
	if _, err := st.Recv(); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.Drain(t.Context())
	}()
	items := 0
	var err error
	for ; err == nil; items++ {
		_, err = st.Recv()
	}
	if !errors.Is(err, io.EOF) || items != 20_001 {
		t.Errorf("%d items, %v", items, err)
	}
	<-drained
	if st, err := client.Generate(t.Context()); status.Code(err) != codes.Unavailable {
		t.Errorf("a server that has drained accepted a stream: %v, %v", st, err)
	}
}

// TestHostilePeersAreCutOff: whatever a peer sends, only its connection ends, and the server serves
// others.
func TestHostilePeersAreCutOff(t *testing.T) {
	_, _, addr := serve(t, link.Options{Mux: mux.Options{Window: 1 << 10, MaxMessage: 1 << 10}}, count)
	hello := frame.AppendHello(nil, frame.Greeting{Version: 1, Window: 1 << 10, MaxMessage: 1 << 10})
	open, _ := frame.AppendOpen(hello[:len(hello):len(hello)], frame.Call{Stream: 1, Method: workerv1.Worker_Generate_FullMethodName})
	with := func(b []byte, more ...[]byte) []byte {
		b = b[:len(b):len(b)]
		for _, m := range more {
			b = append(b, m...)
		}
		return b
	}
	again, _ := frame.AppendOpen(nil, frame.Call{Stream: 1, Method: "/a.B/C"})
	end, _ := frame.AppendEnd(nil, frame.Ending{Stream: 1})
	part, _ := frame.AppendPart(nil, 1, make([]byte, 1000), 100)
	flood, _ := frame.AppendOpen(with(hello), frame.Call{Stream: 1, Method: workerv1.Worker_KVEvents_FullMethodName})
	for range 1000 {
		flood = appendItem(t, flood, 1, &workerv1.GenerateRequest{})
	}
	for name, b := range map[string][]byte{
		"another protocol":       []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
		"http/2":                 []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
		"no hello":               frame.AppendPing(nil, frame.Ping, 1),
		"two hellos":             with(hello, hello),
		"a stream never opened":  with(open, frame.AppendStream(nil, frame.Close, 2)),
		"a stream opened twice":  with(open, again),
		"an end of the caller":   with(open, end),
		"credit that was unused": with(open, frame.AppendCredit(nil, 1, 1)),
		"an item within a part":  with(open, part, appendItem(t, nil, 1, &workerv1.GenerateRequest{})),
		"another part":           with(open, part, part),
		"garbage":                with(open, []byte(strings.Repeat("\xff", 100))),
		"more than its credit":   flood,
		"a hello of 64 KiB":      append([]byte{byte(frame.Hello), 255, 255, 0}, make([]byte, 70_000)...),
	} {
		t.Run(name, func(t *testing.T) {
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			_, _ = nc.Write(b) // the server may close the connection first
			_ = nc.SetDeadline(time.Now().Add(polltest.Patience))
			if _, err := io.Copy(io.Discard, nc); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection is still open")
			}
		})
	}
	for _, err := range engineAt(dial(t, addr, link.Options{})).Range(t.Context(), &workerv1.TokenRequest{Prompt: []uint32{3, 1}}) {
		if err != nil {
			t.Error(err)
		}
	}
}

// TestStopEndsGreetings: a caller that never sends its TLS handshake or its HELLO does not delay the
// end of the server, and a connection beyond the bound is closed at once.
func TestStopEndsGreetings(t *testing.T) {
	cert, _ := certificate(t)
	for name, o := range map[string]link.Options{"plain": {MaxConns: 20}, "TLS": {MaxConns: 20, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, server, ln := serveInMemory(t, o, count)
				began := time.Now()
				for at := range o.MaxConns + 1 {
					nc, err := ln.Dial()
					if err != nil {
						t.Fatal(err)
					}
					defer nc.Close()
					if at < o.MaxConns {
						continue
					}
					if n, err := io.Copy(io.Discard, nc); n != 0 || err != nil {
						t.Errorf("one connection too many: %d bytes, %v", n, err)
					}
				}
				server.Stop()
				if took := time.Since(began); took > 0 {
					t.Errorf("Stop took %v: it waited for silent callers", took)
				}
			})
		})
	}
}

// TestLinksOverTLS: both ends have certificates, and a caller without one is refused.
func TestLinksOverTLS(t *testing.T) {
	cert, pool := certificate(t)
	_, _, addr := serve(t, link.Options{TLS: &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}}, count)
	for name, test := range map[string]struct {
		config *tls.Config
		ok     bool
	}{
		"with a certificate":    {&tls.Config{RootCAs: pool, ServerName: "peer", Certificates: []tls.Certificate{cert}}, true},
		"without a certificate": {&tls.Config{RootCAs: pool, ServerName: "peer"}, false},
		"plain":                 {nil, false},
	} {
		n := 0
		var last error
		for _, err := range engineAt(dial(t, addr, link.Options{TLS: test.config})).Range(t.Context(), &workerv1.TokenRequest{Prompt: []uint32{5000, 100}}) {
			last = err
			n++
		}
		if test.ok && (last != nil || n != 5001) || !test.ok && !errors.Is(last, streamerr.PeerLost) {
			t.Errorf("%s: %d items, %v", name, n, last)
		}
	}
}

// certificate returns a certificate for the name "peer", and a pool with its authority.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	a, p := mtlstest.NewAuthority(t), mtlstest.NewPair(t)
	a.Issue(t, p, "peer")
	return p.Load(t), a.Pool()
}

// TestStopJustBeforeAResetIsTheReason: even if the Stop and the RESET arrive in one segment.
func TestStopJustBeforeAResetIsTheReason(t *testing.T) {
	w, _, addr := serve(t, link.Options{}, count)
	for i := range 50 {
		id := fmt.Sprintf("reset-%d", i)
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		b := frame.AppendHello(nil, frame.Greeting{Version: 1, Window: 1 << 20, MaxMessage: 1 << 20})
		b, _ = frame.AppendOpen(b, frame.Call{Stream: 1, Method: workerv1.Worker_Generate_FullMethodName})
		b = appendItem(t, b, 1, methods.Worker.Open(&workerv1.TokenRequest{StreamId: id, Prompt: []uint32{1 << 30, 1}}))
		b = appendItem(t, b, 1, methods.Worker.Stop(&streamv1.Stop{Reason: streamv1.Reason_REASON_USER_STOP, Path: []string{"client"}}))
		b = frame.AppendStream(b, frame.Reset, 1)
		if _, err := nc.Write(b); err != nil {
			t.Fatal(err)
		}
		polltest.Eventually(t, "the stream ends", func() bool { return ledger.At(w.hop).Get(id).GetEnded() != nil })
		_ = nc.Close()
		if r := ledger.At(w.hop).Get(id); streamerr.Reason(r.GetReason()) != streamerr.UserStop {
			t.Fatal(r)
		}
	}
}

// TestDeadlineOfTheCallCrosses: the callee ends the stream by itself.
func TestDeadlineOfTheCallCrosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, ln := serveInMemory(t, link.Options{}, waiting)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		st := begin(t, ctx, dialInMemory(t, ln, link.Options{}), "late", 1, 1)
		if _, err := st.Recv(); err != nil {
			t.Error(err)
		}
		if _, err := st.Recv(); status.Code(err) != codes.DeadlineExceeded {
			t.Error(err)
		}
		awaitNone(t, w.hop)
		if r := ledger.At(w.hop).Get("late"); streamerr.Reason(r.GetReason()) != streamerr.Deadline {
			t.Error(r)
		}
	})
}

// TestDrainSendsGoawayOnAllConnections: a connection whose stream continues does not delay the
// GOAWAY of others.
func TestDrainSendsGoawayOnAllConnections(t *testing.T) {
	_, s, addr := serve(t, link.Options{}, count)
	var conns []net.Conn
	for range 2 {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		b := frame.AppendHello(nil, frame.Greeting{Version: 1, Window: 1 << 20, MaxMessage: 1 << 20})
		b = frame.AppendPing(b, frame.Ping, 1)
		if _, err := nc.Write(b); err != nil {
			t.Fatal(err)
		}
		_ = nc.SetDeadline(time.Now().Add(polltest.Patience))
		awaitFrame(t, nc, frame.Pong)
		conns = append(conns, nc)
	}
	ctx, cancel := context.WithCancel(t.Context())
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.Drain(ctx)
	}()
	for _, nc := range conns {
		awaitFrame(t, nc, frame.Goaway)
	}
	cancel()
	<-drained
}

// awaitFrame reads frames until a frame of kind arrives. It reads byte by byte, so that it reads no
// further.
func awaitFrame(t *testing.T, nc net.Conn, kind frame.Kind) {
	t.Helper()
	var have []byte
	for {
		b := make([]byte, 1)
		if _, err := io.ReadFull(nc, b); err != nil {
			t.Fatalf("no %v: %v", kind, err)
		}
		have = append(have, b[0])
		f, n, err := frame.Decode(have)
		switch {
		case err != nil:
			t.Fatal(err)
		case n > 0 && f.Kind == kind:
			return
		case n > 0:
			have = nil
		}
	}
}
