package sim_test

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/internal/whencetiny"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/llm-worker/engine/sim"
	"github.com/whence-dev/whence/llm-worker/guide"
	"github.com/whence-dev/whence/llm-worker/kvevents"
	"github.com/whence-dev/whence/pkg/kvblock"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/tokenizer"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const eos = 1535

var vocabulary = sync.OnceValue(func() *sim.Vocabulary {
	data, err := fs.ReadFile(whencetiny.FS(), "tokenizer.json")
	if err != nil {
		panic(err)
	}
	tok, err := tokenizer.Load(data)
	if err != nil {
		panic(err)
	}
	v := sim.NewVocabulary(1024, 1536, []uint32{eos}, tok)
	if v.Guides, err = guide.NewVocabulary(tok); err != nil {
		panic(err)
	}
	return v
})

// An engine is a simulator with its loop.
type engine struct {
	*batch.Loop
	model *sim.Model
	held  *kvevents.Hub
}

// run runs an engine until the test ends.
func run(t testing.TB, opts sim.Options) engine {
	t.Helper()
	e := engine{held: &kvevents.Hub{}}
	e.model = sim.New(vocabulary(), opts, e.held)
	e.Loop = batch.New(e.model, batch.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { e.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait(); e.model.Close() })
	return e
}

// prompt returns n ids. Prompts of different seeds have no ids in common.
func prompt(seed, n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32((seed*131 + i*7) % 1500)
	}
	return ids
}

func ask(ids []uint32, tokens int) *workerv1.TokenRequest {
	return &workerv1.TokenRequest{Prompt: ids, Sampling: &llmv1.Sampling{MaxTokens: new(uint32(tokens)), IgnoreEos: true, Seed: new(uint64(7))}}
}

// read returns a stream's tokens, its end, and the time to its first token.
func (e engine) read(ctx context.Context, req *workerv1.TokenRequest) (ids []uint32, end *llmv1.End, first time.Duration, err error) {
	begun := time.Now()
	for out, e := range e.Generate(ctx, req) {
		if e != nil {
			return ids, nil, first, e
		}
		if ids = append(ids, out.GetTokens().GetIds()...); first == 0 && len(ids) > 0 {
			first = time.Since(begun)
		}
		end = out.GetEnd()
	}
	return ids, end, first, nil
}

func TestSimulatorKeepsTheContract(t *testing.T) {
	streamtest.Run(t, func(t *testing.T) streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse] {
		e := run(t, sim.Options{Speed: 100})
		return streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse]{
			Sequence: e.Generate,
			Short:    func() *workerv1.TokenRequest { return ask(prompt(1, 20), 5) },
			Long: func() *workerv1.TokenRequest {
				r := ask(prompt(2, 20), 1000)
				r.Sampling.MaxTokens = nil
				return r
			},
			Bad:  func() *workerv1.TokenRequest { return ask([]uint32{1536}, 5) },
			Live: func() int { return int(e.Load().GetRunning()) },
		}
	})
}

func TestMovedAnswerContinuesIdentically(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := run(t, sim.Options{}), run(t, sim.Options{Seed: 5, Block: 32})
		whole, _, _, err := here.read(t.Context(), ask(prompt(1, 50), 60))
		if err != nil || len(whole) != 60 || len(slices.Compact(slices.Sorted(slices.Values(whole)))) < 40 {
			t.Fatal(whole, err)
		}
		for _, at := range []int{1, 30, 59} {
			moved := ask(slices.Concat(prompt(1, 50), whole[:at]), 60)
			moved.Generated = uint32(at)
			rest, end, _, err := there.read(t.Context(), moved)
			if err != nil || !slices.Equal(rest, whole[at:]) || end.GetUsage().GetPromptTokens() != 50 || end.GetUsage().GetCompletionTokens() != 60 {
				t.Errorf("from token %d: %v, want %v; %v, %v", at, rest, whole[at:], end, err)
			}
		}
		other := ask(prompt(1, 50), 60)
		other.Sampling.Seed = new(uint64(8))
		if ids, _, _, _ := here.read(t.Context(), other); slices.Equal(ids, whole) {
			t.Error("another seed gives the same answer")
		}
	})
}

func TestAnswersHonourTheirLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := run(t, sim.Options{Answer: 4})
		free, end, _, err := e.read(t.Context(), &workerv1.TokenRequest{Prompt: prompt(3, 10), Sampling: &llmv1.Sampling{Seed: new(uint64(1))}})
		if err != nil || len(free) > 60 || end.GetFinish() != llmv1.Finish_FINISH_STOP || end.GetUsage().GetCompletionTokens() != uint32(len(free))+1 {
			t.Error(len(free), end, err)
		}
		least, end, _, err := e.read(t.Context(), &workerv1.TokenRequest{Prompt: prompt(3, 10), Sampling: &llmv1.Sampling{Seed: new(uint64(1)), MinTokens: new(uint32(100))}})
		if err != nil || len(least) < 100 || !slices.Equal(least[:len(free)], free) || end.GetFinish() != llmv1.Finish_FINISH_STOP {
			t.Error(len(least), end, err)
		}
		all, end, _, err := e.read(t.Context(), ask(prompt(3, 10), 50))
		if err != nil || len(all) != 50 || end.GetFinish() != llmv1.Finish_FINISH_LENGTH || slices.Contains(all, eos) {
			t.Error(all, end, err)
		}
		stopped := ask(prompt(3, 10), 50)
		stopped.Sampling.StopTokenIds = all[20:21]
		if ids, end, _, err := e.read(t.Context(), stopped); err != nil || !slices.Equal(ids, all[:slices.Index(all, all[20])]) || end.GetFinish() != llmv1.Finish_FINISH_STOP {
			t.Error(ids, end, err)
		}
		greedy := func(seed uint64) []uint32 {
			r := ask(prompt(3, 10), 50)
			r.Sampling.Temperature, r.Sampling.Seed = new(float32(0)), &seed
			ids, _, _, _ := e.read(t.Context(), r)
			return ids
		}
		if !slices.Equal(greedy(1), greedy(2)) {
			t.Error("a greedy answer depends on the seed")
		}
	})
}

func TestCachedPrefixTakesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := run(t, sim.Options{})
		ids := prompt(1, 960)
		answer, end, cold, err := e.read(t.Context(), ask(ids, 20))
		if want := 960*sim.DefaultPrefillToken + 2*sim.DefaultStep; err != nil || cold != want || end.GetUsage().GetCachedTokens() != 0 {
			t.Errorf("the first token took %v, want %v; %v, %v", cold, want, end, err)
		}
		_, end, warm, err := e.read(t.Context(), ask(ids, 1))
		if want := 16*sim.DefaultPrefillToken + sim.DefaultStep; err != nil || warm != want || end.GetUsage().GetCachedTokens() != 944 {
			t.Errorf("the first token took %v, want %v; %v, %v", warm, want, end, err)
		}
		_, end, _, err = e.read(t.Context(), ask(slices.Concat(ids, answer), 1)) // the next turn of a conversation
		if err != nil || end.GetUsage().GetCachedTokens() != 976 {
			t.Error(end, err)
		}
		if e.model.Cached() != 976 || e.model.Prefill() != 0 || e.held.Held() != 61 {
			t.Error(e.model.Cached(), e.model.Prefill(), e.held.Held())
		}
	})
}

