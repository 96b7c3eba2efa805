package link_test

import (
	"context"
	"log/slog"
	"net"
	"testing"

	"google.golang.org/grpc/test/bufconn"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/stream"
)

// serveInMemory is serve without a socket, for tests in virtual time.
func serveInMemory(t *testing.T, o link.Options, engine stream.Sequence[*workerv1.TokenRequest, *workerv1.GenerateResponse]) (*worker, *link.Server, *bufconn.Listener) {
	t.Helper()
	w := &worker{hop: &rpc.Hop{Name: "worker", Log: slog.New(slog.DiscardHandler), Observer: &ledger.Ledger{}}, engine: stream.Push(engine)}
	s, ln := link.NewServer(o), bufconn.Listen(64<<10)
	workerv1.RegisterWorkerServer(s, w)
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return w, s, ln
}

// dialInMemory is dial for a server of serveInMemory.
func dialInMemory(t *testing.T, ln *bufconn.Listener, o link.Options) workerv1.WorkerClient {
	t.Helper()
	o.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return ln.DialContext(ctx) }
	return dial(t, "callee", o)
}
