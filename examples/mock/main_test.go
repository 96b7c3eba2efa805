package main

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/kerrors"
	"github.com/cloudwego/kitex/pkg/transmeta"
	"github.com/cloudwego/kitex/transport"

	twin "github.com/whence-dev/whence/idl/gen/thrift/chatv1"
	"github.com/whence-dev/whence/idl/gen/thrift/chatv1/chat"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
)

func TestMain(m *testing.M) {
	kitexrpc.LogTo(io.Discard)
	leaktest.Main(m)
}

// start serves script.json and returns a generated client.
func start(t *testing.T, protocol transport.Protocol) chat.Client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	addr, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- run(ctx, "../../idl/thrift/chat.thrift", "script.json", "127.0.0.1:0", func(a net.Addr) { addr <- a })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case at := <-addr:
		c, err := chat.NewClient("chat", client.WithHostPorts(at.String()), client.WithTransportProtocol(protocol), client.WithMetaHandler(transmeta.ClientTTHeaderHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { runtime.KeepAlive(c) }) // Kitex closes the connections of a client that is garbage
		return c
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
		return nil
	}
}

func TestMockAnswersFromItsScript(t *testing.T) {
	for name, protocol := range map[string]transport.Protocol{"TTHeader Streaming": transport.TTHeader | transport.TTHeaderStreaming, "gRPC": transport.GRPC} {
		t.Run(name, func(t *testing.T) {
			c := start(t, protocol)
			models, err := c.Models(t.Context(), &twin.ModelsRequest{})
			if err != nil || len(models.Models) != 1 || models.Models[0].Id != "mock-model" || models.Models[0].ContextLength != 4096 {
				t.Errorf("%v, %v", models, err)
			}
			st, err := c.Generate(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := st.Send(t.Context(), &twin.GenerateRequest{Chat: &twin.ChatRequest{}}); err != nil {
				t.Fatal(err)
			}
			text, tokens := "", int64(0)
			for {
				out, err := st.Recv(t.Context())
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if out.Delta != nil {
					text += out.Delta.Text
				}
				if out.End != nil {
					tokens = out.End.Usage.CompletionTokens
				}
			}
			if text != "Hello there." || tokens != 3 {
				t.Errorf("%q, %d tokens", text, tokens)
			}
		})
	}
}

func TestMockFailsAsItsScriptSays(t *testing.T) {
	c := start(t, transport.TTHeader|transport.TTHeaderStreaming)
	st, err := c.Converse(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(t.Context(), &twin.ConverseRequest{Chat: &twin.ChatRequest{}}); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = st.Recv(t.Context())
	}
	var typed interface{ TypeId() int32 } // like an error of chat-service's streams
	if !errors.As(err, &typed) || typed.TypeId() != 12001 || !strings.Contains(err.Error(), "draining: mock is shutting down [mock]") {
		t.Errorf("%v", err)
	}
	trailer, err := st.Trailer()
	if err != nil {
		t.Fatal(err)
	}
	biz, err := transmeta.ParseBizStatusErr(trailer)
	if err != nil || biz.BizStatusCode() != 13007 || biz.BizExtra()["reason"] != "draining" || biz.BizExtra()["path"] != "mock" ||
		trailer["whence-end-reason"] != "draining" || trailer["whence-end-path"] != "mock" {
		t.Errorf("the trailers are %v (%v)", trailer, err)
	}
	_, err = c.Workers(t.Context(), &twin.WorkersRequest{})
	if biz, ok := kerrors.FromBizStatusError(err); !ok || biz.BizStatusCode() != 13012 || biz.BizExtra()["reason"] != "invalid" {
		t.Errorf("a method without an answer: %v", err)
	}
}
