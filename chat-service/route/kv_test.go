package route

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/kvindex"
	"github.com/whence-dev/whence/chat-service/route/policy"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/kvblock"
)

// cachingPool returns a pool by kv, of fakes that cache in blocks of 16 tokens and tell nothing.
func cachingPool(t testing.TB, opts KVOptions, names ...string) (*Pool, *KV) {
	t.Helper()
	fakes := make([]*fake, len(names))
	for i, name := range names {
		fakes[i] = &fake{name: name}
	}
	streams, prompts, k, err := Policies(policy.KV, opts)
	if err != nil {
		t.Fatal(err)
	}
	p := poolOf(t, Options{KV: k, Policy: streams, Prompts: prompts}, fakes...)
	for _, w := range p.Members() {
		said := info(w.Name())
		said.KvBlockSize = 16
		w.Say(said)
		k.join(w, true)
	}
	return p, k
}

func prompt(seed, n int) *workerv1.TokenRequest {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(seed*1000 + i)
	}
	return &workerv1.TokenRequest{Prompt: ids}
}

func TestPromptGoesWhereItsPrefixIs(t *testing.T) {
	p, k := cachingPool(t, KVOptions{Overlap: 1}, "a", "b", "c")
	k.index.Store(k.places[p.Members()[1]].number, kvblock.Chain(nil, 0, prompt(1, 320).GetPrompt(), 16))
	for i := range 5 {
		a := take(p, &workerv1.TokenRequest{Prompt: slices.Concat(prompt(1, 320).GetPrompt(), prompt(10+i, 80).GetPrompt())})
		if a.peer != "b" || a.expected != 320 {
			t.Errorf("it went to %s, which is expected to have %d tokens of it", a.peer, a.expected)
		}
		a.abandon()
	}
	if a := take(p, prompt(1, 320)); a.peer != "b" || a.expected != 319 { // the last token is always read
		t.Error(a.peer, a.expected)
	}
}

func TestBusyWorkerIsNotWorthItsCache(t *testing.T) {
	p, k := cachingPool(t, KVOptions{Overlap: 1}, "a", "b")
	k.index.Store(k.places[p.Members()[1]].number, kvblock.Chain(nil, 0, prompt(1, 160).GetPrompt(), 16))
	p.Members()[1].Charge(10000, 0)
	if a := take(p, prompt(1, 176)); a.peer != "a" || a.expected != 0 {
		t.Error(a.peer, a.expected)
	}
	ignoring, k := cachingPool(t, KVOptions{Overlap: 0}, "a", "b")
	k.index.Store(k.places[ignoring.Members()[1]].number, kvblock.Chain(nil, 0, prompt(1, 16).GetPrompt(), 16))
	busy := ignoring.Members()[1].Charge(32, 0)
	busy.Read()
	if a := take(ignoring, prompt(1, 176)); a.peer != "a" {
		t.Error(a.peer)
	}
}

func TestWhatWasSentIsExpectedUntilItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, k := cachingPool(t, KVOptions{Overlap: 1, TTL: time.Minute}, "a", "b", "c", "d")
		first := take(p, prompt(1, 160))
		first.abandon()
		for range 8 {
			if a := take(p, prompt(1, 170)); a.worker != first.worker || a.expected != 160 {
				t.Error(a.peer, a.expected)
			} else {
				a.abandon()
			}
		}
		time.Sleep(time.Minute)
		k.guessed.Expire(time.Now())
		if a := take(p, prompt(1, 170)); a.expected != 0 {
			t.Error(a.expected)
		}
	})
}

func TestWorkersThatCostTheSameTakeTurns(t *testing.T) {
	p, _ := cachingPool(t, KVOptions{Overlap: 1}, "a", "b", "c", "d")
	counts := map[string]int{}
	for i := range 40 {
		a := take(p, prompt(i, 170))
		counts[a.peer]++
		a.abandon()
	}
	for name, n := range counts {
		if n != 10 {
			t.Errorf("%s got %d of 40", name, n)
		}
	}
}

func TestChargesAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := cachingPool(t, KVOptions{Overlap: 1}, "a", "b")
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				n := 0
				for range p.Generate(t.Context(), prompt(i, 20)) {
					if n++; n > i { // some leave early
						break
					}
				}
			})
		}
		synctest.Wait()
		if p.Members()[0].Tokens() == 0 || p.Members()[0].Unread() == 0 {
			t.Error("twenty streams charge nothing")
		}
		wg.Wait()
		p.calls.Wait()
		for _, w := range p.Members() {
			if w.Unread() != 0 || w.Tokens() != 0 || w.Load() != 0 {
				t.Errorf("%s is left with %d tokens to read, %d in use and %d streams", w.Name(), w.Unread(), w.Tokens(), w.Load())
			}
		}
	})
}

