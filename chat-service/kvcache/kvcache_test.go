package kvcache

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/kvblock"
)

// A feed is a scripted call of KVEvents; nil ends the call.
type feed struct {
	ctx     context.Context //nolint:containedctx // of the call, as in a gRPC stream
	batches <-chan *workerv1.KVEventsResponse
}

// Recv implements fleet.KVEvents.
func (f feed) Recv() (*workerv1.KVEventsResponse, error) {
	select {
	case batch := <-f.batches:
		if batch == nil {
			return nil, io.EOF
		}
		return batch, nil
	case <-f.ctx.Done():
		return nil, f.ctx.Err()
	}
}

// A setup is a tracker that follows one worker.
type setup struct {
	*testing.T
	tracker *Tracker
	worker  *fleet.Worker
	batches chan *workerv1.KVEventsResponse
}

// follow runs test with a tracker that follows a healthy worker with KV events and blocks of 16
// tokens.
func follow(t *testing.T, test func(*setup)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &setup{T: t, tracker: New(Options{Overlap: 1}), worker: fleet.Pretended("a", nil), batches: make(chan *workerv1.KVEventsResponse)}
		s.worker.PretendKVEvents(func(ctx context.Context) (fleet.KVEvents, error) { return feed{ctx, s.batches}, nil })
		s.worker.Say(&llmv1.WorkerInfo{Instance: "a", KvEvents: true, KvBlockSize: 16})
		ctx, cancel := context.WithCancel(t.Context())
		var following sync.WaitGroup
		following.Go(func() { s.tracker.Follow(ctx, s.worker) })
		test(s)
		cancel()
		following.Wait()
		if n := len(s.tracker.places); n != 0 {
			t.Errorf("%d workers are left in the index", n)
		}
	})
}

// send sends the worker's next batch, and waits until it is applied.
func (s *setup) send(batch *workerv1.KVEventsResponse) {
	s.batches <- batch
	synctest.Wait()
}

func (s *setup) expect(want int) {
	s.Helper()
	if got := s.tracker.Lookup(prompt(100)).Cached(s.worker, &llmv1.WorkerInfo{KvBlockSize: 16}); got != want {
		s.Errorf("%d tokens are expected in the cache, want %d", got, want)
	}
}

func prompt(n int) *workerv1.TokenRequest {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(1000 + i)
	}
	return &workerv1.TokenRequest{Prompt: ids}
}

func TestIndexFollowsKVEvents(t *testing.T) {
	names := kvblock.Chain(nil, 0, prompt(64).GetPrompt(), 16)
	follow(t, func(s *setup) {
		s.send(&workerv1.KVEventsResponse{Sequence: 1, Reset_: true, Stored: names[:2]})
		s.expect(32)
		s.send(&workerv1.KVEventsResponse{Sequence: 2, Stored: names[2:]})
		s.expect(64)
		s.send(&workerv1.KVEventsResponse{Sequence: 3, Removed: names[3:]})
		s.expect(48)
		s.send(&workerv1.KVEventsResponse{Sequence: 4, Reset_: true, Stored: names[:1]})
		s.expect(16)
		s.send(nil) // the call ends, and the cache is unknown
		s.expect(0)
		s.send(&workerv1.KVEventsResponse{Sequence: 1, Reset_: true, Stored: names})
		s.expect(64)
		s.worker.Say(nil) // the worker is lost
		s.send(nil)
		time.Sleep(2 * fleet.ProbeEvery)
		s.expect(0)
	})
}

// TestWorkerWithoutNamedBlocksIsForecast covers a worker that announces KV events, none of which names
// a block.
func TestWorkerWithoutNamedBlocksIsForecast(t *testing.T) {
	names := kvblock.Chain(nil, 0, prompt(64).GetPrompt(), 16)
	follow(t, func(s *setup) {
		expect := func(when string, telling int, want *forecast) {
			at, _ := s.tracker.place(s.worker)
			if n := s.tracker.reporting(); n != telling || s.tracker.forecast(at) != want {
				t.Errorf("%s: %d workers name blocks, want %d, or the wrong forecast is used", when, n, telling)
			}
		}
		s.send(&workerv1.KVEventsResponse{Sequence: 1, Reset_: true, Stored: names[:1]})
		expect("a block was named", 1, s.tracker.awaited)
		s.send(&workerv1.KVEventsResponse{Sequence: 2, Removed: names[:1]})
		s.send(&workerv1.KVEventsResponse{Sequence: 3, Reset_: true})
		expect("events name no blocks", 0, s.tracker.guessed)
		s.send(&workerv1.KVEventsResponse{Sequence: 4, Stored: names})
		expect("a block was named again", 1, s.tracker.awaited)
	})
}

// Blocks of an adapter serve only requests for the adapter.
func TestAdaptersHaveSeparateCaches(t *testing.T) {
	legal := prompt(100)
	legal.Adapter = "legal"
	names := kvblock.Chain(nil, kvblock.Root("legal"), legal.GetPrompt(), 16)
	follow(t, func(s *setup) {
		s.send(&workerv1.KVEventsResponse{Sequence: 1, Reset_: true, Stored: names[:4]})
		s.expect(0)
		if got := s.tracker.Lookup(legal).Cached(s.worker, &llmv1.WorkerInfo{KvBlockSize: 16}); got != 64 {
			t.Errorf("%d tokens of the adapter's prompt are expected in the cache, want 64", got)
		}
	})
}

// Engines hash the image into the names of these blocks. The blocks are neither looked up nor
// forecast.
func TestBlocksAfterAnImageAreNotNamed(t *testing.T) {
	shown := prompt(100)
	shown.Images, shown.BeforeImages = []*llmv1.Image{{}}, 40
	names, in := kvblock.Chain(nil, 0, prompt(100).GetPrompt(), 16), &llmv1.WorkerInfo{KvBlockSize: 16}
	follow(t, func(s *setup) {
		s.send(&workerv1.KVEventsResponse{Sequence: 1, Reset_: true, Stored: names[:4]})
		s.expect(64)
		if got := s.tracker.Lookup(shown).Cached(s.worker, in); got != 32 {
			t.Errorf("%d tokens are expected in the cache, want 32", got)
		}
		s.send(&workerv1.KVEventsResponse{Sequence: 2, Reset_: true})
		s.tracker.Lookup(shown).Sent(s.worker, in, time.Now())
		s.expect(32)
		shown.BeforeImages = 0 // the position of the image is unknown
		if got := s.tracker.Lookup(shown).Cached(s.worker, in); got != 0 {
			t.Errorf("%d tokens are expected in the cache, want none", got)
		}
	})
}
