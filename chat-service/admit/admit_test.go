package admit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/leaktest"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// worker is an engine that takes some time for each token.
type worker struct {
	mu      sync.Mutex
	order   []string // tenants in the order in which their streams began
	tokens  map[string]int
	running int
	dead    bool          // it cannot be reached
	every   time.Duration // the time for a token
}

func (w *worker) generate(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		if cause := stream.Cause(ctx); cause != nil {
			yield(nil, cause)
			return
		}
		dead := false
		w.count(func() { w.order = append(w.order, req.GetStreamId()); w.running++; dead = w.dead })
		defer w.count(func() { w.running-- })
		if dead {
			yield(nil, &streamerr.Error{Reason: streamerr.Unavailable, Path: streamerr.NewPath("w/0"), Message: "the worker refuses connections"})
			return
		}
		if req.GetModel() == "large" { // longer than any worker's context
			yield(nil, streamerr.New(streamerr.Unavailable, "no healthy worker for this request"))
			return
		}
		if req.GetModel() == "bad" {
			yield(nil, streamerr.New(streamerr.Invalid, "bad"))
			return
		}
		if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{}}}, nil) {
			return
		}
		tick := time.NewTicker(w.every)
		defer tick.Stop()
		for range req.GetSampling().GetMaxTokens() {
			select {
			case <-tick.C:
			case <-stream.Stopping(ctx):
				yield(nil, stream.Cause(ctx))
				return
			}
			w.count(func() { w.tokens[req.GetClaim().GetTenant()]++ })
			if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{1}}}}, nil) {
				return
			}
		}
		yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{Reason: streamv1.Reason_REASON_COMPLETED}}}, nil)
	}
}

func (w *worker) count(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// A place is a queue before a worker in a synctest bubble.
type place struct {
	*worker
	queue  *Queue
	engine stream.Sequence[*workerv1.TokenRequest, *workerv1.GenerateResponse]
	room   int
	ill    bool // no worker is healthy
	begun  int
	all    sync.WaitGroup
}

func newPlace(room int, opts Options) *place {
	p := &place{worker: &worker{tokens: map[string]int{}, every: time.Second}, room: room}
	opts.Room = func() (int, bool) { return p.room, !p.ill }
	if opts.MaxStreams == 0 {
		opts.MaxStreams = 1000
	}
	if opts.MaxTokens == 0 {
		opts.MaxTokens = 1 << 20
	}
	p.queue = New(opts)
	p.engine = p.queue.Stage(stream.Push(p.generate)).Range
	return p
}

// ask starts a stream, and returns when it runs or waits. The channel receives its ending.
func (p *place) ask(ctx context.Context, claim *llmv1.Claim, prompt, tokens int) <-chan error {
	return p.askOf(ctx, "", claim, prompt, tokens)
}

// askOf is ask for a named model.
func (p *place) askOf(ctx context.Context, model string, claim *llmv1.Claim, prompt, tokens int) <-chan error {
	ended := make(chan error, 1)
	p.begun++
	req := &workerv1.TokenRequest{
		Model: model, StreamId: fmt.Sprintf("%s%d", claim.GetTenant(), p.begun), Prompt: make([]uint32, prompt), Claim: claim,
		Sampling: &llmv1.Sampling{MaxTokens: new(uint32(tokens))},
	}
	p.all.Go(func() {
		var last error
		for _, err := range p.engine(ctx, req) {
			last = err
		}
		ended <- last
	})
	synctest.Wait()
	return ended
}

func of(tenant string, weight uint32) *llmv1.Claim {
	return &llmv1.Claim{Tenant: tenant, Weight: weight}
}

func in(tenant string, tier llmv1.Tier) *llmv1.Claim {
	return &llmv1.Claim{Tenant: tenant, Tier: tier}
}

func TestQueueKeepsTheContract(t *testing.T) {
	streamtest.Run(t, func(*testing.T) streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse] {
		p := newPlace(-1, Options{})
		p.every = time.Millisecond // not in a bubble
		ask := func(model string, tokens uint32) *workerv1.TokenRequest {
			return &workerv1.TokenRequest{Model: model, Prompt: []uint32{1}, Sampling: &llmv1.Sampling{MaxTokens: &tokens}}
		}
		return streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse]{
			Sequence: p.engine,
			Short:    func() *workerv1.TokenRequest { return ask("", 0) },
			Long:     func() *workerv1.TokenRequest { return ask("", 1<<30) },
			Bad:      func() *workerv1.TokenRequest { return ask("bad", 1) },
			Live: func() int {
				running, waiting := p.queue.Load()
				return running + waiting
			},
		}
	})
}

