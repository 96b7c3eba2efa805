package link_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/rpc/link/frame"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"

	"google.golang.org/grpc"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A worker serves engine over a link.
type worker struct {
	workerv1.UnimplementedWorkerServer
	hop    *rpc.Hop
	engine stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse]
}

func (w *worker) Generate(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	return rpc.Serve(w.hop, st, methods.Worker, w.engine)
}

// KVEvents reads no messages after its request.
func (w *worker) KVEvents(_ *workerv1.KVEventsRequest, st grpc.ServerStreamingServer[workerv1.KVEventsResponse]) error {
	<-st.Context().Done()
	return st.Context().Err()
}

// serve returns a worker with engine, and its address.
func serve(t testing.TB, o link.Options, engine stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse]) (*worker, *link.Server, string) {
	t.Helper()
	w := &worker{hop: &rpc.Hop{Name: "worker", Log: slog.New(slog.DiscardHandler), Observer: &ledger.Ledger{}}, engine: engine}
	s, addr := serveWorker(t, o, w)
	return w, s, addr
}

// serveWorker serves svc over links, and returns the server and its address.
func serveWorker(t testing.TB, o link.Options, svc workerv1.WorkerServer) (*link.Server, string) {
	t.Helper()
	s := link.NewServer(o)
	workerv1.RegisterWorkerServer(s, svc)
	return s, listen(t, s)
}

// listen runs s until the test ends, and returns its address.
func listen(t testing.TB, s *link.Server) (addr string) {
	t.Helper()
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
	t.Cleanup(func() { s.Stop(); serving.Wait() })
	return ln.Addr().String()
}

func dial(t testing.TB, addr string, o link.Options) workerv1.WorkerClient {
	t.Helper()
	cc := link.NewClient(addr, o)
	t.Cleanup(func() { _ = cc.Close() })
	return workerv1.NewWorkerClient(cc)
}

func engineAt(client workerv1.WorkerClient) stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse] {
	return rpc.Dial("caller", "worker", client.Generate, methods.Worker)
}

func tokens(ids ...uint32) *workerv1.GenerateResponse {
	return &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: ids}}}
}

// count yields the numbers below prompt[0], prompt[1] times each, and an End. It ends when it is
// stopped.
func count(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		stopping := stream.Stopping(ctx)
		for i := range req.GetPrompt()[0] {
			select {
			case <-stopping:
				yield(nil, stream.Cause(ctx))
				return
			default:
			}
			ids := make([]uint32, req.GetPrompt()[1])
			for at := range ids {
				ids[at] = i
			}
			if !yield(tokens(ids...), nil) {
				return
			}
		}
		yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED}}}, nil)
	}
}

// A cutter relays connections frame by frame, and breaks them after a number of frames.
type cutter struct {
	net.Listener
	to   string
	mu   sync.Mutex
	left int // frames until the break
	all  int // relayed frames
}

// allow reports whether one more frame may pass, and counts it.
func (c *cutter) allow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 {
		return false
	}
	c.left--
	c.all++
	return true
}

func newCutter(t *testing.T, to string, after int) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{Listener: ln, to: to, left: after}
	var relays sync.WaitGroup
	relays.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			for from, to := range map[net.Conn]net.Conn{in: out, out: in} {
				relays.Go(func() {
					c.relay(to, from)
					_, _ = to.Close(), from.Close()
				})
			}
		}
	})
	t.Cleanup(func() { _ = ln.Close(); relays.Wait() })
	return c
}

func (c *cutter) relay(to io.Writer, from io.Reader) {
	var have []byte
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		have = append(have, buf[:n]...)
		for {
			_, size, bad := frame.Decode(have)
			if bad != nil {
				return // not a peer of this test: it dials a port that another test used before
			}
			if size == 0 {
				break
			}
			if !c.allow() {
				return
			}
			if _, err := to.Write(have[:size]); err != nil {
				return
			}
			have = have[size:]
		}
		if err != nil {
			return
		}
	}
}

