package e2e

import (
	"context"
	endian "encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/gopkg/protocol/thrift"
	"github.com/cloudwego/gopkg/protocol/ttheader"
	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/pkg/streaming"
	"github.com/cloudwego/kitex/pkg/transmeta"
	"github.com/cloudwego/kitex/server"
	"github.com/cloudwego/kitex/transport"

	twin "github.com/whence-dev/whence/idl/gen/thrift/chatv1"
	"github.com/whence-dev/whence/idl/gen/thrift/chatv1/chat"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/pollnet/pollnettest"
	"github.com/whence-dev/whence/pkg/rpc/thriftwire"
	"github.com/whence-dev/whence/pkg/rpc/ttrpc"
)

// shop and cart are services of another team: they have only the Thrift twin of our proto and
// Kitex's code generated from it.
const (
	shop = "shop"
	cart = "cart"
)

type twinStream = streaming.BidiStreamingClient[twin.GenerateRequest, twin.GenerateResponse]

// dialTTStream returns the client of a service over TTHeader Streaming.
func dialTTStream(t *testing.T, self, addr string) chat.Client {
	t.Helper()
	c, err := chat.NewClient("chat-service", client.WithHostPorts(addr), client.WithTransportProtocol(transport.TTHeader|transport.TTHeaderStreaming),
		client.WithMetaHandler(transmeta.ClientTTHeaderHandler), client.WithClientBasicInfo(&rpcinfo.EndpointBasicInfo{ServiceName: self}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { runtime.KeepAlive(c) }) // Kitex closes the connections of a client that is garbage
	return c
}

// twinRequest returns a request with a long answer.
func twinRequest(t *testing.T, id string) *twin.GenerateRequest {
	t.Helper()
	req := chatRequest(long)
	req.StreamId = id
	b, err := thriftwire.Append(nil, &chatv1.GenerateRequest{Message: &chatv1.GenerateRequest_Chat{Chat: req}})
	if err != nil {
		t.Fatal(err)
	}
	out := twin.NewGenerateRequest()
	if err := thrift.FastUnmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// flowingTT opens a stream and returns it at the first text.
func (s *scene) flowingTT(ctx context.Context, c chat.Client) twinStream {
	s.t.Helper()
	st, err := c.Generate(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := st.Send(ctx, twinRequest(s.t, s.id)); err != nil {
		s.t.Fatal(err)
	}
	for {
		out, err := st.Recv(ctx)
		if err != nil {
			s.t.Fatal(err)
		}
		if out.Delta != nil {
			return st
		}
	}
}

// overTT reads a stream to its end, and returns the ending in its trailers.
func overTT(ctx context.Context, st twinStream) *refusal {
	for {
		if _, err := st.Recv(ctx); err != nil {
			break
		}
	}
	trailer, err := st.Trailer()
	if err != nil {
		return nil
	}
	reason := trailer["whence-end-reason"]
	return &refusal{Reason: reason, Path: strings.Split(trailer["whence-end-path"], " > ")}
}

// canceledTT is a stream that its caller cancels.
func (s *scene) canceledTT() *refusal {
	ctx, cancel := context.WithCancel(s.t.Context())
	st := s.flowingTT(ctx, dialTTStream(s.t, shop, s.chat))
	s.fault(cancel)
	return overTT(ctx, st)
}

// canceledTTWithCause is a stream that its caller cancels with a cause.
func (s *scene) canceledTTWithCause() *refusal {
	ctx, cancel := context.WithCancelCause(s.t.Context())
	ctx = ttrpc.WithCause(ctx)
	st := s.flowingTT(ctx, dialTTStream(s.t, shop, s.chat))
	s.fault(func() { cancel(errors.New("the customer has left")) })
	return overTT(ctx, st)
}

// timedOutTT is a stream whose caller has a deadline.
func (s *scene) timedOutTT() *refusal {
	ctx, cancel := context.WithTimeout(s.t.Context(), 700*time.Millisecond)
	defer cancel()
	s.at = time.Now().Add(700 * time.Millisecond)
	return overTT(ctx, s.flowingTT(ctx, dialTTStream(s.t, shop, s.chat)))
}

// canceledTTChain is a stream from shop over cart to chat-service, all over TTHeader Streaming.
func (s *scene) canceledTTChain() *refusal {
	addr := serveCart(s.t, &relayingCart{t: s.t, below: dialTTStream(s.t, cart, s.chat)})
	ctx, cancel := context.WithCancel(s.t.Context())
	st := s.flowingTT(ctx, dialTTStream(s.t, shop, addr))
	s.fault(cancel)
	return overTT(ctx, st)
}

// canceledMixedChain is a stream from shop to cart over TTHeader Streaming, from cart to
// chat-service over Kitex's gRPC, and from chat-service to llm-worker over grpc-go. Kitex's gRPC
// resets without a cause and a name.
func (s *scene) canceledMixedChain() *refusal {
	below, err := chat.NewClient("chat-service", client.WithHostPorts(s.chat), client.WithTransportProtocol(transport.GRPC),
		client.WithClientBasicInfo(&rpcinfo.EndpointBasicInfo{ServiceName: cart}))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { runtime.KeepAlive(below) })
	addr := serveCart(s.t, &relayingCart{t: s.t, below: below})
	ctx, cancel := context.WithCancel(s.t.Context())
	st := s.flowingTT(ctx, dialTTStream(s.t, shop, addr))
	s.fault(cancel)
	return overTT(ctx, st)
}

// byHandTT opens a stream without a Kitex client, because the connections of Kitex's clients cannot
// be broken. dialer makes the connection.
func (s *scene) byHandTT(dialer net.Dialer) *net.TCPConn {
	s.t.Helper()
	req := chatRequest(long)
	req.StreamId = s.id
	payload, err := thriftwire.Append(nil, &chatv1.GenerateRequest{Message: &chatv1.GenerateRequest_Chat{Chat: req}})
	if err != nil {
		s.t.Fatal(err)
	}
	conn, err := dialer.DialContext(s.t.Context(), "tcp", s.chat)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	for _, f := range []struct {
		kind    string
		payload []byte
	}{{ttheader.FrameTypeHeader, nil}, {ttheader.FrameTypeData, payload}} {
		frame, err := ttheader.EncodeToBytes(s.t.Context(), ttheader.EncodeParam{
			Flags: ttheader.HeaderFlagsStreaming, SeqID: 1, ProtocolID: ttheader.ProtocolIDThriftStruct,
			IntInfo: map[uint16]string{ttheader.FrameType: f.kind, ttheader.ToMethod: "Generate"},
			StrInfo: map[string]string{ttheader.HeaderIDLServiceName: "Chat"},
		})
		if err != nil {
			s.t.Fatal(err)
		}
		endian.BigEndian.PutUint32(frame, uint32(len(frame)-4+len(f.payload)))
		if _, err := conn.Write(append(frame, f.payload...)); err != nil {
			s.t.Fatal(err)
		}
	}
	return conn.(*net.TCPConn)
}

// lostTT is a stream whose caller's connection breaks.
func (s *scene) lostTT() *refusal {
	conn := s.byHandTT(net.Dialer{})
	if _, err := io.ReadFull(conn, make([]byte, 2000)); err != nil { // the stream has text
		s.t.Fatal(err)
	}
	_ = conn.SetLinger(0)
	s.fault(func() { _ = conn.Close() })
	return nil
}

// drainedTT is a stream of a process that drains.
func (s *scene) drainedTT() *refusal {
	st := s.flowingTT(s.t.Context(), dialTTStream(s.t, shop, s.chat))
	s.fault(func() { s.procs[chatService].terminate(s.t) })
	s.at = s.at.Add(200 * time.Millisecond)
	l := overTT(s.t.Context(), st)
	s.procs[chatService].exit(s.t)
	return l
}

// builtInFaultTT is a stream with a built-in fault.
func (s *scene) builtInFaultTT() *refusal {
	ctx := s.t.Context()
	st, err := dialTTStream(s.t, shop, s.chat).Generate(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	s.at = time.Now()
	if err := st.Send(ctx, twinRequest(s.t, s.id)); err != nil {
		s.t.Fatal(err)
	}
	return overTT(ctx, st)
}

// A relayingCart is a Kitex service that forwards a stream with the context of its handler.
type relayingCart struct {
	twin.Chat // the other methods are not called

	t     *testing.T
	below chat.Client
}

// Generate implements chat.Chat.
func (c *relayingCart) Generate(ctx context.Context, above twin.Chat_GenerateServer) error {
	st, err := c.below.Generate(ctx)
	if err != nil {
		return err
	}
	req, err := above.Recv(ctx)
	if err != nil {
		return err
	}
	if err := st.Send(ctx, req); err != nil {
		return err
	}
	for {
		out, err := st.Recv(ctx)
		if err != nil {
			return err
		}
		if err := above.Send(ctx, out); err != nil {
			return err
		}
	}
}

// serveCart serves cart with Kitex alone.
func serveCart(t *testing.T, impl twin.Chat) (addr string) {
	t.Helper()
	ln := pollnettest.Listen(t)
	exit := make(chan error)
	svr := server.NewServer(server.WithListener(ln), server.WithExitSignal(func() <-chan error { return exit }), server.WithExitWaitTime(100*time.Millisecond))
	if err := svr.RegisterService(chat.NewServiceInfo(), impl); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = svr.Run() }() // the error only says that connections are still open
	t.Cleanup(func() { close(exit); <-ended })
	return ln.Addr().String()
}
