package serverstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/inprocess"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
	"github.com/whence-dev/whence/pkg/rpc/serverstream"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) {
	kitexrpc.LogTo(io.Discard)
	leaktest.Main(m)
}

type engine = stream.Engine[*healthpb.HealthCheckRequest, *healthpb.HealthCheckResponse]

// states is an engine whose request names a behavior: "short" completes after three items, "long"
// yields items until it is stopped, "bad" is refused, and "late" fails after one item. causes
// receives the cause of each stop.
type states struct{ causes chan error }

func (s *states) watch(ctx context.Context, req *healthpb.HealthCheckRequest, to stream.Reader[*healthpb.HealthCheckResponse]) {
	stream.Push(s.loop)(ctx, req, to)
}

func (s *states) loop(ctx context.Context, req *healthpb.HealthCheckRequest) iter.Seq2[*healthpb.HealthCheckResponse, error] {
	return func(yield func(*healthpb.HealthCheckResponse, error) bool) {
		if req.GetService() == "bad" {
			yield(nil, streamerr.InvalidParam("service", "there is no such service"))
			return
		}
		stopping := stream.Stopping(ctx)
		for i := 0; i < 3 || req.GetService() == "long"; i++ {
			select {
			case <-stopping:
				s.causes <- stream.Cause(ctx)
				yield(nil, stream.Cause(ctx))
				return
			case <-time.After(time.Millisecond):
			}
			if req.GetService() == "late" && i == 1 {
				yield(nil, streamerr.New(streamerr.EngineFailed, "out of luck"))
				return
			}
			if !yield(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil) {
				if cause := stream.Cause(ctx); cause != nil {
					s.causes <- cause
				}
				return
			}
		}
	}
}

// A server is grpc's health service with an engine.
type server struct {
	healthpb.UnimplementedHealthServer
	hop    *rpc.Hop
	engine engine
	mute   bool // without StreamControl
}

func (s *server) Watch(req *healthpb.HealthCheckRequest, st grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	return serverstream.Serve(s.hop, req, st, nil, s.engine)
}

func newServer(name string, e engine) *server {
	return &server{hop: &rpc.Hop{Name: name, Log: slog.New(slog.DiscardHandler), Observer: &ledger.Ledger{}}, engine: e}
}

func (s *server) register(r grpc.ServiceRegistrar) {
	healthpb.RegisterHealthServer(r, s)
	if !s.mute {
		serverstream.RegisterControl(r, s.hop)
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// transports connect a caller to a server.
var transports = map[string]func(*testing.T, *server) grpc.ClientConnInterface{
	"grpc-go": func(t *testing.T, s *server) grpc.ClientConnInterface {
		t.Helper()
		gs, ln := grpc.NewServer(), listen(t)
		s.register(gs)
		var serving sync.WaitGroup
		serving.Go(func() { _ = gs.Serve(ln) })
		cc, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cc.Close(); gs.Stop(); serving.Wait() })
		return cc
	},
	"kitex": func(t *testing.T, s *server) grpc.ClientConnInterface {
		t.Helper()
		ks, ln := kitexrpc.NewServer(), listen(t)
		s.register(ks)
		var serving sync.WaitGroup
		serving.Go(func() { _ = ks.Serve(ln) })
		cc, err := kitexrpc.Dial(ln.Addr().String(), &healthpb.Health_ServiceDesc, &streamv1.StreamControl_ServiceDesc)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cc.Close(); ks.Stop(); serving.Wait() })
		return cc
	},
	"in process": func(t *testing.T, s *server) grpc.ClientConnInterface {
		t.Helper()
		is := inprocess.NewServer()
		s.register(is)
		t.Cleanup(is.Stop)
		return is.Conn()
	},
}

func dial(self, peer string, cc grpc.ClientConnInterface) engine {
	return serverstream.Dial(self, peer, healthpb.NewHealthClient(cc).Watch, serverstream.Tell(cc), nil)
}

func ask(name string) func() *healthpb.HealthCheckRequest {
	return func() *healthpb.HealthCheckRequest { return &healthpb.HealthCheckRequest{Service: name} }
}

func TestServerStreamKeepsTheContract(t *testing.T) {
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T) streamtest.Subject[*healthpb.HealthCheckRequest, *healthpb.HealthCheckResponse] {
				s := newServer("callee", (&states{causes: make(chan error, 100)}).watch)
				return streamtest.Subject[*healthpb.HealthCheckRequest, *healthpb.HealthCheckResponse]{
					Engine: dial("caller", "callee", connect(t, s)), Short: ask("short"), Long: ask("long"), Bad: ask("bad"), Live: s.hop.Live.Len,
				}
			})
		})
	}
}

