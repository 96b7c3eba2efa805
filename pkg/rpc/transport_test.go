package rpc_test

import (
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/cloudwego/kitex/pkg/klog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/connloss"
	"github.com/whence-dev/whence/pkg/rpc/guard"
	"github.com/whence-dev/whence/pkg/rpc/inprocess"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/rpc/link/mux"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/rpc/ttrpc"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
)

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func serveGRPC(t testing.TB, svc workerv1.WorkerServer) (addr string) {
	t.Helper()
	s := grpc.NewServer(grpc.Creds(connloss.Sense(insecure.NewCredentials())))
	workerv1.RegisterWorkerServer(guard.New(s, guard.Options{Limits: guard.Default.For(100)}), svc)
	ln := listen(t)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(ln) })
	t.Cleanup(func() { s.Stop(); wg.Wait() })
	return ln.Addr().String()
}

// stopping has the servers that stop while other tests run: each of Kitex's takes 100 ms.
var stopping sync.WaitGroup

func serveKitex(t testing.TB, svc workerv1.WorkerServer) (addr string) {
	t.Helper()
	s := kitexrpc.NewServer()
	workerv1.RegisterWorkerServer(guard.New(s, guard.Options{Limits: guard.Default.For(100)}), svc)
	ln := listen(t)
	go func() {
		if err := s.Serve(ln); err != nil {
			panic(err)
		}
	}()
	t.Cleanup(func() { stopping.Go(s.Stop) })
	return ln.Addr().String()
}

func serveLink(t testing.TB, svc workerv1.WorkerServer) (addr string) {
	t.Helper()
	s := link.NewServer(link.Options{})
	workerv1.RegisterWorkerServer(guard.New(s, guard.Options{Limits: guard.Default.For(100)}), svc)
	ln := listen(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(ln); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { s.Stop(); wg.Wait() })
	return ln.Addr().String()
}

func dialLink(t testing.TB, addr string) grpc.ClientConnInterface {
	t.Helper()
	cc := link.NewClient(addr, link.Options{Mux: mux.Options{MaxMessage: rpc.MaxAnswer}})
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

func dialGRPC(t testing.TB, addr string) grpc.ClientConnInterface {
	t.Helper()
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

func dialKitex(t testing.TB, addr string) grpc.ClientConnInterface {
	t.Helper()
	cc, err := kitexrpc.Dial(addr, &workerv1.Worker_ServiceDesc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

func dialTTStream(t testing.TB, addr string) grpc.ClientConnInterface {
	t.Helper()
	cc, err := ttrpc.Dial("", addr, &workerv1.Worker_ServiceDesc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// here maps addresses to the servers of this process.
var here sync.Map

func serveHere(t testing.TB, svc workerv1.WorkerServer) (addr string) {
	t.Helper()
	s := inprocess.NewServer()
	workerv1.RegisterWorkerServer(guard.New(s, guard.Options{Limits: guard.Default.For(100)}), svc)
	addr = fmt.Sprintf("%p", s)
	here.Store(addr, s)
	t.Cleanup(func() { here.Delete(addr); s.Stop() })
	return addr
}

func dialHere(t testing.TB, addr string) grpc.ClientConnInterface {
	t.Helper()
	s, ok := here.Load(addr)
	if !ok {
		t.Fatal("no server in this process has the address", addr)
	}
	return s.(*inprocess.Server).Conn()
}

// A transport connects a caller to a callee.
type transport struct {
	name  string
	serve func(testing.TB, workerv1.WorkerServer) string
	dial  func(testing.TB, string) grpc.ClientConnInterface
}

// wires has the transports that encode messages and use sockets.
var wires = []transport{
	{"grpc to grpc", serveGRPC, dialGRPC},
	{"grpc to kitex", serveKitex, dialGRPC},
	{"kitex to grpc", serveGRPC, dialKitex},
	{"kitex to kitex", serveKitex, dialKitex},
	{"link", serveLink, dialLink},
	{"ttstream", serveKitex, dialTTStream},
}

var transports = append(slices.Clip(wires), transport{"in process", serveHere, dialHere})

// perServer has one transport for each kind of server that uses sockets.
var perServer = []transport{wires[0], wires[1], wires[4]}

func TestMain(m *testing.M) {
	klog.SetOutput(io.Discard)
	leaktest.Main(testRun{m})
}

// A testRun runs tests, and waits until their servers have stopped.
type testRun struct{ *testing.M }

func (r testRun) Run() int {
	defer stopping.Wait()
	return r.M.Run()
}

func engineAt(cc grpc.ClientConnInterface, self, peer string) engine {
	return rpc.Dial(self, peer, workerv1.NewWorkerClient(cc).Generate, methods.Worker)
}

func TestEngineAcrossAProcessBoundaryKeepsTheContract(t *testing.T) {
	for _, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			svc := newService("worker", newCounter().generate)
			cc := tr.dial(t, tr.serve(t, svc))
			streamtest.Run(t, func(*testing.T) streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse] {
				return streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse]{
					Engine: engineAt(cc, "caller", "worker"),
					Short:  ask(5), Long: ask(1 << 30), Bad: ask(0),
					Live: svc.hop.Live.Len,
				}
			})
		})
	}
}