// Two tenants that always want more get tokens in proportion to their weights, whatever the length
// of their answers. A tenant that asks for little hardly waits.
func TestTenantsGetTheirShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(4, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		for range 200 {
			p.ask(ctx, of("heavy", 3), 0, 10)
			p.ask(ctx, of("light", 1), 0, 5)
		}
		time.Sleep(20 * time.Second)
		small := p.ask(ctx, of("small", 1), 1, 1)
		arrived := time.Now()
		if err := <-small; err != nil {
			t.Error(err)
		}
		if waited := time.Since(arrived); waited > 12*time.Second { // until a place is free, then its own token
			t.Errorf("the small tenant waited %v", waited)
		}
		time.Sleep(180 * time.Second)
		p.mu.Lock()
		ratio := float64(p.tokens["heavy"]) / float64(p.tokens["light"])
		p.mu.Unlock()
		if ratio < 2.7 || ratio > 3.3 {
			t.Errorf("with three times the weight, %.2f times the tokens", ratio)
		}
		cancel()
		p.all.Wait()
		if running, waiting := p.queue.Load(); running != 0 || waiting != 0 || len(p.queue.tenants) != 0 || p.queue.tokens != 0 {
			t.Errorf("%d run, %d wait, %d tenants, %d tokens are left", running, waiting, len(p.queue.tenants), p.queue.tokens)
		}
	})
}

// A tenant that asks again after each answer has no stream for a moment each time. Its counter must
// survive that.
func TestTenantWithoutPausesGetsOnlyItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(1, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		for range 200 {
			p.ask(ctx, of("queues", 1), 0, 5)
		}
		began := time.Now()
		for time.Since(began) < 500*time.Second {
			<-p.ask(ctx, of("returns", 1), 0, 50)
		}
		p.mu.Lock()
		ratio := float64(p.tokens["returns"]) / float64(p.tokens["queues"])
		p.mu.Unlock()
		if ratio < 0.8 || ratio > 1.25 {
			t.Errorf("%.2f times the tokens", ratio)
		}
		cancel()
		p.all.Wait()
		if n := len(p.queue.tenants); n != 0 {
			t.Errorf("%d tenants are left", n)
		}
	})
}

func TestUrgentTierGoesFirstAndNoTierStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(1, Options{})
		p.ask(t.Context(), of("", 0), 0, 5) // occupies the place
		p.ask(t.Context(), in("flex", llmv1.Tier_TIER_FLEX), 0, 20)
		p.ask(t.Context(), in("plain", llmv1.Tier_TIER_UNSPECIFIED), 0, 20)
		p.ask(t.Context(), in("urgent", llmv1.Tier_TIER_PRIORITY), 0, 20)
		p.ask(t.Context(), in("urgent", llmv1.Tier_TIER_PRIORITY), 0, 20)
		// From second 30 on plain counts as urgent and has had less service; flex does so from
		// second 60 on.
		p.ask(t.Context(), in("urgent", llmv1.Tier_TIER_PRIORITY), 0, 20)
		p.ask(t.Context(), in("urgent", llmv1.Tier_TIER_PRIORITY), 0, 20)
		p.all.Wait()
		var order []string
		for _, id := range p.order {
			order = append(order, strings.TrimRight(id, "0123456789"))
		}
		if want := []string{"", "urgent", "urgent", "plain", "flex", "urgent", "urgent"}; !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
	})
}

