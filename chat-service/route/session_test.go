package route

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/kvcache"
	"github.com/whence-dev/whence/chat-service/route/policy"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/kvblock"
)

// A cachingWorker reads a prompt token in 50 µs unless its KV cache has the token, and writes one token
// in 8 ms. Its cache forgets nothing.
type cachingWorker struct {
	mu   sync.Mutex
	held map[uint64]bool // blocks
}

const cachedBlock = 16

// read returns how many tokens of a prompt are cached, and caches all.
func (w *cachingWorker) read(ids []uint32) (cached int) {
	names := kvblock.Chain(nil, kvblock.Root(""), ids, cachedBlock)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, name := range names {
		if w.held[name] && cached == i*cachedBlock {
			cached += cachedBlock
		}
		w.held[name] = true
	}
	return min(cached, len(ids)-1)
}

func (w *cachingWorker) generate(_ context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		cached, ids := w.read(req.GetPrompt()), slices.Clone(req.GetPrompt())
		if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{PromptTokens: uint32(len(ids))}}}, nil) {
			return
		}
		time.Sleep(time.Duration(len(ids)-cached) * 50 * time.Microsecond)
		for range req.GetSampling().GetMaxTokens() {
			time.Sleep(8 * time.Millisecond)
			ids = append(ids, draw(ids[len(ids)-4:], 0))
			if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: ids[len(ids)-1:]}}}, nil) {
				return
			}
		}
		w.read(ids[:len(ids)-1]) // nothing has read the last token
		yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{
			Reason: streamv1.Reason_REASON_COMPLETED, Finish: llmv1.Finish_FINISH_LENGTH,
			Usage: &llmv1.Usage{PromptTokens: uint32(len(req.GetPrompt())), CompletionTokens: req.GetSampling().GetMaxTokens(), CachedTokens: new(uint32(cached))},
		}}}, nil)
	}
}

// sessionPool returns a pool of caching workers.
func sessionPool(t *testing.T, named string, n int) *Pool {
	t.Helper()
	streams, prompts, k, err := Policies(named, kvcache.Options{Overlap: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := poolOf(t, Options{KV: k, Policy: streams, Prompts: prompts})
	var members []*fleet.Worker
	for i := range n {
		name := fmt.Sprint("w/", i)
		w := fleet.Pretended(name, (&cachingWorker{held: map[uint64]bool{}}).generate)
		said := info(name)
		said.ContextLength, said.KvBlockSize = 1<<20, cachedBlock
		w.Say(said)
		if k != nil {
			k.Join(w)
		}
		members = append(members, w)
	}
	p.Pretend(members...)
	return p
}

// talk sends 20 turns of a session, and adds the tokens of the prompts from the second turn on.
func talk(t *testing.T, p *Pool, session int, think time.Duration, add func(*llmv1.Usage)) {
	r := rand.New(rand.NewPCG(uint64(session), 1)) //nolint:gosec // a reproducible load
	var ids []uint32
	say := func(n int) {
		for range n {
			ids = append(ids, r.Uint32())
		}
	}
	say(4000)
	for turn := range 20 {
		time.Sleep(time.Duration(r.Int64N(int64(think))))
		say(50 + r.IntN(100))
		req := &workerv1.TokenRequest{Prompt: slices.Clone(ids), Session: fmt.Sprint("session ", session), Sampling: &llmv1.Sampling{MaxTokens: new(uint32(60))}}
		for out, err := range p.Generate(t.Context(), req) {
			if err != nil {
				t.Error(err)
				return
			}
			ids = append(ids, out.GetTokens().GetIds()...)
			if turn > 0 {
				add(out.GetEnd().GetUsage())
			}
		}
	}
}

// TestSessionsKeepTheirWorkers: agents send the whole conversation with each turn, and a worker that
// has read it reads 2 to 3 % of the prompt. Turns follow at once, or after the time for which a prompt
// counts as cached.
func TestSessionsKeepTheirWorkers(t *testing.T) {
	for _, named := range []string{policy.KV, policy.Session} {
		for _, think := range []time.Duration{2 * time.Second, 2 * kvcache.DefaultTTL} {
			synctest.Test(t, func(t *testing.T) {
				p := sessionPool(t, named, 8)
				var mu sync.Mutex
				var prompt, cached uint32
				var sessions sync.WaitGroup
				for session := range 24 {
					sessions.Go(func() {
						talk(t, p, session, think, func(u *llmv1.Usage) {
							mu.Lock()
							defer mu.Unlock()
							prompt, cached = prompt+u.GetPromptTokens(), cached+u.GetCachedTokens()
						})
					})
				}
				sessions.Wait()
				p.calls.Wait()
				t.Logf("%s, turns within %v: %d of %d prompt tokens are cached", named, think, cached, prompt)
				if float64(cached) < 0.95*float64(prompt) {
					t.Errorf("%s, turns within %v: %d of %d prompt tokens are cached, want 95 %%", named, think, cached, prompt)
				}
			})
		}
	}
}
