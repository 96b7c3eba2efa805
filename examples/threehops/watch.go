package main

import (
	"context"
	"fmt"
	"iter"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/serverstream"
	"github.com/whence-dev/whence/pkg/stream"
)

// A watcher is an engine that answers with the states of a service, as they change.
type watcher = stream.Engine[*healthpb.HealthCheckRequest, *healthpb.HealthCheckResponse]

// watch is the leaf's engine, written as a loop: the alternating state of a service.
func watch(ctx context.Context, _ *healthpb.HealthCheckRequest) iter.Seq2[*healthpb.HealthCheckResponse, error] {
	return func(yield func(*healthpb.HealthCheckResponse, error) bool) {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		stopping := stream.Stopping(ctx)
		states := []healthpb.HealthCheckResponse_ServingStatus{healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING}
		for i := 0; yield(&healthpb.HealthCheckResponse{Status: states[i%len(states)]}, nil); i++ {
			select {
			case <-tick.C:
			case <-stopping:
				yield(nil, stream.Cause(ctx))
				return
			}
		}
	}
}

// A watchServer serves the engine of a hop. Package serverstream needs no Method, because it needs
// no fields of Watch's messages.
type watchServer struct {
	healthpb.UnimplementedHealthServer
	hop    *rpc.Hop
	engine watcher
}

// Watch implements healthpb.HealthServer.
func (s *watchServer) Watch(req *healthpb.HealthCheckRequest, st grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	return serverstream.Serve(s.hop, req, st, nil, s.engine)
}

// watchBelow returns the engine of the hop named peer. A stop goes to the unary method that
// serverstream.RegisterControl has put beside Watch.
func watchBelow(self, peer string, cc grpc.ClientConnInterface) watcher {
	return serverstream.Dial(self, peer, healthpb.NewHealthClient(cc).Watch, serverstream.Tell(cc), nil)
}

func service(name string) *healthpb.HealthCheckRequest {
	return &healthpb.HealthCheckRequest{Service: name}
}

func status(out *healthpb.HealthCheckResponse) string { return fmt.Sprint("status ", out.GetStatus()) }
