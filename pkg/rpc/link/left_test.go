package link_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/guard"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// serveGuarded serves an engine over links, behind a guard.
func serveGuarded(t *testing.T, e engine, o guard.Options) (w *worker, addr string) {
	t.Helper()
	w = &worker{hop: &rpc.Hop{Name: "relay", Log: slog.New(slog.DiscardHandler), Observer: &ledger.Ledger{}}, engine: e}
	srv := link.NewServer(link.Options{})
	workerv1.RegisterWorkerServer(guard.New(srv, o), w)
	return w, listen(t, srv)
}

// An openCalls is a guard.Observer that counts the open calls.
type openCalls struct{ n atomic.Int64 }

func (o *openCalls) CallOpened()      { o.n.Add(1) }
func (*openCalls) CallBegun()         {}
func (o *openCalls) CallClosed(bool)  { o.n.Add(-1) }
func (*openCalls) CallRefused(string) {}

// TestHandlerThatHasLeft: a stream between two links keeps no goroutine on the relay. Its call
// counts as open until it has ended, and its caller is told the ending.
func TestHandlerThatHasLeft(t *testing.T) {
	const streams = 20
	below, _, lower := serve(t, link.Options{}, waiting)
	next := dial(t, lower, link.Options{Links: 1})
	open := &openCalls{}
	relay, addr := serveGuarded(t, rpc.Dial("relay", "worker", next.Generate, methods.Worker), guard.Options{Name: "relay", Limits: guard.Limits{Total: streams}, Observer: open})
	client := dial(t, addr, link.Options{Links: 1})
	stop := func(id string, st workerv1.Worker_GenerateClient) {
		relay.hop.Live.Stop(id, streamerr.New(streamerr.UserStop, "enough"))
		for {
			if _, err := st.Recv(); err != nil {
				if got := streamerr.FromGRPC("relay", err); got.Reason != streamerr.UserStop {
					t.Errorf("%s ended with %v", id, err)
				}
				return
			}
		}
	}
	begun := func(id string) workerv1.Worker_GenerateClient {
		st := begin(t, t.Context(), client, id, 0, 0)
		if _, err := st.Recv(); err != nil {
			t.Fatal(err)
		}
		return st
	}
	stop("first", begun("first")) // opens the connections
	polltest.Eventually(t, "the first call is closed", func() bool { return open.n.Load() == 0 })
	before := runtime.NumGoroutine()
	all := map[string]workerv1.Worker_GenerateClient{}
	for i := range streams {
		id := fmt.Sprint("s-", i)
		all[id] = begun(id)
	}
	polltest.Eventually(t, "each stream has one goroutine, the engine's", func() bool { return runtime.NumGoroutine()-before <= streams })
	if n := open.n.Load(); n != streams {
		t.Errorf("%d calls are open, want %d", n, streams)
	}
	_, err := begin(t, t.Context(), client, "one more", 0, 0).Recv()
	if got := streamerr.FromGRPC("relay", err); got == nil || got.Reason != streamerr.Overloaded {
		t.Errorf("a call beyond the limit: %v", err)
	}
	for id, st := range all {
		stop(id, st)
	}
	polltest.Eventually(t, "all calls are closed", func() bool { return open.n.Load() == 0 })
	awaitNone(t, relay.hop)
	awaitNone(t, below.hop)
	stop("last", begun("last"))
}

// TestEngineThatPanicsOrExitsLater: after its handler has returned. The stream ends with INTERNAL, and
// the call is closed.
func TestEngineThatPanicsOrExitsLater(t *testing.T) {
	for name, fails := range map[string]func(){"panic": func() { panic("oops") }, "exit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			open := &openCalls{}
			relay, addr := serveGuarded(t, func(ctx context.Context, _ *workerv1.TokenRequest, to stream.Reader[*workerv1.GenerateResponse]) {
				e := &stream.Entry[*workerv1.GenerateResponse]{}
				e.Init(ctx, to)
				go e.Run(func() error {
					e.Item(nil, tokens(1))
					fails()
					return nil
				})
			}, guard.Options{Observer: open})
			st := begin(t, t.Context(), dial(t, addr, link.Options{Links: 1}), "s", 0, 0)
			_, err := st.Recv()
			if err == nil {
				_, err = st.Recv()
			}
			if got := streamerr.FromGRPC("relay", err); got == nil || got.Reason != streamerr.Internal {
				t.Errorf("the stream ended with %v", err)
			}
			polltest.Eventually(t, "the call is closed", func() bool { return open.n.Load() == 0 })
			awaitNone(t, relay.hop)
		})
	}
}

// TestCallIsClosedBeforeItsEndIsSent: a caller that has received the end of one call may open the
// next, even if only one call may be open.
func TestCallIsClosedBeforeItsEndIsSent(t *testing.T) {
	_, _, lower := serve(t, link.Options{}, count)
	next := dial(t, lower, link.Options{Links: 1})
	_, addr := serveGuarded(t, rpc.Dial("relay", "worker", next.Generate, methods.Worker), guard.Options{Name: "relay", Limits: guard.Limits{Total: 1}, Observer: &openCalls{}})
	client := engineAt(dial(t, addr, link.Options{Links: 1}))
	for i := range 300 {
		ctx, ctl := stream.WithControl(t.Context(), polltest.Patience)
		for _, err := range client.Range(ctx, &workerv1.TokenRequest{StreamId: fmt.Sprint(i), Prompt: []uint32{20, 1}}) {
			if err != nil {
				t.Fatal(i, err)
			}
		}
		ctl.Release()
	}
}