// TestEventsMatchTheCache runs many prompts through a small cache, and compares the reported blocks
// with the blocks that prompts find.
func TestEventsMatchTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := run(t, sim.Options{KVTokens: 1600})
		ctx, cancel := context.WithCancel(t.Context())
		reported := map[uint64]bool{}
		var listener, readers sync.WaitGroup
		listener.Go(func() {
			s := e.held.Subscribe()
			defer s.Close()
			for {
				batch, err := s.Next(ctx)
				if err != nil {
					return
				}
				if batch.GetReset_() {
					clear(reported)
				}
				for _, b := range batch.GetRemoved() {
					delete(reported, b)
				}
				for _, b := range batch.GetStored() {
					reported[b] = true
				}
			}
		})
		for i := range 40 {
			readers.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 1))
				for range 10 {
					ids := prompt(random.IntN(6), 16*(1+random.IntN(20)))
					if _, _, _, err := e.read(t.Context(), ask(ids, 1+random.IntN(60))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		readers.Wait()
		synctest.Wait()
		cancel()
		listener.Wait()
		if n := e.held.Held(); n != len(reported) || n > 100 || n < 90 {
			t.Errorf("%d blocks are held, %d were reported", n, len(reported))
		}
		// reported blocks are found, up to the first block that is not reported
		names, cached := kvblock.Chain(nil, 0, prompt(0, 400), 16), 0
		for cached < 24 && reported[names[cached]] {
			cached++
		}
		if _, end, _, err := e.read(t.Context(), ask(prompt(0, 400), 1)); err != nil || int(end.GetUsage().GetCachedTokens()) != 16*cached {
			t.Errorf("%d of the blocks were reported, and usage is %v, %v", cached, end.GetUsage(), err)
		}
		if used, total := e.model.KV(); used != 0 || total != 1600 {
			t.Error(used, total)
		}
	})
}

func TestFaultsStrikeTheirShareOfStreams(t *testing.T) {
	for name, c := range map[string]struct {
		opts          sim.Options
		failed, slept int
	}{
		"none":  {sim.Options{}, 0, 0},
		"fail":  {sim.Options{Fail: 0.5, Seed: 3}, 50, 0},
		"stall": {sim.Options{Stall: 0.25, StallFor: time.Minute, Seed: 3}, 0, 25},
		"all":   {sim.Options{Fail: 1}, 100, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := run(t, c.opts)
				failed, slept := 0, 0
				for i := range 100 {
					begun := time.Now()
					ids, _, _, err := e.read(t.Context(), ask(prompt(i, 10), 40))
					switch {
					case err == nil && len(ids) != 40:
						t.Error(ids)
					case err != nil && (!errors.Is(err, streamerr.EngineFailed) || len(ids) > 32 || len(ids) == 0):
						t.Error(len(ids), err)
					}
					if err != nil {
						failed++
					}
					if time.Since(begun) >= time.Minute {
						slept++
					}
				}
				if off := max(failed-c.failed, c.failed-failed, slept-c.slept, c.slept-slept); off > 12 {
					t.Errorf("%d failed and %d stalled", failed, slept)
				}
			})
		})
	}
}

func TestOneFailedStreamEndsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := run(t, sim.Options{Fail: 0.5, Seed: 3})
		var wg sync.WaitGroup
		var mu sync.Mutex
		whole := 0
		for i := range 40 {
			wg.Go(func() {
				if ids, _, _, err := e.read(t.Context(), ask(prompt(i, 10), 40)); err == nil && len(ids) == 40 {
					mu.Lock()
					whole++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if whole < 10 || whole > 30 {
			t.Errorf("%d of 40 streams were whole", whole)
		}
	})
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	nan := 0.0
	nan /= nan
	for _, o := range []sim.Options{{Step: -1}, {Block: 5000}, {Chunk: -1}, {Speed: -1}, {Speed: nan}, {Fail: 2}, {Stall: nan}} {
		if o.Validate() == nil {
			t.Errorf("%+v", o)
		}
	}
	if o := (sim.Options{}); o.Validate() != nil {
		t.Error(o.Validate())
	}
}

// BenchmarkStep measures the simulator's overhead per token, without the simulated time.
func BenchmarkStep(b *testing.B) {
	m := sim.New(vocabulary(), sim.Options{Speed: 1e12, ContextLength: 1 << 30, KVTokens: 1 << 30}, &kvevents.Hub{})
	ids := make([]uint64, 64)
	for i := range ids {
		ids[i] = uint64(i)
		if err := m.Join(uint64(i), ask(prompt(i, 100), 1<<20)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	var out []batch.Output
	for b.Loop() {
		var err error
		if out, err = m.Step(ids, out[:0]); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/token")
}
