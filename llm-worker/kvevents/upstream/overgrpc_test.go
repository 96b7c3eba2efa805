package upstream

import (
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	vllmengine "github.com/whence-dev/whence/idl/gen/vllm/engine"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/llm-worker/kvevents"
	"github.com/whence-dev/whence/pkg/kvblock"
)

// A relay fakes vLLM's gRPC service. It serves only KV events.
type relay struct {
	vllmengine.UnimplementedVllmEngineServer
	batches    chan *vllmengine.KvEventBatch // nil for a vLLM without a publisher
	subscribed atomic.Int32
}

func (r *relay) SubscribeKvEvents(req *vllmengine.SubscribeKvEventsRequest, st grpc.ServerStreamingServer[vllmengine.KvEventBatch]) error {
	if r.batches == nil {
		return r.UnimplementedVllmEngineServer.SubscribeKvEvents(req, st)
	}
	r.subscribed.Add(1)
	for {
		select {
		case batch := <-r.batches:
			if batch == nil {
				return nil // the relay ends
			}
			if err := st.Send(batch); err != nil {
				return err
			}
		case <-st.Context().Done():
			return nil
		}
	}
}

// serveRelay serves r until the test ends, and returns its address.
func serveRelay(t *testing.T, r *relay) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	vllmengine.RegisterVllmEngineServer(s, r)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(ln) })
	t.Cleanup(func() { s.Stop(); serving.Wait() })
	return ln.Addr().String()
}

// kept returns the event of a stored block of the tokens 7 and 8, which follows parent or begins a prompt.
func kept(hash int64, parent *int64, change ...func(*vllmengine.KvBlocksStored)) *vllmengine.KvCacheEvent {
	s := &vllmengine.KvBlocksStored{ParentBlockHash: parent, Blocks: []*vllmengine.KvBlock{{BlockHash: hash, TokenIds: []uint32{7, 8}, BlockSize: 2}}}
	for _, c := range change {
		c(s)
	}
	return &vllmengine.KvCacheEvent{Data: &vllmengine.KvCacheEvent_Stored{Stored: s}}
}

func gone(hashes ...int64) *vllmengine.KvCacheEvent {
	return &vllmengine.KvCacheEvent{Data: &vllmengine.KvCacheEvent_Removed{Removed: &vllmengine.KvBlocksRemoved{BlockHashes: hashes}}}
}

func batch(number uint64, events ...*vllmengine.KvCacheEvent) *vllmengine.KvEventBatch {
	return &vllmengine.KvEventBatch{SequenceNumber: number, Events: events}
}

func TestListenerFollowsVLLMOverGRPC(t *testing.T) {
	r := &relay{batches: make(chan *vllmengine.KvEventBatch)}
	l, held := follow(t, Options{Events: OverGRPC, Server: serveRelay(t, r)})
	cleared := &vllmengine.KvCacheEvent{Data: &vllmengine.KvCacheEvent_Cleared{Cleared: &vllmengine.KvCacheCleared{}}}
	r.batches <- batch(40, cleared, kept(-1, nil), kept(2, new(int64(-1)))) // the content of the cache
	polltest.Eventually(t, "the content is known", func() bool { return held.Held() == 2 && l.Block() == 2 })
	first := kvblock.Next(kvblock.Root(""), []uint32{7, 8})
	reader := held.Subscribe()
	defer reader.Close()
	known, err := reader.Next(t.Context())
	if err != nil || !slices.Contains(known.GetStored(), first) || !slices.Contains(known.GetStored(), kvblock.Next(first, []uint32{7, 8})) {
		t.Errorf("%v, %v: the names of the blocks are not those of their tokens", known, err)
	}
	r.batches <- &vllmengine.KvEventBatch{SequenceNumber: 40, Load: &vllmengine.EngineLoad{LoadOnly: true}}
	r.batches <- &vllmengine.KvEventBatch{SequenceNumber: 3, DpRank: new(int32(1)), Events: []*vllmengine.KvCacheEvent{cleared}} // of another rank
	r.batches <- batch(41, gone(2),
		kept(3, nil, func(s *vllmengine.KvBlocksStored) { s.LoraName = new("legal") }),
		kept(4, nil, func(s *vllmengine.KvBlocksStored) { s.CacheSalt = new("salt") }),
		kept(5, nil, func(s *vllmengine.KvBlocksStored) { s.Tier = new(vllmengine.KvCacheTier(2)) }),
		kept(6, nil, func(s *vllmengine.KvBlocksStored) {
			s.Blocks[0].ExtraKeys = []*vllmengine.KvBlockExtraKey{{Key: &vllmengine.KvBlockExtraKey_Blob{Blob: []byte("image")}}}
		}),
		kept(8, nil, func(s *vllmengine.KvBlocksStored) { s.Blocks[0].LoraId = new(int64(1)) }))
	polltest.Eventually(t, "a block of an adapter is known, and no block that depends on more", func() bool {
		return held.Held() == 2
	})
	r.batches <- batch(43, kept(9, nil)) // 42 is lost
	polltest.Eventually(t, "one alone is certain", func() bool { return held.Held() == 1 })
	r.batches <- batch(44, kept(10, new(int64(9))))
	polltest.Eventually(t, "the next batch adds to it", func() bool { return held.Held() == 2 })
	r.batches <- batch(7, kept(11, nil)) // the engine behind the service has restarted
	polltest.Eventually(t, "only the blocks since the restart are certain", func() bool { return held.Held() == 1 })
	r.batches <- nil
	r.batches <- batch(1, kept(1, nil), kept(2, new(int64(1)))) // once the listener has subscribed again
	polltest.Eventually(t, "the events of the next subscription are known", func() bool { return held.Held() == 2 && r.subscribed.Load() == 2 })
}

func TestVLLMWithoutEventsOverGRPCIsToldOnce(t *testing.T) {
	var lines logtest.Log
	l := New(Options{Events: OverGRPC, Server: serveRelay(t, new(relay))}, &kvevents.Hub{}, slog.New(slog.NewTextHandler(&lines, nil)), nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Run(t.Context())
	}()
	t.Cleanup(func() { <-done })
	polltest.Eventually(t, "the log says what to do", func() bool { return lines.Count("--kv-events-config") == 1 })
	if !strings.Contains(lines.String(), "publishes no KV events") {
		t.Error(lines.String())
	}
}
