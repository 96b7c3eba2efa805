package grpcserver_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/rpc/grpcserver"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// serve serves on a port until the test ends. register may be nil.
func serve(t *testing.T, o grpcserver.Options, register func(*grpcserver.Server)) (s *grpcserver.Server, addr string) {
	t.Helper()
	s = grpcserver.New(o)
	healthpb.RegisterHealthServer(s, health.NewServer())
	if register != nil {
		register(s)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(ln); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { s.Close(0); serving.Wait() })
	return s, ln.Addr().String()
}

func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// TestFirstByteDecides: the other server gets the whole connection, and gRPC is served meanwhile.
func TestFirstByteDecides(t *testing.T) {
	foreign := make(chan net.Conn, 1)
	_, addr := serve(t, grpcserver.Options{Foreign: func(nc net.Conn) { foreign <- nc }}, nil)
	other, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := healthpb.NewHealthClient(dial(t, addr)).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Error("beside a connection that sends nothing:", err)
	}
	const hello = "\x00\x00\x00\x05hello"
	if _, err := io.WriteString(other, hello); err != nil {
		t.Fatal(err)
	}
	nc := <-foreign
	defer nc.Close()
	got := make([]byte, len(hello))
	if _, err := io.ReadFull(nc, got); err != nil || string(got) != hello {
		t.Errorf("the other server reads %q, %v", got, err)
	}
}

// TestConnectionsInMemoryAreGRPC: they have no descriptor to look at.
func TestConnectionsInMemoryAreGRPC(t *testing.T) {
	s := grpcserver.New(grpcserver.Options{Foreign: func(nc net.Conn) { _ = nc.Close() }})
	healthpb.RegisterHealthServer(s, health.NewServer())
	ln := bufconn.Listen(1 << 16)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(ln) })
	t.Cleanup(func() { s.Close(0); serving.Wait() })
	cc, err := grpc.NewClient("passthrough:memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	if _, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
}

// TestCloseDoesNotWaitForHandshakes: grpc-go's own Stop waits for them.
func TestCloseDoesNotWaitForHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ln := grpcserver.New(grpcserver.Options{}), bufconn.Listen(1<<16)
		served := make(chan error)
		go func() { served <- s.Serve(ln) }()
		silent, err := ln.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		synctest.Wait() // until the server has accepted the connection
		begun := time.Now()
		s.Close(time.Millisecond)
		if took := time.Since(begun); took != time.Millisecond {
			t.Errorf("Close took %v", took)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// TestUnreadableMessagesDoNotEndTheCall sends messages that are too long or cannot be decoded, and
// reports what the handler receives.
func TestUnreadableMessagesDoNotEndTheCall(t *testing.T) {
	const limit = 1 << 10
	received := make(chan error)
	desc := &grpc.ServiceDesc{ServiceName: "test.Any", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
		StreamName: "Read", ClientStreams: true, ServerStreams: true,
		Handler: func(_ any, st grpc.ServerStream) error {
			for range 6 {
				received <- st.RecvMsg(&healthpb.HealthCheckRequest{})
			}
			return nil
		},
	}}}
	_, addr := serve(t, grpcserver.Options{MaxRecvBytes: limit}, func(s *grpcserver.Server) { s.RegisterService(desc, struct{}{}) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	st, err := dial(t, addr).NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Any/Read", grpc.ForceCodec(raw{}))
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range []struct {
		bytes []byte
		want  codes.Code
	}{
		{nil, codes.OK},
		{make([]byte, limit+1), codes.ResourceExhausted},
		{[]byte{0xff}, codes.InvalidArgument},
		{nil, codes.OK},
		{make([]byte, 2*limit+1), codes.ResourceExhausted}, // grpc-go refuses it, and cannot read on
		{nil, codes.ResourceExhausted},
	} {
		_ = st.SendMsg(m.bytes) // fails after the fifth
		if err := <-received; status.Code(err) != m.want {
			t.Errorf("message %d: %v, want %v", i, err, m.want)
		}
	}
}

// raw sends bytes as they are.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (raw) Unmarshal(_ []byte, _ any) error { return nil }
func (raw) Name() string                    { return "proto" }
