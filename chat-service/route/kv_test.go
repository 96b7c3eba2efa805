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
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/kvblock"
)

// cachingPool returns a pool by kv, of fakes that cache in blocks of 16 tokens and tell nothing.
func cachingPool(t testing.TB, opts KVOptions, names ...string) (*Pool, *KV) {
	t.Helper()
	k := NewKV(opts)
	fakes := make([]*fake, len(names))
	for i, name := range names {
		fakes[i] = &fake{name: name}
	}
	p := poolOf(t, Options{KV: k}, fakes...)
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
		a := p.take(&workerv1.TokenRequest{Prompt: slices.Concat(prompt(1, 320).GetPrompt(), prompt(10+i, 80).GetPrompt())}, 0, nil)
		if a.peer != "b" || a.expected != 320 {
			t.Errorf("it went to %s, which is expected to have %d tokens of it", a.peer, a.expected)
		}
		a.abandon()
	}
	if a := p.take(prompt(1, 320), 0, nil); a.peer != "b" || a.expected != 319 { // the last token is always read
		t.Error(a.peer, a.expected)
	}
}

func TestBusyWorkerIsNotWorthItsCache(t *testing.T) {
	p, k := cachingPool(t, KVOptions{Overlap: 1}, "a", "b")
	k.index.Store(k.places[p.Members()[1]].number, kvblock.Chain(nil, 0, prompt(1, 160).GetPrompt(), 16))
	p.Members()[1].Charge(10000, 0)
	if a := p.take(prompt(1, 176), 0, nil); a.peer != "a" || a.expected != 0 {
		t.Error(a.peer, a.expected)
	}
	ignoring, k := cachingPool(t, KVOptions{Overlap: 0}, "a", "b")
	k.index.Store(k.places[ignoring.Members()[1]].number, kvblock.Chain(nil, 0, prompt(1, 16).GetPrompt(), 16))
	busy := ignoring.Members()[1].Charge(32, 0)
	busy.Read()
	if a := ignoring.take(prompt(1, 176), 0, nil); a.peer != "a" {
		t.Error(a.peer)
	}
}

func TestWhatWasSentIsExpectedUntilItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, k := cachingPool(t, KVOptions{Overlap: 1, TTL: time.Minute}, "a", "b", "c", "d")
		first := p.take(prompt(1, 160), 0, nil)
		first.abandon()
		for range 8 {
			if a := p.take(prompt(1, 170), 0, nil); a.worker != first.worker || a.expected != 160 {
				t.Error(a.peer, a.expected)
			} else {
				a.abandon()
			}
		}
		time.Sleep(time.Minute)
		k.guessed.Expire(time.Now())
		if a := p.take(prompt(1, 170), 0, nil); a.expected != 0 {
			t.Error(a.expected)
		}
	})
}

func TestWorkersThatCostTheSameTakeTurns(t *testing.T) {
	p, _ := cachingPool(t, KVOptions{Overlap: 1}, "a", "b", "c", "d")
	counts := map[string]int{}
	for i := range 40 {
		a := p.take(prompt(i, 170), 0, nil)
		counts[a.peer]++
		a.abandon()
	}
	for name, n := range counts {
		if n != 10 {
			t.Errorf("%s got %d of 40", name, n)
		}
	}
}

func TestTemperatureSpreadsChoices(t *testing.T) {
	p, k := cachingPool(t, KVOptions{Overlap: 1, Temperature: 0.5}, "a", "b", "c")
	k.index.Store(k.places[p.Members()[0]].number, kvblock.Chain(nil, 0, prompt(1, 160).GetPrompt(), 16))
	counts := make([]int, 3)
	for range 1000 {
		counts[slices.Index(p.Members(), k.choose(prompt(1, 160), p.Members(), 0))]++
	}
	// Two workers cost the most, so that their weight is exp(-1/0.5): 787, 106 and 106 of 1,000.
	for i, want := range []int{787, 106, 106} {
		if counts[i] < want-60 || counts[i] > want+60 {
			t.Errorf("worker %d got %d of 1,000, want about %d", i, counts[i], want)
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
			p.mu.Lock()
			defer p.mu.Unlock()
			got, _, _ := k.cached(p.Members()[0], prompt(1, 100))
			k.plan = plan{}
			return got == want
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
	eventually(t, "its events are trusted when they name a block", func() bool { return k.Telling() == 1 && forecast() == k.awaited })
	s.events <- &workerv1.KVEventsResponse{Sequence: 2, Removed: names[:1]}
	s.events <- &workerv1.KVEventsResponse{Sequence: 3, Reset_: true}
	eventually(t, "what is sent to it is expected there while its events name nothing", func() bool { return k.Telling() == 0 && forecast() == k.guessed })
	s.events <- &workerv1.KVEventsResponse{Sequence: 4, Stored: names}
	eventually(t, "its events are trusted again", func() bool { return k.Telling() == 1 && forecast() == k.awaited })
}

func TestSessionStaysOnItsWorker(t *testing.T) {
	all := make([]*fleet.Worker, 8)
	for i := range all {
		all[i] = fleet.Pretended(fmt.Sprintf("llm-worker/%d", i), nil)
	}
	by := BySession()
	home, counts := map[string]*fleet.Worker{}, map[*fleet.Worker]int{}
	for i := range 800 {
		id := fmt.Sprint("session ", i)
		home[id] = by(&workerv1.TokenRequest{Session: id, Prompt: []uint32{uint32(i)}}, all)
		counts[home[id]]++
	}
	for w, n := range counts {
		if n < 60 || n > 140 {
			t.Errorf("%s has %d of 800 sessions", w.Name(), n)
		}
	}
	fewer, moved := slices.Delete(slices.Clone(all), 3, 4), 0
	for id, was := range home {
		if w := by(&workerv1.TokenRequest{Session: id, Prompt: []uint32{7}}, fewer); w != was {
			moved++
			if was != all[3] {
				t.Errorf("%s moved from %s to %s", id, was.Name(), w.Name())
			}
		}
	}
	if moved != counts[all[3]] {
		t.Errorf("%d sessions moved, want %d", moved, counts[all[3]])
	}
	// Without a name the prompt's beginning is the session.
	if a, b := by(prompt(1, 100), all), by(prompt(1, 200), all); a != b {
		t.Error(a.Name(), b.Name())
	}
}

func TestSessionsLoadIsBounded(t *testing.T) {
	all := workersWith(0, 0, 0, 0)
	by := BySession()
	for range 1000 {
		by(&workerv1.TokenRequest{Session: "the only one"}, all).Charge(0, 0)
	}
	for _, w := range all {
		if n := w.Load(); n > 314 { // 1.25 times its share, rounded up
			t.Errorf("a worker has %d of 1,000", n)
		}
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
		p.take(req, 0, nil).abandon()
	}
}
