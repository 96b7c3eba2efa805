package link_test

import (
	"context"
	"iter"
	"log/slog"
	"net"
	"sync"
	"testing"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/stream"

	"google.golang.org/grpc"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

type engine = stream.Engine[*workerv1.TokenRequest, *workerv1.GenerateResponse]

// A worker serves engine over a link.
type worker struct {
	workerv1.UnimplementedWorkerServer
	hop    *rpc.Hop
	engine engine
}

func (w *worker) Generate(st grpc.BidiStreamingServer[workerv1.GenerateRequest, workerv1.GenerateResponse]) error {
	return rpc.Serve(w.hop, st, methods.Worker, w.engine)
}

// KVEvents reads no messages after its request.
func (w *worker) KVEvents(_ *workerv1.KVEventsRequest, st grpc.ServerStreamingServer[workerv1.KVEventsResponse]) error {
	<-st.Context().Done()
	return st.Context().Err()
}

// serve returns a worker with a loop as its engine, and its address.
func serve(t testing.TB, o link.Options, loop stream.Sequence[*workerv1.TokenRequest, *workerv1.GenerateResponse]) (*worker, *link.Server, string) {
	t.Helper()
	return serveEngine(t, o, stream.Push(loop))
}

// serveEngine is serve for any engine.
func serveEngine(t testing.TB, o link.Options, engine engine) (*worker, *link.Server, string) {
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

func engineAt(client workerv1.WorkerClient) engine {
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

// awaitNone waits until no stream is live.
func awaitNone(t *testing.T, h *rpc.Hop) {
	t.Helper()
	polltest.Eventually(t, "no stream is live", func() bool { return h.Live.Len() == 0 })
}
