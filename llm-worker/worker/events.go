package worker

import (
	"context"

	"google.golang.org/grpc"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/kvevents"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// Tell makes KVEvents report the content of held; nil means none. It must be called before Serve.
func (s *Server) Tell(held *kvevents.Hub) { s.held = held }

// KVEvents implements workerv1.WorkerServer. A caller that does not read blocks only its own call.
func (s *Server) KVEvents(_ *workerv1.KVEventsRequest, st grpc.ServerStreamingServer[workerv1.KVEventsResponse]) error {
	if s.held == nil {
		return s.UnimplementedWorkerServer.KVEvents(nil, st)
	}
	ctx, cancel := context.WithCancelCause(st.Context())
	defer cancel(nil)
	told := make(chan struct{})
	go func() { // waited for below
		defer close(told)
		select {
		case <-s.gone:
			cancel(streamerr.Draining)
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(nil); <-told }()
	subscriber := s.held.Subscribe()
	defer subscriber.Close()
	for {
		batch, err := subscriber.Next(ctx)
		if err == nil {
			err = st.Send(batch)
		}
		if err != nil {
			return streamerr.Via(s.hop.Name, err)
		}
	}
}
