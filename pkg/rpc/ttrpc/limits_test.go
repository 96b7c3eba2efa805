package ttrpc_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudwego/gopkg/protocol/ttheader"
	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/serviceinfo"
	"github.com/cloudwego/kitex/pkg/streaming"
	"github.com/cloudwego/kitex/pkg/transmeta"
	"github.com/cloudwego/kitex/transport"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	twin "github.com/whence-dev/whence/idl/gen/thrift/chatv1"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/rpc/ttrpc"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestUnknownMethodsAreAnswered: Kitex alone only logs such calls, and the caller waits forever.
func TestUnknownMethodsAreAnswered(t *testing.T) {
	addr := serve(t, newService("chat"))
	for name, service := range map[string]string{"method": "Chat", "service": "Nobody"} {
		// Kitex's client registers its close callback after it has sent the header
		// (docs/upstream/kitex-ttstream-close-callback.md), so the answer must not come before that.
		sent := make(chan struct{})
		proxy := newProxyUntil(t, addr, sent)
		answer := sync.OnceFunc(func() { close(sent) })
		t.Cleanup(answer)
		none := func() any { return nil }
		kc, err := client.NewClient(&serviceinfo.ServiceInfo{
			ServiceName: service, HandlerType: (*any)(nil), PayloadCodec: serviceinfo.Thrift,
			Methods: map[string]serviceinfo.MethodInfo{
				"Nothing": serviceinfo.NewMethodInfo(nil, none, none, false, serviceinfo.WithStreamingMode(serviceinfo.StreamingBidirectional)),
			},
		}, client.WithDestService("chat"), client.WithHostPorts(proxy.addr), client.WithTransportProtocol(transport.TTHeaderStreaming))
		if err != nil {
			t.Fatal(err)
		}
		st, err := kc.(client.Streaming).StreamX(t.Context(), "Nothing")
		if err != nil {
			t.Fatal(err)
		}
		err = st.CloseSend(t.Context())
		answer()
		if err != nil {
			t.Fatal(err)
		}
		err = st.RecvMsg(t.Context(), twin.NewGenerateResponse())
		if err == nil || !strings.Contains(err.Error(), "unknown method Nothing") {
			t.Errorf("an unknown %s: %v", name, err)
		}
		trailer, _ := st.(interface {
			Trailer() (streaming.Trailer, error)
		}).Trailer()
		if biz, err := transmeta.ParseBizStatusErr(trailer); err != nil || biz == nil || biz.BizExtra()["reason"] != "invalid" {
			t.Errorf("an unknown %s: %v, %v", name, trailer, err)
		}
	}
}

// small sets a small message limit on a server.
func small(s *kitexrpc.Server) { s.MaxRecvBytes = 1 << 10 }

func TestMessageThatIsTooLargeIsRefused(t *testing.T) {
	addr := serve(t, newService("chat"), small)
	st, err := kitexClient(t, addr, tt).Generate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(t.Context(), &twin.GenerateRequest{Chat: &twin.ChatRequest{Model: strings.Repeat("m", 2000)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := drain(t.Context(), st); err == nil || !strings.Contains(err.Error(), "at most 1024 are allowed") {
		t.Errorf("%v", err)
	}
}

// TestClaimedFrameIsNotAllocated sends the first bytes of a frame of 1 GiB.
func TestClaimedFrameIsNotAllocated(t *testing.T) {
	conn, err := net.Dial("tcp", serve(t, newService("chat")))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	frame, err := ttheader.EncodeToBytes(t.Context(), ttheader.EncodeParam{
		Flags: ttheader.HeaderFlagsStreaming, SeqID: 1, ProtocolID: ttheader.ProtocolIDThriftStruct,
		IntInfo: map[uint16]string{ttheader.FrameType: ttheader.FrameTypeHeader, ttheader.ToMethod: "Generate"},
		StrInfo: map[string]string{ttheader.HeaderIDLServiceName: "Chat"},
	})
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint32(frame, 1<<30)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := conn.Write(frame); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
		t.Errorf("%d MiB were allocated", grown>>20)
	}
}

// TestCallerThatDoesNotReadLosesItsConnection has a caller that opens a stream by hand and never
// reads.
func TestCallerThatDoesNotReadLosesItsConnection(t *testing.T) {
	s := newService("chat")
	s.word = strings.Repeat("long ", 20000)
	addr := serve(t, s, func(s *kitexrpc.Server) { s.WriteTimeout = 200 * time.Millisecond })
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(opening(t, 1)); err != nil {
		t.Fatal(err)
	}
	if got := <-s.causes; got.Reason != streamerr.SlowReader || len(got.Path) > 0 {
		t.Errorf("the engine was stopped with %v", got)
	}
}

// opening returns the frames that open a stream with an id: its header and its request.
func opening(t *testing.T, id int32) []byte {
	t.Helper()
	req, err := ttrpc.Encode(&chatv1.GenerateRequest{Message: &chatv1.GenerateRequest_Chat{Chat: &chatv1.ChatRequest{}}})
	if err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, req.BLength())
	req.FastWriteNocopy(payload, nil)
	return append(frame(t, id, ttheader.FrameTypeHeader, nil), frame(t, id, ttheader.FrameTypeData, payload)...)
}

// frame returns a frame of a stream.
func frame(t *testing.T, id int32, kind string, payload []byte) []byte {
	t.Helper()
	b, err := ttheader.EncodeToBytes(t.Context(), ttheader.EncodeParam{
		Flags: ttheader.HeaderFlagsStreaming, SeqID: id, ProtocolID: ttheader.ProtocolIDThriftStruct,
		IntInfo: map[uint16]string{ttheader.FrameType: kind, ttheader.ToMethod: "Generate"},
		StrInfo: map[string]string{ttheader.HeaderIDLServiceName: "Chat"},
	})
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4+len(payload)))
	return append(b, payload...)
}

