package ttrpc_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/kerrors"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/pkg/streaming"
	"github.com/cloudwego/kitex/pkg/transmeta"
	"github.com/cloudwego/kitex/transport"
	"google.golang.org/grpc"

	twin "github.com/whence-dev/whence/idl/gen/thrift/chatv1"
	"github.com/whence-dev/whence/idl/gen/thrift/chatv1/chat"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/guard"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/rpc/ttrpc"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) {
	kitexrpc.LogTo(io.Discard)
	leaktest.Main(m)
}

// A service answers every request with the word "go" until it is stopped, or as the model's name
// says.
type service struct {
	chatv1.UnimplementedChatServer
	hop    *rpc.Hop
	word   string                // instead of "go", unless empty
	causes chan *streamerr.Error // why streams were stopped
}

func newService(name string) *service {
	return &service{hop: &rpc.Hop{Name: name, Log: slog.New(slog.DiscardHandler)}, causes: make(chan *streamerr.Error, 10)}
}

func (s *service) Generate(st grpc.BidiStreamingServer[chatv1.GenerateRequest, chatv1.GenerateResponse]) error {
	return rpc.Serve(s.hop, st, methods.Chat, stream.Push(s.generate))
}

func (s *service) Models(context.Context, *chatv1.ModelsRequest) (*chatv1.ModelsResponse, error) {
	return &chatv1.ModelsResponse{Models: []*chatv1.Model{{Id: "m", ContextLength: 1 << 31}}}, nil
}

func (s *service) Tokenize(context.Context, *chatv1.TokenizeRequest) (*chatv1.TokenizeResponse, error) {
	return nil, streamerr.Via(s.hop.Name, &streamerr.Error{Reason: streamerr.Overloaded, Message: "later", Param: "text", RetryAfter: time.Second})
}

func (s *service) generate(ctx context.Context, req *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
	return func(yield func(*chatv1.GenerateResponse, error) bool) {
		switch req.GetModel() {
		case "refuses":
			yield(nil, &streamerr.Error{Reason: streamerr.Overloaded, Message: "later", RetryAfter: 3 * time.Second})
			return
		case "panics":
			panic("unlucky")
		}
		if !yield(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Started{Started: &llmv1.Started{StreamId: req.GetStreamId()}}}, nil) {
			return
		}
		word := &chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_Delta{Delta: &chatv1.Delta{Text: cmp.Or(s.word, "go"), Tokens: 1}}}
		switch req.GetModel() {
		case "completes":
			_ = yield(word, nil) && yield(&chatv1.GenerateResponse{Message: &chatv1.GenerateResponse_End{End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED, Path: []string{"engine"}}}}, nil)
			return
		case "fails":
			yield(nil, streamerr.New(streamerr.EngineFailed, "out of luck"))
			return
		}
		for stream.ControlOf(ctx).State() == stream.Live {
			if !yield(word, nil) {
				break
			}
			select {
			case <-stream.Stopping(ctx):
			case <-time.After(time.Millisecond):
			}
		}
		s.causes <- streamerr.As(stream.Cause(ctx))
		yield(nil, stream.Cause(ctx))
	}
}

// serve serves s as chat-service does.
func serve(t testing.TB, s chatv1.ChatServer, set ...func(*kitexrpc.Server)) (addr string) {
	t.Helper()
	srv := kitexrpc.NewServer()
	for _, f := range set {
		f(srv)
	}
	chatv1.RegisterChatServer(guard.New(srv, guard.Options{Name: "chat", Limits: guard.Default.For(100)}), s)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := srv.Serve(ln); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { srv.Stop(); serving.Wait() })
	return ln.Addr().String()
}

