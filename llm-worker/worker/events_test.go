package worker_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/llm-worker/worker"
	"github.com/whence-dev/whence/pkg/kvblock"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestSimulatorReportsItsBlocksUntilItDrains(t *testing.T) {
	cc, leave := start(t, func(c *worker.Config) { c.Engine, c.Sim.Speed, c.Sim.Block, c.Grace = worker.Sim, 100, 8, time.Hour })
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
		for out, err := range rpc.Dial("caller", "llm-worker/0", client.Generate, methods.Worker).Range(t.Context(),
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
	leave() // the subscriber does not hold up the end for the grace
	if _, err := events.Recv(); status.Code(err) != codes.Unavailable || streamerr.FromGRPC("llm-worker/0", err).Reason != streamerr.Draining {
		t.Error(err)
	}
}

// events opens the KV events of a worker and returns their first message.
func events(t *testing.T, client workerv1.WorkerClient) (grpc.ServerStreamingClient[workerv1.KVEventsResponse], *workerv1.KVEventsResponse) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), polltest.Patience)
	t.Cleanup(cancel)
	events, err := client.KVEvents(ctx, &workerv1.KVEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := events.Recv()
	if err != nil || !first.GetReset_() || first.GetSequence() != 1 {
		t.Fatal(first, err)
	}
	return events, first
}

// TestEmbeddedEngineReportsItsBlocks follows a KV cache with room for one prompt at a time.
func TestEmbeddedEngineReportsItsBlocks(t *testing.T) {
	cc, _ := start(t, func(c *worker.Config) { c.KVTokens = 256 })
	client := workerv1.NewWorkerClient(cc)
	info, err := client.Info(t.Context(), &workerv1.InfoRequest{})
	if err != nil || info.GetKvBlockSize() != 64 || !info.GetKvEvents() {
		t.Fatal(info, err)
	}
	following, first := events(t, client)
	if len(first.GetStored()) != 0 {
		t.Error(first)
	}
	held := map[uint64]bool{}
	update := func(batch *workerv1.KVEventsResponse) {
		for _, b := range batch.GetRemoved() {
			delete(held, b)
		}
		for _, b := range batch.GetStored() {
			held[b] = true
		}
	}
	// ask sends a prompt, and waits until its blocks have been reported.
	ask := func(prompt []uint32) *llmv1.Usage {
		t.Helper()
		var end *llmv1.End
		for out, err := range rpc.Dial("caller", "llm-worker/0", client.Generate, methods.Worker).Range(t.Context(),
			&workerv1.TokenRequest{Prompt: prompt, Sampling: &llmv1.Sampling{MaxTokens: new(uint32(2))}}) {
			if err != nil {
				t.Fatal(err)
			}
			end = out.GetEnd()
		}
		for _, name := range kvblock.Chain(nil, 0, prompt, 64) {
			for !held[name] {
				batch, err := following.Recv()
				if err != nil {
					t.Fatal(err)
				}
				update(batch)
			}
		}
		return end.GetUsage()
	}
	one, two := slices.Repeat([]uint32{5, 6, 7}, 60), slices.Repeat([]uint32{8, 9, 10}, 60) // of two blocks and a part
	if u := ask(one); u.GetCachedTokens() != 0 || len(held) != 2 {
		t.Error(u, held)
	}
	if u := ask(one); u.GetCachedTokens() != 179 || len(held) != 2 {
		t.Error(u, held)
	}
	ask(two)
	if u := ask(one); u.GetCachedTokens() >= 128 {
		t.Errorf("%d tokens were cached, although prompt two needed their memory", u.GetCachedTokens())
	}
	if len(held) > 4 {
		t.Errorf("%d blocks of four are reported", len(held))
	}
	for _, snapshot := events(t, client); len(held) != len(snapshot.GetStored()); { // an eviction is still to be read
		batch, err := following.Recv()
		if err != nil {
			t.Fatalf("a snapshot has %d blocks, the changes lead to %d: %v", len(snapshot.GetStored()), len(held), err)
		}
		update(batch)
	}
	info, err = client.Info(t.Context(), &workerv1.InfoRequest{})
	if cached := info.GetLoad().GetKvCachedTokens(); err != nil || cached < 128 || cached > 256 {
		t.Error(info, err)
	}
}

func TestEmbeddedEngineWithoutPrefixCacheReportsNoBlocks(t *testing.T) {
	cc, _ := start(t, func(c *worker.Config) { c.NoPrefixCache = true })
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
