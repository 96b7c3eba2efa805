package link_test

import (
	"context"
	"runtime"
	"testing"

	"google.golang.org/grpc"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc/link"
)

// A hydrant sends empty messages until its caller leaves.
type hydrant struct {
	workerv1.UnimplementedWorkerServer
}

func (hydrant) KVEvents(_ *workerv1.KVEventsRequest, st grpc.ServerStreamingServer[workerv1.KVEventsResponse]) error {
	m := &workerv1.KVEventsResponse{}
	for {
		if err := st.Send(m); err != nil {
			return err
		}
	}
}

// TestMessagesAllocateNothing: neither end allocates once buffers have reached their size. The
// messages have no fields, because protobuf's allocations for fields are not counted.
func TestMessagesAllocateNothing(t *testing.T) {
	_, addr := serveWorker(t, link.Options{}, hydrant{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	st, err := dial(t, addr, link.Options{}).KVEvents(ctx, &workerv1.KVEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	m := &workerv1.KVEventsResponse{}
	receive := func(n int) {
		for range n {
			if err := st.RecvMsg(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	receive(10_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const n = 100_000
	receive(n)
	runtime.ReadMemStats(&after)
	if per := float64(after.Mallocs-before.Mallocs) / n; per > 0.1 {
		t.Errorf("%.2f allocations per message", per)
	}
}