// kitexClient returns a client as another team would use it: code that Kitex has generated from the
// Thrift twin, and none of our code.
func kitexClient(t testing.TB, addr string, protocol transport.Protocol) chat.Client {
	t.Helper()
	c, err := chat.NewClient("chat", client.WithHostPorts(addr), client.WithTransportProtocol(protocol),
		client.WithMetaHandler(transmeta.ClientTTHeaderHandler), client.WithClientBasicInfo(&rpcinfo.EndpointBasicInfo{ServiceName: "shop"}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const tt = transport.TTHeader | transport.TTHeaderStreaming

type kitexStream = streaming.BidiStreamingClient[twin.GenerateRequest, twin.GenerateResponse]

// open opens a stream with a request, and returns it once it has text.
func open(ctx context.Context, t testing.TB, c chat.Client, model string) kitexStream {
	t.Helper()
	st, err := c.Generate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(ctx, &twin.GenerateRequest{Chat: &twin.ChatRequest{Model: model}}); err != nil {
		t.Fatal(err)
	}
	for {
		out, err := st.Recv(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if out.Delta != nil {
			return st
		}
	}
}

// drain reads a stream to its end.
func drain(ctx context.Context, st kitexStream) (last *twin.GenerateResponse, err error) {
	for {
		out, err := st.Recv(ctx)
		if err != nil {
			return last, err
		}
		last = out
	}
}

func TestStreamOfAKitexClientCompletes(t *testing.T) {
	addr := serve(t, newService("chat"))
	for name, protocol := range map[string]transport.Protocol{"TTHeader Streaming": tt, "thrift over gRPC": transport.GRPC} {
		st := open(t.Context(), t, kitexClient(t, addr, protocol), "completes")
		if err := st.CloseSend(t.Context()); err != nil {
			t.Error(err)
		}
		last, err := drain(t.Context(), st)
		if !errors.Is(err, io.EOF) || last.End == nil || len(last.End.Path) != 2 || last.End.Path[1] != "chat" {
			t.Errorf("%s: %v, %v", name, last, err)
		}
		if trailer, err := st.Trailer(); err != nil || trailer["whence-end-reason"] != "completed" || trailer["whence-end-path"] != "engine > chat" {
			t.Errorf("%s: trailers %v, %v", name, trailer, err)
		}
	}
}

func TestUnaryCallsOfAKitexClient(t *testing.T) {
	addr := serve(t, newService("chat"))
	for name, protocol := range map[string]transport.Protocol{"TTHeader": tt, "thrift over gRPC": transport.GRPC} {
		c := kitexClient(t, addr, protocol)
		got, err := c.Models(t.Context(), &twin.ModelsRequest{})
		if err != nil || len(got.Models) != 1 || got.Models[0].Id != "m" || got.Models[0].ContextLength != 1<<31 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		_, err = c.Tokenize(t.Context(), &twin.TokenizeRequest{})
		if protocol == tt {
			biz, ok := kerrors.FromBizStatusError(err)
			if !ok || biz.BizStatusCode() != 13010 || biz.BizMessage() != "later" || biz.BizExtra()["reason"] != "overloaded" || biz.BizExtra()["path"] != "chat" || biz.BizExtra()["retry_after_ms"] != "1000" {
				t.Errorf("%s: %v", name, err)
			}
		} else if err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err = c.Detokenize(t.Context(), &twin.DetokenizeRequest{}); err == nil {
			t.Errorf("%s: a method without an implementation answered", name)
		}
	}
}

// TestCauseOfACancelReachesTheEngine checks the cause with which the engine of a canceled call is
// stopped.
func TestCauseOfACancelReachesTheEngine(t *testing.T) {
	s := newService("chat")
	addr := serve(t, s)
	for name, c := range map[string]struct {
		cancel func(t *testing.T, c chat.Client)
		want   streamerr.Error
	}{
		"without a cause": {func(t *testing.T, c chat.Client) {
			ctx, cancel := context.WithCancel(t.Context())
			st := open(ctx, t, c, "")
			cancel()
			_, _ = drain(ctx, st)
		}, streamerr.Error{Reason: streamerr.PeerReset, Path: streamerr.NewPath("shop"), Message: "the caller canceled the stream without a cause"}},
		"with a cause that Kitex does not send": {func(t *testing.T, c chat.Client) {
			ctx, cancel := context.WithCancelCause(t.Context())
			st := open(ctx, t, c, "")
			cancel(errors.New("the tab was closed"))
			_, _ = drain(ctx, st)
		}, streamerr.Error{Reason: streamerr.PeerReset, Path: streamerr.NewPath("shop"), Message: "the caller canceled the stream without a cause"}},
		"with a cause": {func(t *testing.T, c chat.Client) {
			ctx, cancel := context.WithCancelCause(t.Context())
			ctx = ttrpc.WithCause(ctx)
			st := open(ctx, t, c, "")
			cancel(errors.New("the tab was closed"))
			_, _ = drain(ctx, st)
		}, streamerr.Error{Reason: streamerr.UserStop, Path: streamerr.NewPath("shop"), Message: "the tab was closed"}},
		"with a typed cause": {func(t *testing.T, c chat.Client) {
			ctx, cancel := context.WithCancelCause(t.Context())
			ctx = ttrpc.WithCause(ctx)
			st := open(ctx, t, c, "")
			cancel(&streamerr.Error{Reason: streamerr.OperatorStop, Path: streamerr.NewPath("pager", "console"), Message: "too [expensive]"})
			_, _ = drain(ctx, st)
		}, streamerr.Error{Reason: streamerr.OperatorStop, Path: streamerr.NewPath("pager", "console", "shop"), Message: "too [expensive]"}},
		"by a deadline": {func(t *testing.T, c chat.Client) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			st := open(ctx, t, c, "")
			_, _ = drain(ctx, st)
		}, streamerr.Error{Reason: streamerr.Deadline, Path: streamerr.NewPath("shop")}},
		"by a message": {func(t *testing.T, c chat.Client) {
			st := open(t.Context(), t, c, "")
			stop := &twin.GenerateRequest{Stop: twinStop(streamerr.ClientGone, "shop")}
			if err := st.Send(t.Context(), stop); err != nil {
				t.Error(err)
			}
			_, _ = drain(t.Context(), st)
		}, streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("shop"), Message: "why not"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.cancel(t, kitexClient(t, addr, tt))
			got := <-s.causes
			if got.Reason != c.want.Reason || got.Path.String() != c.want.Path.String() || c.want.Message != "" && got.Message != c.want.Message {
				t.Errorf("the engine was stopped with %v", got)
			}
		})
	}
}

func TestLostConnectionIsNotAReset(t *testing.T) {
	s := newService("chat")
	addr := serve(t, s)
	proxy := newProxy(t, addr)
	st := open(t.Context(), t, kitexClient(t, proxy.addr, tt), "")
	proxy.cut()
	if got := <-s.causes; got.Reason != streamerr.PeerLost || got.Path.String() != "client" {
		t.Errorf("the engine was stopped with %v", got)
	}
	if _, err := drain(t.Context(), st); err == nil {
		t.Error("the caller got no error")
	}
}

// TestEndingsReachAKitexClient checks the error of Recv, and the trailers, which have more for
// programs.
func TestEndingsReachAKitexClient(t *testing.T) {
	for name, c := range map[string]struct {
		model  string
		act    func(*service)
		code   int32
		reason string
		text   string
	}{
		"failure":  {"fails", nil, 13016, "engine_failed", "engine failed: out of luck [chat]"},
		"refusal":  {"refuses", nil, 13010, "overloaded", "overloaded: later [chat]"},
		"panic":    {"panics", nil, 13017, "internal", "internal: a bug in chat ended this stream; its log has the details [chat]"},
		"drain":    {"", func(s *service) { s.hop.Live.Close(); s.hop.Drain(context.Background(), 0) }, 13007, "draining", "draining: "},
		"deadline": {"", func(s *service) { s.hop.Live.Stop("x", streamerr.New(streamerr.Deadline, "too long")) }, 13006, "deadline", "deadline: too long [chat]"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService("chat")
			cli := kitexClient(t, serve(t, s), tt)
			st, err := cli.Generate(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := st.Send(t.Context(), &twin.GenerateRequest{Chat: &twin.ChatRequest{Model: c.model, StreamId: "x"}}); err != nil {
				t.Fatal(err)
			}
			if c.act != nil {
				if _, err := st.Recv(t.Context()); err != nil {
					t.Fatal(err)
				}
				c.act(s)
			}
			_, err = drain(t.Context(), st)
			var typed interface{ TypeId() int32 }
			if !errors.As(err, &typed) || typed.TypeId() != 12001 || !strings.Contains(err.Error(), c.text) {
				t.Errorf("the caller got %v", err)
			}
			trailer, err := st.Trailer()
			if err != nil {
				t.Fatal(err)
			}
			biz, err := transmeta.ParseBizStatusErr(trailer)
			if err != nil || biz.BizStatusCode() != c.code || biz.BizExtra()["reason"] != c.reason || biz.BizExtra()["path"] != "chat" ||
				trailer["whence-end-reason"] != c.reason || trailer["whence-end-path"] != "chat" {
				t.Errorf("the trailers are %v (%v)", trailer, err)
			}
		})
	}
}