// TestConnectionLostAtEveryFrame plays streams over a connection that breaks after each number of
// frames. On both ends each stream ends once: as it would have ended, or with PEER_LOST. The items
// before the break are the beginning of the answer.
func TestConnectionLostAtEveryFrame(t *testing.T) {
	w, _, addr := serve(t, link.Options{}, count)
	for _, seed := range []uint64{1, 2, 3} {
		for after, all := 0, 1; after < all; after++ {
			c := newCutter(t, addr, after)
			client := dial(t, c.Addr().String(), link.Options{Links: 1})
			playOnce(t, client, rand.New(rand.NewPCG(seed, 0)), fmt.Sprintf("%d-%d", seed, after))
			awaitNone(t, w.hop)
			checkRecords(t, w.hop, fmt.Sprintf("%d-%d", seed, after))
			c.mu.Lock()
			if c.left == 0 {
				all = after + 2 // the break came before the end of the streams
			}
			c.mu.Unlock()
			if after > 500 {
				t.Fatal("the streams need more than 500 frames")
			}
		}
	}
}

// plays is the number of streams in playOnce.
const plays = 4

// playOnce runs a few concurrent streams: short and long, with small and large messages. Some of
// them are stopped.
func playOnce(t *testing.T, client workerv1.WorkerClient, r *rand.Rand, name string) {
	t.Helper()
	var playing sync.WaitGroup
	defer playing.Wait()
	for i := range plays {
		items, width, padding, stopAt := uint32(1+r.IntN(8)), uint32(1+r.IntN(3)*6000), r.IntN(3)*30_000, -1
		if r.IntN(2) == 0 {
			items, stopAt = 1<<30, 1+r.IntN(4)
		}
		playing.Go(func() {
			prompt := make([]uint32, 2+padding)
			prompt[0], prompt[1] = items, width
			ctx, ctl := stream.WithControl(t.Context(), time.Minute)
			defer ctl.Release()
			n := 0
			var last error
			ended := false
			for out, err := range engineAt(client)(ctx, &workerv1.TokenRequest{StreamId: fmt.Sprintf("%s-%d", name, i), Prompt: prompt}) {
				switch {
				case err != nil:
					last = err
				case out.GetEnd() != nil:
					ended = true
				default:
					if ids := out.GetTokens().GetIds(); len(ids) != int(width) || ids[0] != uint32(n) || ids[width-1] != uint32(n) {
						t.Errorf("%s, stream %d: item %d is wrong", name, i, n)
					}
					n++
				}
				if n == stopAt {
					ctl.Stop(streamerr.UserStop)
				}
			}
			switch {
			case ended && (last != nil || n != int(items)):
				t.Errorf("%s, stream %d: %d of %d items, then an End and %v", name, i, n, items, last)
			case !ended && last == nil:
				t.Errorf("%s, stream %d: no ending", name, i)
			case last != nil && !errors.Is(last, streamerr.PeerLost) && !errors.Is(last, streamerr.UserStop):
				t.Errorf("%s, stream %d: %v", name, i, last)
			}
		})
	}
}

// awaitNone waits until no stream is live.
func awaitNone(t *testing.T, h *rpc.Hop) {
	t.Helper()
	for until := time.Now().Add(time.Minute); h.Live.Len() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d streams are still live", h.Live.Len())
		}
	}
}

// checkRecords checks how the streams of one play have ended on the callee.
func checkRecords(t *testing.T, h *rpc.Hop, name string) {
	t.Helper()
	for i := range plays {
		id := fmt.Sprintf("%s-%d", name, i)
		r := ledger.At(h).Get(id)
		// The callee may read a request only after its caller has noticed the break.
		for until := time.Now().Add(time.Minute); r != nil && r.GetState() != streamv1.State_STATE_ENDED && time.Now().Before(until); r = ledger.At(h).Get(id) {
			time.Sleep(time.Millisecond)
		}
		switch reason := streamerr.Reason(r.GetReason()); {
		case r == nil: // the request did not arrive
		case r.GetState() != streamv1.State_STATE_ENDED:
			t.Errorf("%s, stream %d: the callee's record is %v", name, i, r.GetState())
		case reason != streamerr.Completed && reason != streamerr.PeerLost && reason != streamerr.UserStop:
			t.Errorf("%s, stream %d: the callee's record has %v: %s", name, i, reason, r.GetMessage())
		}
	}
}
