package link_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/connloss"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A twoPorts is a worker on gRPC, and on links if it has a port for them.
type twoPorts struct {
	worker
	addr   string // of gRPC
	mu     sync.Mutex
	linked bool // the last call of Generate arrived over a link
}

func (w *twoPorts) Generate(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	from, _ := peer.FromContext(st.Context())
	_, linked := from.Addr.(connloss.Addr) // the gRPC server here does not use connloss.Sense
	w.mu.Lock()
	w.linked = linked
	w.mu.Unlock()
	return w.worker.Generate(st)
}

// servePorts serves a worker at addr until stop.
func servePorts(t *testing.T, addr string, linked bool) (w *twoPorts, stop func()) {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	hop := &rpc.Hop{Name: "worker", Log: slog.New(slog.DiscardHandler), Observer: &ledger.Ledger{}}
	w = &twoPorts{worker: worker{hop: hop, engine: stream.Push(count)}, addr: ln.Addr().String()}
	gs := grpc.NewServer()
	srv := link.Registrar(gs)
	var port *link.Port
	if linked {
		if port, err = link.OpenPort(ln, 0, link.Options{}, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		srv = port.Beside(gs)
		port.Advertise(gs)
	}
	workerv1.RegisterWorkerServer(srv, w)
	if linked {
		port.Serve()
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = gs.Serve(ln) })
	stop = sync.OnceFunc(func() {
		if linked {
			port.Close(time.Minute)
		}
		gs.Stop()
		serving.Wait()
	})
	t.Cleanup(stop)
	return w, stop
}

func upgraded(t *testing.T, addr string) *link.UpgradedConn {
	t.Helper()
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	u := link.Upgrade(cc, addr, link.Options{}, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { _ = u.Close() })
	return u
}

// play runs a stream, and reports whether it used a link. A gRPC connection may notice late that
// the callee was away, so a lost stream is repeated.
func play(t *testing.T, w *twoPorts, u *link.UpgradedConn) bool {
	t.Helper()
	polltest.Eventually(t, "a stream completes", func() bool {
		items := 0
		var last error
		for _, last = range engineAt(workerv1.NewWorkerClient(u)).Range(t.Context(), &workerv1.TokenRequest{Prompt: []uint32{5, 1}}) {
			items++
		}
		if last != nil && !errors.Is(last, streamerr.PeerLost) || last == nil && items != 6 {
			t.Fatalf("%d items, %v", items, last)
		}
		return last == nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.linked
}

func awaitLinked(t *testing.T, u *link.UpgradedConn, want bool) {
	t.Helper()
	polltest.Eventually(t, fmt.Sprint("linked is ", want), func() bool { return u.Linked() == want })
}

// TestStreamsUseLinksIfThereAreAny: a callee that restarts, with or without links, remains
// reachable.
func TestStreamsUseLinksIfThereAreAny(t *testing.T) {
	w, stop := servePorts(t, "127.0.0.1:0", false)
	u := upgraded(t, w.addr)
	if play(t, w, u) {
		t.Error("a stream went over a link that does not exist")
	}
	for _, linked := range []bool{true, true, false} {
		stop()
		awaitLinked(t, u, false)
		w, stop = servePorts(t, w.addr, linked)
		awaitLinked(t, u, linked)
		if play(t, w, u) != linked {
			t.Errorf("a stream of a callee with links: %v", !linked)
		}
	}
}

// A whereabouts names a port, and an identity that no process has.
type whereabouts struct {
	streamv1.UnimplementedLinksServer
	port  int
	asked chan struct{}
}

func (w *whereabouts) Where(context.Context, *streamv1.WhereRequest) (*streamv1.WhereResponse, error) {
	select {
	case w.asked <- struct{}{}:
	default:
	}
	return &streamv1.WhereResponse{Port: uint32(w.port), Identity: "another"}, nil
}

// TestLinksOfAnotherProcessAreNotUsed: a port may now belong to another process.
func TestLinksOfAnotherProcessAreNotUsed(t *testing.T) {
	_, _, elsewhere := serve(t, link.Options{}, count)
	addr, err := net.ResolveTCPAddr("tcp", elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	where := &whereabouts{port: addr.Port, asked: make(chan struct{})}
	gs := grpc.NewServer()
	streamv1.RegisterLinksServer(gs, where)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = gs.Serve(ln) })
	t.Cleanup(func() { gs.Stop(); serving.Wait() })
	u := upgraded(t, ln.Addr().String())
	for range 2 { // the second request comes after the first link was tried
		<-where.asked
	}
	if u.Linked() {
		t.Error("a link to another process was used")
	}
}

// TestCloseCancelsTheDial: Close does not wait for a dial or a HELLO to time out.
func TestCloseCancelsTheDial(t *testing.T) {
	for name, dial := range map[string]func(context.Context) (net.Conn, error){
		"dial": func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"hello": func(context.Context) (net.Conn, error) {
			near, _ := net.Pipe()
			return near, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc := link.NewClient("peer", link.Options{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }})
				opened := make(chan error, 1)
				go func() {
					_, err := cc.NewStream(t.Context(), nil, "/a.B/C")
					opened <- err
				}()
				synctest.Wait()
				begun := time.Now()
				_ = cc.Close()
				if took := time.Since(begun); took > 0 {
					t.Errorf("Close took %v", took)
				}
				if err := <-opened; status.Code(err) != codes.Canceled {
					t.Error(err)
				}
			})
		})
	}
}

// TestPortMayBeFixed: a firewall admits only known ports.
// TestDefaultPortIsThatOfTheServerPlusTen, so that firewalls can name it, unless it is taken.
func TestDefaultPortIsThatOfTheServerPlusTen(t *testing.T) {
	lines := new(logtest.Log)
	log := slog.New(slog.NewTextHandler(lines, nil))
	dial := func(port int) bool {
		nc, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = nc.Close()
		}
		return err == nil
	}
	for range 100 { // other programs take ports, too
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		said := len(lines.String())
		first, err := link.OpenPort(ln, 0, link.Options{}, log)
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close(time.Minute)
		first.Serve()
		if len(lines.String()) > said {
			continue
		}
		if port := ln.Addr().(*net.TCPAddr).Port + 10; !dial(port) {
			t.Errorf("links are not at port %d", port)
		}
		second, err := link.OpenPort(ln, 0, link.Options{}, log)
		if err != nil {
			t.Fatalf("the default port is taken: %v", err)
		}
		defer second.Close(time.Minute)
		second.Serve()
		if !strings.Contains(lines.String()[said:], "--link-port") {
			t.Error("the log does not say that links have another port")
		}
		return
	}
	t.Error("the port of a server plus 10 is never free")
}

func TestPortMayBeFixed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := taken.Addr().(*net.TCPAddr).Port
	if _, err := link.OpenPort(ln, port, link.Options{}, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("OpenPort opened a port that is in use")
	}
	_ = taken.Close()
	p, err := link.OpenPort(ln, port, link.Options{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(time.Minute)
	p.Serve()
	nc, err := net.Dial("tcp", taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.Close()
}
