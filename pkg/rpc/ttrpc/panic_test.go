package ttrpc_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/cloudwego/kitex/pkg/klog"
	"google.golang.org/grpc"

	twin "github.com/whence-dev/whence/idl/gen/thrift/chatv1"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
)

// A buggyService panics before package rpc handles its calls.
type buggyService struct {
	chatv1.UnimplementedChatServer
}

func (buggyService) Generate(st grpc.BidiStreamingServer[chatv1.GenerateRequest, chatv1.GenerateResponse]) error {
	_, _ = st.Recv() // Kitex's client has a data race with a stream that ends while it is made
	panic("the secret of the service")
}

func (buggyService) Models(context.Context, *chatv1.ModelsRequest) (*chatv1.ModelsResponse, error) {
	panic("the secret of the service")
}

// TestPanicOfAHandlerIsLoggedButNotSent: the log has the stack, and the caller receives neither the
// stack nor the panic's text.
func TestPanicOfAHandlerIsLoggedButNotSent(t *testing.T) {
	var log logtest.Log
	kitexrpc.LogTo(&log)
	t.Cleanup(func() { kitexrpc.LogTo(io.Discard) })
	srv := kitexrpc.NewServer()
	chatv1.RegisterChatServer(srv, buggyService{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(ln) })
	defer func() { srv.Stop(); serving.Wait() }()
	c := kitexClient(t, ln.Addr().String(), tt)
	for name, call := range map[string]func() error{
		"Generate": func() error {
			st, err := c.Generate(t.Context())
			if err != nil {
				return err
			}
			if err := st.CloseSend(t.Context()); err != nil {
				return err
			}
			_, err = drain(t.Context(), st)
			trailer, _ := st.Trailer()
			if trailer["whence-end-reason"] != "internal" {
				t.Errorf("the trailers are %v", trailer)
			}
			return err
		},
		"Models": func() error {
			_, err := c.Models(t.Context(), &twin.ModelsRequest{})
			return err
		},
	} {
		err := call()
		if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "log of its service") {
			t.Errorf("%s: the caller got %v", name, err)
		}
		if text := log.String(); !strings.Contains(text, "panic in the handler of whence.chat.v1.Chat/"+name+": the secret") || !strings.Contains(text, "buggyService."+name) {
			t.Errorf("%s: the log has %s", name, text)
		}
	}
}

// TestPanicThatKitexHasCaughtIsLogged: a panic of a middleware, whose stack Kitex logs.
func TestPanicThatKitexHasCaughtIsLogged(t *testing.T) {
	var log logtest.Log
	kitexrpc.LogTo(&log)
	t.Cleanup(func() { kitexrpc.LogTo(io.Discard) })
	klog.Errorf("KITEX: processing ttstream request error, remoteAddr=x, error=draining")
	klog.Errorf("KITEX: processing ttstream request error, remoteAddr=x, error=[biz]\nstack=goroutine 1")
	if text := log.String(); strings.Contains(text, "draining") || !strings.Contains(text, "goroutine 1") {
		t.Error(text)
	}
}
