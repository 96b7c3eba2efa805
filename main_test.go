package main

import (
	"context"
	"flag"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whence-dev/whence/api-service/edge"
	"github.com/whence-dev/whence/gateway"
	chatv1 "github.com/whence-dev/whence/idl/gen/whence/chat/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/stream"
)

func TestMain(m *testing.M) {
	edge.LogTo(io.Discard)
	leaktest.Main(m)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() }) // in case no service has
	return ln
}

// TestPathLeavesNothingBehind runs the whole path in this process, with streams that complete, that
// are refused and that are left, and ends it; TestMain then looks for goroutines.
func TestPathLeavesNothingBehind(t *testing.T) {
	var c config
	c.flags(flag.NewFlagSet("test", flag.ContinueOnError))
	c.grace = 10 * time.Second
	c.middle, c.work = listen(t), listen(t)
	ln := listen(t)
	ctx, cancel := context.WithCancel(context.Background())
	var path sync.WaitGroup
	path.Go(func() {
		if err := runAll(ctx, c, ln, slog.New(slog.DiscardHandler)); err != nil {
			t.Error(err)
		}
	})
	if !ready(t.Context(), c.edge.TLS, ln.Addr()) {
		t.Fatal("not ready")
	}
	exercise(t, ln.Addr())
	cancel()
	path.Wait()
}

// TestGatewayLeavesNothingBehind does the same with a gateway and a worker. An item stays on one goroutine in both services of
// the gateway.
func TestGatewayLeavesNothingBehind(t *testing.T) {
	listen := func() net.Listener {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	front, back := listen(), listen()
	discard := slog.New(slog.DiscardHandler)
	var engine worker.Config
	engine.Flags(flag.NewFlagSet("worker", flag.ContinueOnError))
	engine.Grace = 0
	var c gateway.Config
	fs := flag.NewFlagSet("gateway", flag.ContinueOnError)
	c.Flags(fs)
	if err := fs.Parse([]string{"--worker", back.Addr().String(), "--drain", "100ms"}); err != nil {
		t.Fatal(err)
	}
	stacks := make(chan string, 1)
	c.Edge.Stage = func(next stream.Sequence[*chatv1.ChatRequest, *chatv1.GenerateResponse]) stream.Sequence[*chatv1.ChatRequest, *chatv1.GenerateResponse] {
		return func(ctx context.Context, req *chatv1.ChatRequest) iter.Seq2[*chatv1.GenerateResponse, error] {
			return func(yield func(*chatv1.GenerateResponse, error) bool) {
				for item, err := range next(ctx, req) {
					if item.GetDelta() != nil {
						select {
						case stacks <- string(debug.Stack()):
						default: // one is enough
						}
					}
					if !yield(item, err) {
						return
					}
				}
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var services sync.WaitGroup
	services.Go(func() {
		if err := worker.Run(ctx, engine, back, discard); err != nil {
			t.Error(err)
		}
	})
	gatewayDone := make(chan struct{})
	end, stop := context.WithCancel(ctx)
	services.Go(func() {
		defer close(gatewayDone)
		if err := gateway.Run(end, c, front, discard); err != nil {
			t.Error(err)
		}
	})
	if !ready(t.Context(), c.Edge.TLS, front.Addr()) {
		t.Fatal("not ready")
	}
	exercise(t, front.Addr())
	if stack := <-stacks; !strings.Contains(stack, "/chat-service/route.") {
		t.Errorf("api-service has the items of a stream on a goroutine that is not the one of chat-service that receives them:\n%s", stack)
	}
	stop()
	<-gatewayDone
	cancel()
	services.Wait()
}

// exercise sends requests that complete, that are refused, and that are left.
func exercise(t *testing.T, edge net.Addr) {
	t.Helper()
	var clients sync.WaitGroup
	for i := range 30 {
		clients.Go(func() {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			messages, stream := `[{"role":"user","content":"Count to 50."}]`, "true"
			switch i % 4 {
			case 1:
				messages = `[]`
			case 2:
				stream = "false"
			case 3:
				time.AfterFunc(time.Duration(i)*time.Millisecond, leave)
			}
			body := `{"model":"whence-tiny","temperature":0,"stream":` + stream + `,"messages":` + messages + `}`
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+edge.String()+"/v1/chat/completions", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				if i%4 != 3 {
					t.Error(err)
				}
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			switch i % 4 {
			case 0:
				if err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
					t.Errorf("%v: %s", err, text)
				}
			case 1:
				if resp.StatusCode != http.StatusBadRequest {
					t.Error(resp.StatusCode)
				}
			case 2:
				if !strings.Contains(string(text), "48, 49, 50") {
					t.Errorf("%s", text)
				}
			}
		})
	}
	clients.Wait()
	http.DefaultClient.CloseIdleConnections()
}

func TestGatewayWithoutAModelFails(t *testing.T) {
	var c gateway.Config
	c.Flags(flag.NewFlagSet("gateway", flag.ContinueOnError))
	c.Chat.Model = t.TempDir() // an empty directory has no model
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := gateway.Run(t.Context(), c, ln, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "config.json") {
		t.Error(err)
	}
}

func TestOneServiceThatFailsEndsTheOthers(t *testing.T) {
	var c config
	c.flags(flag.NewFlagSet("test", flag.ContinueOnError))
	c.middle, c.work = listen(t), listen(t)
	c.server.Model = t.TempDir() // an empty directory has no model
	if err := runAll(t.Context(), c, listen(t), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "config.json") {
		t.Error(err)
	}
}