// TestStopCrossesThreeHopsWithItsCause checks the cause at the last engine, the ending at the
// reader, and the id on all hops.
func TestStopCrossesThreeHopsWithItsCause(t *testing.T) {
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			leaf := &states{causes: make(chan error, 100)}
			last := newServer("leaf", leaf.watch)
			middle := newServer("middle", dial("middle", "leaf", transports["grpc-go"](t, last)))
			last.hop.Grace, middle.hop.Grace = polltest.Patience, polltest.Patience
			front := dial("front", "middle", connect(t, middle))
			for i := range 20 {
				id := fmt.Sprint("stream-", i)
				ctx, ctl := stream.WithControl(stream.WithID(t.Context(), id), polltest.Patience)
				gone := &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("user"), Message: "closed the tab"}
				items := 0
				for _, err := range front.Range(ctx, ask("long")()) {
					if err != nil && !errors.Is(err, gone) {
						t.Fatal(err)
					}
					if items++; items == 2 {
						ctl.Stop(gone)
					}
				}
				ctl.Release()
				if got := streamerr.As(<-leaf.causes); got.Reason != streamerr.ClientGone || got.Path.String() != "user > front > middle" || got.Message != gone.Message {
					t.Fatalf("the leaf was stopped with %v", got)
				}
				for _, hop := range []*rpc.Hop{middle.hop, last.hop} {
					polltest.Eventually(t, "the record of "+hop.Name+" has the reason", func() bool {
						return streamerr.Reason(ledger.At(hop).Get(id).GetReason()) == streamerr.ClientGone
					})
				}
			}
		})
	}
}

func TestFailureHasItsReasonAndPath(t *testing.T) {
	for name, connect := range transports {
		var last error
		for _, err := range dial("caller", "callee", connect(t, newServer("callee", (&states{}).watch))).Range(t.Context(), ask("late")()) {
			last = err
		}
		if e := streamerr.As(last); e.Reason != streamerr.EngineFailed || e.Path.String() != "callee" || e.Message != "out of luck" {
			t.Errorf("%s: %v", name, e)
		}
	}
}

// contradictory ends calls with INTERNAL, and says that they have completed.
type contradictory struct {
	healthpb.UnimplementedHealthServer
}

// Watch implements healthpb.HealthServer.
func (contradictory) Watch(_ *healthpb.HealthCheckRequest, st grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	if err := st.Send(&healthpb.HealthCheckResponse{}); err != nil {
		return err
	}
	s, err := status.New(codes.Internal, "the disk is gone").WithDetails(&errdetails.ErrorInfo{Domain: streamerr.Domain, Reason: "COMPLETED", Metadata: map[string]string{"path": "callee"}})
	return errors.Join(err, s.Err())
}

// TestFailureIsNotCompleted: a stream that fails has not completed, whatever its callee says.
func TestFailureIsNotCompleted(t *testing.T) {
	srv := grpc.NewServer()
	healthpb.RegisterHealthServer(srv, contradictory{})
	ln := listen(t)
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(ln) })
	t.Cleanup(func() { srv.Stop(); serving.Wait() })
	cc, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	var last error
	for _, err := range dial("caller", "callee", cc).Range(t.Context(), ask("")()) {
		last = err
	}
	if e := streamerr.As(last); last == nil || e.Reason != streamerr.Internal || e.Path.String() != "callee" {
		t.Errorf("the caller got %v", last)
	}
}

// TestCallersWithoutOurLibraryAreServed calls Watch as any client does: the call gets items and a
// status, and needs no headers.
func TestCallersWithoutOurLibraryAreServed(t *testing.T) {
	for name, connect := range transports {
		leaf := &states{causes: make(chan error, 100)}
		client := healthpb.NewHealthClient(connect(t, newServer("callee", leaf.watch)))
		for service, want := range map[string]codes.Code{"short": codes.OK, "bad": codes.InvalidArgument, "long": codes.Canceled} {
			ctx, cancel := context.WithCancel(t.Context())
			st, err := client.Watch(ctx, ask(service)())
			items := 0
			for err == nil {
				if _, err = st.Recv(); err == nil {
					items++
				}
				if items == 5 {
					cancel()
				}
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			cancel()
			if status.Code(err) != want {
				t.Errorf("%s, %s: %d items, %v", name, service, items, err)
			}
		}
		if got := streamerr.As(<-leaf.causes); got.Reason != streamerr.PeerReset || got.Path.String() != "client" {
			t.Errorf("%s: the leaf was stopped with %v", name, got)
		}
	}
}

// TestPeerWithoutControlIsReset stops a stream of a service without StreamControl.
func TestPeerWithoutControlIsReset(t *testing.T) {
	leaf := &states{causes: make(chan error, 1)}
	s := newServer("callee", leaf.watch)
	s.mute = true
	ctx, ctl := stream.WithControl(t.Context(), polltest.Patience)
	defer ctl.Release()
	var last error
	for _, err := range dial("caller", "callee", transports["grpc-go"](t, s)).Range(ctx, ask("long")()) {
		if last = err; err == nil {
			ctl.Stop(streamerr.New(streamerr.UserStop, "enough"))
		}
	}
	if !errors.Is(last, streamerr.UserStop) {
		t.Error(last)
	}
	if got := streamerr.As(<-leaf.causes); got.Reason != streamerr.PeerReset || got.Path.String() != "caller" {
		t.Errorf("the leaf was stopped with %v", got)
	}
}
