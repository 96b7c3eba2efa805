package route

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/kvcache"
	"github.com/whence-dev/whence/chat-service/route/policy"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
)

// cachingPool returns a pool with the policy kv over fakes that cache blocks of 16 tokens and send
// no KV events.
func cachingPool(t testing.TB, opts kvcache.Options, names ...string) (*Pool, *kvcache.Tracker) {
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
		k.Join(w)
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

func TestPromptGoesToTheWorkerWithItsPrefix(t *testing.T) {
	p, k := cachingPool(t, kvcache.Options{Overlap: 1}, "a", "b", "c")
	k.Lookup(prompt(1, 320)).Sent(p.Members()[1], p.Members()[1].Info(), time.Now())
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

func TestLoadOutweighsACachedPrefix(t *testing.T) {
	p, k := cachingPool(t, kvcache.Options{Overlap: 1}, "a", "b")
	k.Lookup(prompt(1, 160)).Sent(p.Members()[1], p.Members()[1].Info(), time.Now())
	p.Members()[1].Charge(10000, 0)
	if a := take(p, prompt(1, 176)); a.peer != "a" || a.expected != 0 {
		t.Error(a.peer, a.expected)
	}
	ignoring, k := cachingPool(t, kvcache.Options{Overlap: 0}, "a", "b")
	k.Lookup(prompt(1, 16)).Sent(ignoring.Members()[1], ignoring.Members()[1].Info(), time.Now())
	busy := ignoring.Members()[1].Charge(32, 0)
	busy.Read()
	if a := take(ignoring, prompt(1, 176)); a.peer != "a" {
		t.Error(a.peer)
	}
}

func TestForecastOfSentPromptsExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, k := cachingPool(t, kvcache.Options{Overlap: 1, TTL: time.Minute}, "a", "b", "c", "d")
		first := take(p, prompt(1, 160))
		first.abandon()
		for range 8 {
			if a := take(p, prompt(1, 170)); a.worker != first.worker || a.expected != 160 {
				t.Error(a.peer, a.expected)
			} else {
				a.abandon()
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var following sync.WaitGroup
		following.Go(func() { k.Follow(ctx, first.worker) })
		time.Sleep(time.Minute + fleet.ProbeEvery)
		if a := take(p, prompt(1, 170)); a.expected != 0 {
			t.Error(a.expected)
		}
		cancel()
		following.Wait()
	})
}

func TestWorkersOfEqualCostTakeTurns(t *testing.T) {
	p, _ := cachingPool(t, kvcache.Options{Overlap: 1}, "a", "b", "c", "d")
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

func TestChargesAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := cachingPool(t, kvcache.Options{Overlap: 1}, "a", "b")
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				n := 0
				for range p.Generate(t.Context(), prompt(i, 20)) {
					if n++; n > i { // some readers leave early
						break
					}
				}
			})
		}
		synctest.Wait()
		if s := p.Members()[0].Snapshot(time.Now()); s.Tokens == 0 || s.Unread == 0 {
			t.Error("twenty streams charge nothing")
		}
		wg.Wait()
		p.calls.Wait()
		for _, w := range p.Members() {
			if s := w.Snapshot(time.Now()); s.Unread != 0 || s.Tokens != 0 || w.Load() != 0 {
				t.Errorf("%s is left with %d tokens to read, %d in use and %d streams", w.Name(), s.Unread, s.Tokens, w.Load())
			}
		}
	})
}

func TestUsageHasTheExpectedCachedTokens(t *testing.T) {
	p, _ := cachingPool(t, kvcache.Options{Overlap: 1}, "a", "b")
	for _, want := range []uint32{0, 32} {
		for out := range p.Generate(t.Context(), prompt(1, 40)) {
			if u := out.GetEnd().GetUsage(); u != nil && (u.ExpectedCachedTokens == nil || u.GetExpectedCachedTokens() != want) {
				t.Error(u)
			}
		}
	}
}

func TestPromptsWithTheSameBeginningAreOneSession(t *testing.T) {
	if session(prompt(1, 100)) != session(prompt(1, 200)) || session(prompt(1, 100)) == session(prompt(2, 100)) {
		t.Error("the first tokens are not the session")
	}
	one, other := prompt(1, 100), prompt(2, 200)
	if one.Session, other.Session = "s", "s"; session(one) != session(other) {
		t.Error("the caller's name is not the session")
	}
}

// BenchmarkTakeByKV measures a decision among 64 workers for a prompt of 8,000 tokens.
func BenchmarkTakeByKV(b *testing.B) {
	names := make([]string, fleet.MaxWorkers)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	p, _ := cachingPool(b, kvcache.Options{Overlap: 1}, names...)
	req := prompt(1, 8192)
	b.ReportAllocs()
	for b.Loop() {
		take(p, req).abandon()
	}
}