func TestUsageSaysWhatWasExpected(t *testing.T) {
	p, _ := cachingPool(t, KVOptions{Overlap: 1}, "a", "b")
	for _, want := range []uint32{0, 32} {
		for out := range p.Generate(t.Context(), prompt(1, 40)) {
			if u := out.GetEnd().GetUsage(); u != nil && (u.ExpectedCachedTokens == nil || u.GetExpectedCachedTokens() != want) {
				t.Error(u)
			}
		}
	}
}

// KVEvents tells what the fake's script says.
func (s *service) KVEvents(_ *workerv1.KVEventsRequest, st grpc.ServerStreamingServer[workerv1.KVEventsResponse]) error {
	for {
		select {
		case batch := <-s.events:
			if batch == nil {
				return nil
			}
			if err := st.Send(batch); err != nil {
				return err
			}
		case <-st.Context().Done():
			return st.Context().Err()
		}
	}
}

func TestIndexFollowsWhatWorkersTell(t *testing.T) {
	s := serve(t, &fake{name: "a"}, "")
	s.info.KvEvents, s.info.KvBlockSize = true, 16
	k := NewKV(KVOptions{Overlap: 1})
	var log journal
	p, _ := dialAll(t, Options{KV: k}, &log, s)
	names := kvblock.Chain(nil, 0, prompt(1, 64).GetPrompt(), 16)
	expect := func(want int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d tokens are expected", want), func() bool {
			return k.look(prompt(1, 100)).cached(p.Members()[0], s.info) == want
		})
	}
	s.events <- &workerv1.KVEventsResponse{Sequence: 1, Reset_: true, Stored: names[:2]}
	expect(32)
	s.events <- &workerv1.KVEventsResponse{Sequence: 2, Stored: names[2:]}
	expect(64)
	s.events <- &workerv1.KVEventsResponse{Sequence: 3, Removed: names[3:]}
	expect(48)
	s.events <- &workerv1.KVEventsResponse{Sequence: 4, Reset_: true, Stored: names[:1]}
	expect(16)
	s.events <- nil // the call ends: nothing is known any more
	expect(0)
	s.events <- &workerv1.KVEventsResponse{Sequence: 1, Reset_: true, Stored: names}
	expect(64)
	s.grpc.Stop()
	expect(0)
}

// TestWorkerThatNamesNoBlockIsGuessed: it says that it has KV events, and none of them names a block.
func TestWorkerThatNamesNoBlockIsGuessed(t *testing.T) {
	s := serve(t, &fake{name: "a"}, "")
	s.info.KvEvents, s.info.KvBlockSize = true, 16
	k := NewKV(KVOptions{Overlap: 1})
	p, _ := dialAll(t, Options{KV: k}, new(journal), s)
	names := kvblock.Chain(nil, 0, prompt(1, 64).GetPrompt(), 16)
	forecast := func() *kvindex.Forecast {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.forecast(k.places[p.Members()[0]])
	}
	s.events <- &workerv1.KVEventsResponse{Sequence: 1, Reset_: true, Stored: names[:1]}
	eventually(t, "its events are trusted when they name a block", func() bool { return k.telling() == 1 && forecast() == k.awaited })
	s.events <- &workerv1.KVEventsResponse{Sequence: 2, Removed: names[:1]}
	s.events <- &workerv1.KVEventsResponse{Sequence: 3, Reset_: true}
	eventually(t, "what is sent to it is expected there while its events name nothing", func() bool { return k.telling() == 0 && forecast() == k.guessed })
	s.events <- &workerv1.KVEventsResponse{Sequence: 4, Stored: names}
	eventually(t, "its events are trusted again", func() bool { return k.telling() == 1 && forecast() == k.awaited })
}

func TestPromptsThatBeginAlikeAreOneSession(t *testing.T) {
	if session(prompt(1, 100)) != session(prompt(1, 200)) || session(prompt(1, 100)) == session(prompt(2, 100)) {
		t.Error("the first tokens are not the session")
	}
	one, other := prompt(1, 100), prompt(2, 200)
	if one.Session, other.Session = "s", "s"; session(one) != session(other) {
		t.Error("the caller's name is not the session")
	}
}

// BenchmarkTakeByKV is a decision among 64 workers for a prompt of 8,000 tokens.
func BenchmarkTakeByKV(b *testing.B) {
	names := make([]string, fleet.MaxWorkers)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	p, _ := cachingPool(b, KVOptions{Overlap: 1}, names...)
	req := prompt(1, 8192)
	b.ReportAllocs()
	for b.Loop() {
		take(p, req).abandon()
	}
}
