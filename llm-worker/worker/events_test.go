package worker_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/kvblock"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestSimulatorReportsItsBlocksUntilItDrains(t *testing.T) {
	cc, leave := start(t, func(c *worker.Config) { c.Engine, c.Sim.Speed, c.Sim.Block = worker.Sim, 100, 8 })
	client := workerv1.NewWorkerClient(cc)
	info, err := client.Info(t.Context(), &workerv1.InfoRequest{})
	if err != nil || info.GetEngine() != "sim" || info.GetKvBlockSize() != 8 || !info.GetKvEvents() || info.GetLoad().GetKvTotalTokens() == 0 {
		t.Fatal(info, err)
	}
	events, err := client.KVEvents(t.Context(), &workerv1.KVEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := events.Recv()
	if err != nil || !first.GetReset_() || len(first.GetStored()) != 0 || first.GetSequence() != 1 {
		t.Fatal(first, err)
	}
	prompt := slices.Repeat([]uint32{5, 6, 7}, 10)
	ask := func() *llmv1.Usage {
		var end *llmv1.End
		for out, err := range rpc.Dial("caller", "llm-worker/0", client.Generate, methods.Worker)(t.Context(),
			&workerv1.TokenRequest{Prompt: prompt, Sampling: &llmv1.Sampling{MaxTokens: new(uint32(2))}}) {
			if err != nil {
				t.Fatal(err)
			}
			end = out.GetEnd()
		}
		return end.GetUsage()
	}
	if u := ask(); u.GetCachedTokens() != 0 {
		t.Error(u)
	}
	if second, err := events.Recv(); err != nil || second.GetReset_() || second.GetSequence() != 2 ||
		!slices.Equal(slices.Sorted(slices.Values(second.GetStored())), slices.Sorted(slices.Values(kvblock.Chain(nil, 0, prompt, 8)))) {
		t.Error(second, err)
	}
	if u := ask(); u.GetCachedTokens() != 24 {
		t.Error(u)
	}
	begun := time.Now()
	leave()
	if _, err := events.Recv(); status.Code(err) != codes.Unavailable || streamerr.FromGRPC("llm-worker/0", err).Reason != streamerr.Draining {
		t.Error(err)
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("a subscriber held up the end for %v", took)
	}
}

func TestEmbeddedEngineReportsNoBlocks(t *testing.T) {
	cc, _ := start(t, nil)
	client := workerv1.NewWorkerClient(cc)
	info, err := client.Info(t.Context(), &workerv1.InfoRequest{})
	if err != nil || info.GetKvBlockSize() != 0 || info.GetKvEvents() {
		t.Error(info, err)
	}
	events, err := client.KVEvents(t.Context(), &workerv1.KVEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.Recv(); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
}
