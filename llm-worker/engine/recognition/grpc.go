package recognition

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sglangscheduler "github.com/whence-dev/whence/idl/gen/sglang/scheduler"
	vllmengine "github.com/whence-dev/whence/idl/gen/vllm/engine"
	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/llm-worker/engine/beside/overgrpc"
)

// errNoGRPC is the error for a server that does not speak gRPC.
var errNoGRPC = errors.New("the server that generates does not speak gRPC")

// overGRPC calls the services of vLLM and SGLang at host:port.
func overGRPC(ctx context.Context, addr string) (*Server, error) {
	if overgrpc.Validate(addr) != nil {
		return nil, errNoGRPC
	}
	conn, err := overgrpc.Dial(addr)
	if err != nil {
		return nil, errNoGRPC
	}
	defer conn.Close() //nolint:errcheck // nothing is lost
	s, err := overVLLM(ctx, conn)
	if status.Code(err) == codes.Unimplemented {
		s, err = overSGLang(ctx, conn)
	}
	switch status.Code(err) {
	case codes.OK:
		s.GRPC, s.Address, s.Models = true, addr, []string{s.Model}
		return s, nil
	case codes.Unimplemented:
		return nil, errors.New("the server that generates speaks gRPC, but not the service of vLLM or SGLang")
	case codes.Unavailable, codes.Internal, codes.DeadlineExceeded: // also what grpc-go makes of a server that does not speak gRPC
		return nil, errNoGRPC
	default:
		return nil, fmt.Errorf("the server that generates does not describe its model over gRPC: %s", beside.Clip(status.Convert(err).Message(), maxText))
	}
}

func overVLLM(ctx context.Context, conn *grpc.ClientConn) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	client := vllmengine.NewVllmEngineClient(conn)
	info, err := client.GetModelInfo(ctx, &vllmengine.GetModelInfoRequest{})
	if err != nil {
		return nil, err
	}
	s := &Server{Make: VLLM, Model: nameOf(info.GetServedModelName(), info.GetModelPath()), Root: clip(info.GetModelPath())}
	s.Limits.Context, s.Limits.Metrics = int(info.GetMaxContextLength()), true
	if loads, err := client.GetLoads(ctx, &vllmengine.GetLoadsRequest{}); err == nil {
		s.Limits.count(overgrpc.Load(loads.GetLoads()), 1)
	}
	if server, err := client.GetServerInfo(ctx, &vllmengine.GetServerInfoRequest{}); err == nil {
		l := &s.Limits
		l.KVBlock, l.Reasoning = int(server.GetBlockSize()), clip(server.GetEngineReasoningParser())
		l.Running = max(l.Running, int(server.GetMaxNumSeqs()))
		if n := int(server.GetDataParallelSize()); n > 1 {
			l.Ranks = n
		}
	}
	return s, nil
}

func overSGLang(ctx context.Context, conn *grpc.ClientConn) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	client := sglangscheduler.NewSglangSchedulerClient(conn)
	info, err := client.GetModelInfo(ctx, &sglangscheduler.GetModelInfoRequest{})
	if err != nil {
		return nil, err
	}
	s := &Server{Make: SGLang, Model: nameOf(info.GetServedModelName(), info.GetModelPath()), Root: clip(info.GetModelPath())}
	s.Limits.Context, s.Limits.Metrics = int(info.GetMaxContextLength()), true
	if loads, err := client.GetLoads(ctx, &sglangscheduler.GetLoadsRequest{Include: []string{"core"}}); err == nil {
		s.Limits.count(overgrpc.Load(loads.GetLoads()), len(loads.GetLoads()))
	}
	return s, nil
}

// count takes the limits of a report of the load of all ranks.
func (l *Limits) count(load *beside.ServerLoad, ranks int) {
	l.Running, l.KVTokens = load.Slots, int(min(load.KVTotal, 1<<40)) //nolint:gosec // bounded
	if ranks > 1 {
		l.Ranks = ranks
	}
}

// nameOf returns the name of a model that a server serves, and may know only by its path.
func nameOf(served, path string) string { return clip(cmp.Or(served, path)) }

func clip(text string) string { return beside.Clip(text, maxText) }