// All requests without a tenant share one tenant. Within it, too, the urgent tier must not starve
// the others.
func TestNoTierOfATenantStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(1, Options{})
		p.ask(t.Context(), nil, 0, 5) // occupies the place
		for _, tier := range []llmv1.Tier{
			llmv1.Tier_TIER_FLEX, llmv1.Tier_TIER_UNSPECIFIED, llmv1.Tier_TIER_PRIORITY,
			llmv1.Tier_TIER_PRIORITY, llmv1.Tier_TIER_PRIORITY, llmv1.Tier_TIER_PRIORITY,
		} {
			p.ask(t.Context(), in("", tier), 0, 20)
			time.Sleep(time.Millisecond) // so that the first stream arrives first
		}
		p.all.Wait()
		if want := []string{"1", "4", "5", "3", "2", "6", "7"}; !slices.Equal(p.order, want) {
			t.Errorf("%q, want %q", p.order, want)
		}
	})
}

func TestWaitingEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(1, Options{})
		p.ask(t.Context(), nil, 0, 100)
		ctx, ctl := stream.WithControl(t.Context(), time.Second)
		ended := p.ask(ctx, nil, 7, 100)
		if running, waiting := p.queue.Load(); running != 1 || waiting != 1 {
			t.Fatalf("%d run, %d wait", running, waiting)
		}
		cause := errors.New("stop")
		began := time.Now()
		ctl.Stop(cause)
		if err := <-ended; !errors.Is(err, cause) {
			t.Error(err)
		}
		ctl.Release()
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
		if _, waiting := p.queue.Load(); waiting != 0 || p.queue.tokens != 0 {
			t.Errorf("%d still wait", waiting)
		}
	})
}

func TestQueueIsBounded(t *testing.T) {
	const prompt = 100
	for name, test := range map[string]struct {
		opts   Options
		tenant string
		fits   int
	}{
		"streams":                     {Options{MaxStreams: 8}, "", 8},
		"tokens":                      {Options{MaxTokens: 8 * prompt}, "", 8},
		"one prompt that is too long": {Options{MaxTokens: prompt - 1}, "", 1},
		"a tenant's streams":          {Options{MaxStreams: 8}, "a", 4},
		"a tenant's tokens":           {Options{MaxTokens: 8 * prompt}, "a", 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlace(1, test.opts)
				ctx, cancel := context.WithCancel(t.Context())
				for range 10 { // one place becomes free every three seconds
					<-p.ask(ctx, of("", 0), 0, 3)
				}
				p.ask(ctx, of("", 0), 0, 1000)
				for range test.fits {
					p.ask(ctx, of(test.tenant, 0), prompt, 1)
				}
				e := streamerr.As(<-p.ask(ctx, of(test.tenant, 0), prompt, 1))
				if want := time.Duration(3*(test.fits+1)) * time.Second; e.Reason != streamerr.Overloaded || e.RetryAfter != want {
					t.Errorf("%v, retry after %v, want %v", e, e.RetryAfter, want)
				}
				if test.tenant != "" {
					p.ask(ctx, of("b", 0), prompt, 1)
				}
				_, waiting := p.queue.Load()
				if want := test.fits + min(len(test.tenant), 1); waiting != want {
					t.Errorf("%d wait, want %d", waiting, want)
				}
				cancel()
				p.all.Wait()
			})
		})
	}
}

func TestRoomThatAppearsLaterIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(0, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		p.all.Go(func() { p.queue.Run(ctx) })
		p.ask(ctx, nil, 0, 1000)
		if running, _ := p.queue.Load(); running != 0 {
			t.Fatal("it runs without room")
		}
		p.queue.mu.Lock() // Room is called under this lock
		p.room = 1
		p.queue.mu.Unlock()
		time.Sleep(lookEvery)
		synctest.Wait()
		if running, _ := p.queue.Load(); running != 1 {
			t.Error("the room was not found")
		}
		cancel()
		p.all.Wait()
	})
}

func BenchmarkEmptyQueue(b *testing.B) {
	q := New(Options{MaxStreams: 1, MaxTokens: 1, Room: func() (int, bool) { return 1, true }})
	claim := of("tenant", 1)
	for b.Loop() {
		t, err := q.enter(claim, 100)
		if err != nil {
			b.Fatal(err)
		}
		q.charge(t, 1)
		q.leave(t)
	}
}