// TestReusedStreamIDDoesNotLoseTheFirstStream: Kitex would forget the first stream, so that neither
// its caller's messages nor its caller's cancel could reach it.
func TestReusedStreamIDDoesNotLoseTheFirstStream(t *testing.T) {
	s := newService("chat")
	conn, err := net.Dial("tcp", serve(t, s))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(polltest.Patience))
	if _, err := conn.Write(append(opening(t, 1), opening(t, 3)...)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil { // the server answers a stream
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	if _, err := conn.Write(opening(t, 1)); err != nil {
		t.Fatal(err)
	}
	if got := <-s.causes; got.Reason != streamerr.Invalid || !strings.Contains(got.Message, "a stream with the id 1, which an earlier stream of the connection has") {
		t.Errorf("the engine was stopped with %v", got)
	}
}

// TestServerStopsWhileConnectionsAreOpen: netpoll regards connections with TTHeader Streaming as
// busy.
func TestServerStopsWhileConnectionsAreOpen(t *testing.T) {
	srv := kitexrpc.NewServer()
	s := newService("chat")
	chatv1.RegisterChatServer(srv, s)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	st := open(t.Context(), t, kitexClient(t, ln.Addr().String(), tt), "completes")
	if _, err := drain(t.Context(), st); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(polltest.Patience))
	if _, err := conn.Write(opening(t, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil { // the server answers: it has the connection
		t.Fatal(err)
	}
	srv.Stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still open")
	}
}

// TestDeadlineOfACallerReachesTheCallee: this package's caller sends the deadline, as gRPC does.
func TestDeadlineOfACallerReachesTheCallee(t *testing.T) {
	s := newService("chat")
	cc := dial(t, "shop", serve(t, s))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	st, err := chatv1.NewChatClient(cc).Generate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(methods.Chat.Open(&chatv1.ChatRequest{})); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = st.Recv()
	}
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the caller got %v", err)
	}
	if got := <-s.causes; got.Reason != streamerr.Deadline {
		t.Errorf("the engine was stopped with %v", got)
	}
}

func dial(t *testing.T, self, addr string) *ttrpc.ClientConn {
	t.Helper()
	cc, err := ttrpc.Dial(self, addr, &chatv1.Chat_ServiceDesc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc
}

// TestRefusalOfAUnaryCallIsTyped checks that the status of a unary call arrives unchanged.
func TestRefusalOfAUnaryCallIsTyped(t *testing.T) {
	cc := dial(t, "shop", serve(t, newService("chat")))
	_, err := chatv1.NewChatClient(cc).Tokenize(t.Context(), &chatv1.TokenizeRequest{})
	if e := streamerr.FromGRPC("", err); !streamerr.FromHop(err) || e.Reason != streamerr.Overloaded || e.Path.String() != "chat" || e.Message != "later" || e.Param != "text" || e.RetryAfter != time.Second {
		t.Errorf("%v", err)
	}
	if got, err := chatv1.NewChatClient(cc).Models(t.Context(), &chatv1.ModelsRequest{}); err != nil || len(got.GetModels()) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestNoServerIsUnavailable dials an address without a listener.
func TestNoServerIsUnavailable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = ln.Close()
	cc := dial(t, "shop", ln.Addr().String())
	for range 2 { // Kitex's default pool waits forever the second time
		if _, err := chatv1.NewChatClient(cc).Generate(t.Context()); status.Code(err) != codes.Unavailable {
			t.Errorf("%v", err)
		}
	}
	engine := rpc.Dial("shop", "chat", chatv1.NewChatClient(cc).Generate, methods.Chat)
	for _, err := range engine.Range(t.Context(), &chatv1.ChatRequest{}) {
		if !errors.Is(err, streamerr.PeerLost) {
			t.Errorf("%v", err)
		}
	}
}
