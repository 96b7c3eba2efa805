package rpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// servers has both kinds of server.
var servers = []struct {
	name  string
	serve func(testing.TB, workerv1.WorkerServer) string
}{{"grpc-go", serveGRPC}, {"kitex", serveKitex}}

// startStream starts an endless stream over a connection that the test can break.
func startStream(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	dialed := make(chan *net.TCPConn, 1)
	cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			if err == nil {
				select {
				case dialed <- c.(*net.TCPConn):
				default: // a redial after the test has broken the first connection
				}
			}
			return c, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), streamerr.ViaHeader, "client > gateway"))
	t.Cleanup(cancel)
	st, err := workerv1.NewWorkerClient(cc).Generate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(methods.Worker.Open(ask(1 << 30)())); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Recv(); err != nil {
		t.Fatal(err)
	}
	return <-dialed
}

func TestBrokenConnectionIsALostPeer(t *testing.T) {
	for _, srv := range servers {
		for linger, name := range map[int]string{-1: "closed", 0: "reset"} {
			t.Run(srv.name+" "+name, func(t *testing.T) {
				leaf := newCounter()
				conn := startStream(t, srv.serve(t, newService("worker", leaf.generate)))
				if err := conn.SetLinger(linger); err != nil {
					t.Fatal(err)
				}
				_ = conn.Close()
				if got := streamerr.As(<-leaf.causes); got.Reason != streamerr.PeerLost || got.Path.String() != "gateway" {
					t.Error(got)
				}
			})
		}
	}
}

// TestStopBeforeAResetIsNotLost: when a hung process wakes up, it finds a Stop in its socket and a
// reset right behind it.
func TestStopBeforeAResetIsNotLost(t *testing.T) {
	for _, srv := range servers {
		t.Run(srv.name, func(t *testing.T) {
			leaf := newCounter()
			addr := srv.serve(t, newService("worker", leaf.generate))
			for i := range 30 {
				conn := stopAndReset(t, addr)
				got := streamerr.As(<-leaf.causes)
				_ = conn.Close() // not before: it could overtake the frames
				if got.Reason != streamerr.UserStop || got.Path.Origin() != "client" {
					t.Fatalf("stream %d: %v", i, got)
				}
			}
		})
	}
}

// stopAndReset starts a stream, frame by frame, and ends it with a Stop and a reset in one segment.
// The caller must close the connection.
func stopAndReset(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	var out, headers bytes.Buffer
	framer := http2.NewFramer(&out, conn)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	out.WriteString(http2.ClientPreface)
	check(framer.WriteSettings())
	enc := hpack.NewEncoder(&headers)
	for _, h := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", workerv1.Worker_Generate_FullMethodName},
		{":authority", addr},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		check(enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}))
	}
	check(framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers.Bytes(), EndHeaders: true}))
	check(framer.WriteData(1, false, message(t, methods.Worker.Open(ask(1<<30)()))))
	_, err = out.WriteTo(conn)
	check(err)
	for items := 0; items < 5; { // the stream has run for a while, and the server reads
		f, err := framer.ReadFrame()
		check(err)
		if _, ok := f.(*http2.DataFrame); ok {
			items++
		}
	}
	stop := &streamv1.Stop{Reason: streamv1.Reason_REASON_USER_STOP, Path: []string{"client"}}
	check(framer.WriteData(1, false, message(t, methods.Worker.Stop(stop))))
	check(framer.WriteRSTStream(1, http2.ErrCodeCancel))
	_, err = out.WriteTo(conn)
	check(err)
	return conn
}

// message returns m in gRPC's framing.
func message(t *testing.T, m proto.Message) []byte {
	t.Helper()
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
}
