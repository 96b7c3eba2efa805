package batch_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/llm-worker/batch"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A countingModel answers prompt [n] with 1, 2, ... n and a hidden token, one token per
// millisecond.
type countingModel struct {
	room int // maximum sequences; 0 means no limit
	fail func(step int) error

	mu    sync.Mutex // for the tests: Loop.Run calls all methods but Check and KV from one goroutine
	at    map[uint64]uint32
	goal  map[uint64]uint32
	most  int
	steps int
	asked int // number of Join calls
}

func newCounting() *countingModel {
	return &countingModel{at: map[uint64]uint32{}, goal: map[uint64]uint32{}}
}

func (m *countingModel) Check(req *workerv1.TokenRequest) error {
	if len(req.GetPrompt()) != 1 {
		return streamerr.InvalidParam("prompt", "prompt must be one number")
	}
	return nil
}

func (m *countingModel) Join(id uint64, req *workerv1.TokenRequest) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	if m.room > 0 && len(m.at) >= m.room {
		return batch.ErrFull
	}
	m.at[id], m.goal[id] = 0, req.GetPrompt()[0]
	m.most = max(m.most, len(m.at))
	return nil
}

func (m *countingModel) Leave(id uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.at, id)
	delete(m.goal, id)
}

func (m *countingModel) Step(ids []uint64, out []batch.Output) ([]batch.Output, error) {
	time.Sleep(time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps++
	if m.fail != nil {
		if err := m.fail(m.steps); err != nil {
			return out, err
		}
	}
	for _, id := range ids {
		m.at[id]++
		o := batch.Output{ID: id, Token: m.at[id]}
		if m.at[id] > m.goal[id] {
			o.Hidden, o.Finish = true, llmv1.Finish_FINISH_STOP
		}
		out = append(out, o)
	}
	return out, nil
}

func (m *countingModel) KV() (used, total uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return uint64(len(m.at)), uint64(m.room)
}

func (m *countingModel) live() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.at)
}

// run runs a loop until the test ends.
func run(t *testing.T, m batch.Model, opts batch.Options) (*batch.Loop, context.CancelCauseFunc) {
	t.Helper()
	l := batch.New(m, opts)
	ctx, cancel := context.WithCancelCause(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { l.Run(ctx) })
	t.Cleanup(func() { cancel(nil); wg.Wait() })
	return l, cancel
}

func count(n uint32) *workerv1.TokenRequest { return &workerv1.TokenRequest{Prompt: []uint32{n}} }

func TestLoopKeepsTheContract(t *testing.T) {
	streamtest.Run(t, func(t *testing.T) streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse] {
		m := newCounting()
		l, _ := run(t, m, batch.Options{})
		return streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse]{
			Sequence: l.Generate,
			Short:    func() *workerv1.TokenRequest { return count(5) },
			Long:     func() *workerv1.TokenRequest { return count(1 << 30) },
			Bad:      func() *workerv1.TokenRequest { return &workerv1.TokenRequest{} },
			Live:     m.live,
		}
	})
}

// read ranges over a stream and returns its tokens, the number of items, and its ending.
func read(ctx context.Context, l *batch.Loop, req *workerv1.TokenRequest, each func(n int)) (tokens []uint32, items int, end *llmv1.End, err error) {
	for out, e := range l.Generate(ctx, req) {
		if e != nil {
			return tokens, items, nil, e
		}
		if ids := out.GetTokens().GetIds(); len(ids) > 0 {
			tokens = append(tokens, ids...)
			items++
			if each != nil {
				each(len(tokens))
			}
		}
		end = out.GetEnd()
	}
	return tokens, items, end, nil
}

func TestSlowReaderNeverBlocksBatchAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newCounting()
		l, _ := run(t, m, batch.Options{})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				begun := time.Now()
				tokens, items, end, err := read(t.Context(), l, count(50), func(int) {
					if i == 0 {
						time.Sleep(10 * time.Millisecond)
					}
				})
				if err != nil || len(tokens) != 50 || !slices.IsSorted(tokens) || end.GetUsage().GetCompletionTokens() != 51 {
					t.Errorf("stream %d: %d tokens, %v, %v", i, len(tokens), end, err)
				}
				if took := time.Since(begun); i > 0 && took > 60*time.Millisecond {
					t.Errorf("stream %d was slowed: %v", i, took)
				}
				if i == 0 && items > 10 {
					t.Errorf("the slow reader got %d items", items)
				}
			})
		}
		wg.Wait()
		if m.most != 8 || m.live() != 0 {
			t.Error(m.most, m.live())
		}
	})
}

func TestUsageOfAMovedStreamCoversTheWholeStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := run(t, longPromptModel{newCounting()}, batch.Options{})
		var kept ledger.Ledger
		record := kept.Open("id", "worker", "")
		req := &workerv1.TokenRequest{Prompt: []uint32{5, 1, 2, 3}, Generated: 3}
		for out, err := range l.Generate(ledger.With(t.Context(), record), req) {
			switch {
			case err != nil:
				t.Error(err)
			case out.GetStarted() != nil && out.GetStarted().GetPromptTokens() != 1:
				t.Error(out)
			case out.GetEnd() != nil && (out.GetEnd().GetUsage().GetPromptTokens() != 1 || out.GetEnd().GetUsage().GetCompletionTokens() != 3+6):
				t.Error(out)
			}
		}
		if in := record.Proto().GetTokensIn(); in != 6 {
			t.Errorf("%d tokens were generated here, want 6", in)
		}
	})
}

// A longPromptModel is a countingModel that accepts longer prompts and uses the first number of
// each.
type longPromptModel struct{ *countingModel }

func (m longPromptModel) Check(*workerv1.TokenRequest) error { return nil }

func TestReaderPastTheBoundEndsWithSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newCounting()
		l, _ := run(t, m, batch.Options{MaxUnread: 20})
		tokens, _, _, err := read(t.Context(), l, count(1000), func(int) { time.Sleep(time.Second) })
		if !errors.Is(err, streamerr.SlowReader) || len(tokens) < 20 || m.live() != 0 {
			t.Fatal(len(tokens), err, m.live())
		}
	})
}

func TestQueueIsBoundedAndFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newCounting()
		l, _ := run(t, m, batch.Options{MaxRunning: 1, MaxQueued: 2})
		var order []uint32
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range uint32(4) {
			wg.Go(func() {
				_, _, _, err := read(t.Context(), l, count(10+i), nil)
				if i == 3 {
					e := streamerr.As(err)
					if e.Reason != streamerr.Overloaded || e.RetryAfter == 0 {
						t.Errorf("the fourth stream got %v", err)
					}
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
			})
			synctest.Wait()
		}
		if load := l.Load(); load.GetRunning() != 1 || load.GetQueued() != 2 {
			t.Error(load)
		}
		wg.Wait()
		if !slices.Equal(order, []uint32{0, 1, 2}) || m.most != 1 {
			t.Error(order, m.most)
		}
	})
}

// A slowKV is a countingModel whose KV method takes a while.
type slowKV struct{ *countingModel }

func (m slowKV) KV() (used, total uint64) {
	time.Sleep(10 * time.Millisecond)
	return m.countingModel.KV()
}

func TestPlaceIsFreeWhenItsStreamHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := run(t, slowKV{newCounting()}, batch.Options{MaxRunning: 1, MaxQueued: -1})
		for range 3 {
			for _, err := range l.Generate(t.Context(), count(2)) {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func TestSequenceWaitsUntilThereIsRoomInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newCounting()
		m.room = 2
		l, _ := run(t, m, batch.Options{})
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				if tokens, _, _, err := read(t.Context(), l, count(10), nil); err != nil || len(tokens) != 10 {
					t.Error(len(tokens), err)
				}
			})
		}
		wg.Wait()
		if m.most != 2 {
			t.Error(m.most)
		}
		if m.asked > 12 { // once, and again after each sequence that leaves, but not at every step
			t.Errorf("the model was asked %d times for six places", m.asked)
		}
	})
}

func TestStoppedStreamLeavesQueueAndBatch(t *testing.T) {
	for _, where := range []string{"batch", "queue"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newCounting()
				l, _ := run(t, m, batch.Options{MaxRunning: 1})
				ahead, leave := stream.WithControl(t.Context(), time.Second)
				defer leave.Release()
				var wg sync.WaitGroup
				if where == "queue" {
					wg.Go(func() { _, _, _, _ = read(ahead, l, count(1<<30), nil) })
					synctest.Wait()
				}
				ctx, ctl := stream.WithControl(t.Context(), time.Second)
				defer ctl.Release()
				var err error
				wg.Go(func() { _, _, _, err = read(ctx, l, count(1<<30), nil) })
				time.Sleep(20 * time.Millisecond)
				ctl.Stop(streamerr.ClientGone)
				leave.Stop(streamerr.ClientGone)
				begun := time.Now()
				wg.Wait()
				if took := time.Since(begun); took > time.Millisecond || !errors.Is(err, streamerr.ClientGone) || m.live() != 0 {
					t.Error(took, err, m.live())
				}
				if load := l.Load(); load.GetRunning() != 0 || load.GetQueued() != 0 {
					t.Error(load)
				}
			})
		})
	}
}

func TestPaceSpacesTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := run(t, newCounting(), batch.Options{Pace: 20})
		begun := time.Now()
		tokens, items, _, err := read(t.Context(), l, count(20), nil)
		if err != nil || len(tokens) != 20 || items != 20 {
			t.Fatal(len(tokens), items, err)
		}
		if took := time.Since(begun); took < time.Second || took > 1100*time.Millisecond {
			t.Error(took)
		}
	})
}

func TestEndOfRunEndsEveryStreamOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newCounting()
		l, cancel := run(t, m, batch.Options{MaxRunning: 2})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if _, _, _, err := read(t.Context(), l, count(1<<30), nil); !errors.Is(err, streamerr.Draining) {
					t.Error(err)
				}
			})
		}
		time.Sleep(10 * time.Millisecond)
		cancel(streamerr.Draining)
		wg.Wait()
		if _, _, _, err := read(t.Context(), l, count(1), nil); !errors.Is(err, streamerr.Draining) {
			t.Error(err)
		}
		if n := len(slices.Collect(maps.Keys(m.at))); n != 0 {
			t.Error(n)
		}
	})
}

// A slowModel takes a second per step, longer than the grace of a stream.
type slowModel struct{ *countingModel }

func (m slowModel) Step(ids []uint64, out []batch.Output) ([]batch.Output, error) {
	time.Sleep(time.Second)
	return m.countingModel.Step(ids, out)
}

func TestStreamKilledInAStepKeepsItsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := run(t, slowModel{newCounting()}, batch.Options{})
		var kept ledger.Ledger
		ctx, ctl := stream.WithControl(t.Context(), time.Millisecond)
		defer ctl.Release()
		record := kept.Open("id", "worker", "")
		_, _, _, err := read(ledger.With(ctx, record), l, count(10), func(n int) {
			if n == 3 {
				ctl.Stop(streamerr.ClientGone)
			}
		})
		if got := record.Proto(); !errors.Is(err, streamerr.ClientGone) || got.GetTokensIn() != 3 || got.GetStopConfirmed() != nil {
			t.Error(err, got)
		}
	})
}

// BenchmarkLoop measures the loop's overhead per token, without the model.
func BenchmarkLoop(b *testing.B) {
	for _, streams := range []int{1, 64} {
		b.Run(map[int]string{1: "1 stream", 64: "64 streams"}[streams], func(b *testing.B) {
			l := batch.New(freeModel{newCounting()}, batch.Options{MaxUnread: 1 << 30})
			ctx, cancel := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			wg.Go(func() { l.Run(ctx) })
			b.ReportAllocs()
			var readers sync.WaitGroup
			for range streams {
				readers.Go(func() {
					for _, err := range l.Generate(ctx, count(uint32(b.N/streams))) {
						if err != nil {
							b.Error(err)
						}
					}
				})
			}
			readers.Wait()
			cancel()
			wg.Wait()
		})
	}
}

// A freeModel is a countingModel whose steps take no time.
type freeModel struct{ *countingModel }

func (m freeModel) Step(ids []uint64, out []batch.Output) ([]batch.Output, error) {
	for _, id := range ids {
		m.at[id]++
		o := batch.Output{ID: id, Token: m.at[id]}
		if m.at[id] > m.goal[id] {
			o.Hidden, o.Finish = true, llmv1.Finish_FINISH_STOP
		}
		out = append(out, o)
	}
	return out, nil
}

// A partlyCachedModel is a countingModel that fails the sequence of prompt [13] at its third token,
// and finds two tokens of each prompt in its cache.
type partlyCachedModel struct{ *countingModel }

func (m partlyCachedModel) Step(ids []uint64, out []batch.Output) ([]batch.Output, error) {
	out, err := m.countingModel.Step(ids, out)
	for i := range out {
		out[i].Cached = 2
		if m.goal[out[i].ID] == 13 && out[i].Token == 3 {
			out[i].Err = &streamerr.Error{Reason: streamerr.EngineFailed}
		}
	}
	return out, err
}

func TestSequenceThatFailsEndsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newCounting()
		l, _ := run(t, partlyCachedModel{m}, batch.Options{})
		var told []uint32 // sent only with the first tokens
		for out := range l.Generate(t.Context(), count(10)) {
			if tokens := out.GetTokens(); tokens != nil && tokens.CachedTokens != nil {
				told = append(told, tokens.GetIds()[0], tokens.GetCachedTokens())
			}
		}
		if !slices.Equal(told, []uint32{1, 1}) {
			t.Error(told)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if tokens, _, _, err := read(t.Context(), l, count(13), nil); !errors.Is(err, streamerr.EngineFailed) || len(tokens) != 2 {
				t.Error(tokens, err)
			}
		})
		if tokens, _, end, err := read(t.Context(), l, count(10), nil); err != nil || len(tokens) != 10 || end.GetUsage().GetCachedTokens() != 1 {
			t.Error(tokens, end, err) // at most as many tokens are cached as the prompt has
		}
		wg.Wait()
		if m.live() != 0 {
			t.Error(m.live())
		}
	})
}
