package route

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/route/failover"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// ask returns a request with this max_tokens.
func ask(limit uint32) *workerv1.TokenRequest {
	return &workerv1.TokenRequest{StreamId: "id", Model: "m", Prompt: []uint32{7, 8, 9}, Sampling: &llmv1.Sampling{MaxTokens: &limit, Seed: new(uint64(5))}}
}

// A result is everything that a stream yielded.
type result struct {
	started int
	tokens  []uint32
	end     *llmv1.End
	err     error
	took    time.Duration
}

func read(ctx context.Context, p *Pool, req *workerv1.TokenRequest, each func(tokens int)) (r result) {
	begun := time.Now()
	for out, err := range p.Generate(ctx, req) {
		if r.err != nil || r.end != nil {
			r.err = errors.New("a message followed the ending")
			return r
		}
		r.err = err
		if out.GetStarted() != nil {
			r.started++
		}
		r.tokens = append(r.tokens, out.GetTokens().GetIds()...)
		r.end = out.GetEnd()
		if each != nil && out.GetTokens() != nil {
			each(len(r.tokens))
		}
	}
	r.took = time.Since(begun)
	return r
}

// same checks that a stream yielded what it would have yielded without any failure.
func (r result) same(t *testing.T, want result) {
	t.Helper()
	if r.err != nil || r.started != 1 || !slices.Equal(r.tokens, want.tokens) || r.end.GetFinish() != want.end.GetFinish() ||
		r.end.GetUsage().GetPromptTokens() != want.end.GetUsage().GetPromptTokens() || r.end.GetUsage().GetCompletionTokens() != want.end.GetUsage().GetCompletionTokens() {
		t.Errorf("%d times Started, tokens %v, end %v, error %v; want %v, %v", r.started, r.tokens, r.end, r.err, want.tokens, want.end)
	}
}

func (r result) failed(t *testing.T, reason streamerr.Reason, path string) {
	t.Helper()
	if e := streamerr.As(r.err); r.err == nil || r.end != nil || e.Reason != reason || e.Path.String() != path {
		t.Errorf("ended with %v, %v; want %v by %q", r.end, r.err, reason, path)
	}
}

func TestPoolKeepsTheContract(t *testing.T) {
	streamtest.Run(t, func(t *testing.T) streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse] {
		a, b := &fake{name: "w/0"}, &fake{name: "w/1"}
		p := poolOf(t, Options{Migrations: 3, MigrateAfter: time.Second}, a, b)
		for _, w := range p.Members() {
			long := info(w.Name())
			long.ContextLength = 1 << 30
			w.Say(long)
		}
		return streamtest.Subject[*workerv1.TokenRequest, *workerv1.GenerateResponse]{
			Engine: p.Start,
			Short:  func() *workerv1.TokenRequest { return ask(3) },
			Long:   func() *workerv1.TokenRequest { return ask(60) },
			Bad:    func() *workerv1.TokenRequest { return &workerv1.TokenRequest{} },
			Live:   func() int { return a.running() + b.running() },
		}
	})
}

// Whenever and however a worker is lost, its streams continue with the next token.
func TestLossOfAWorkerIsInvisibleToTheClient(t *testing.T) {
	const limit = 12
	for name, fault := range map[string]func(*fake) error{
		"lost":        lostBy,
		"reset":       func(*fake) error { return streamerr.New(streamerr.PeerReset, "reset") },
		"draining":    func(*fake) error { return streamerr.New(streamerr.Draining, "draining") },
		"unavailable": func(*fake) error { return streamerr.New(streamerr.Unavailable, "no engine") },
		"hangs":       func(*fake) error { return errHang },
		"deaf":        func(*fake) error { return errDeaf },
	} {
		for stop, last := range map[int]int{0: limit, 9: 8} { // lost at the very end, only the End is missing
			t.Run(fmt.Sprint(name, stop), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					want := read(t.Context(), poolOf(t, Options{}, &fake{name: "w", stop: stop}), ask(limit), nil)
					for at := -1; at <= last; at++ {
						if at == 0 && (name == "hangs" || name == "deaf") {
							continue // a prompt may take a long time
						}
						got, asked := readLosing(t, stop, at, limit, fault)
						got.same(t, want)
						// the time that a deaf worker takes beyond the bound is not the stream's
						if asked > 1 || asked == 0 && at < limit || got.took > 3100*time.Millisecond {
							t.Errorf("lost after %d tokens: the second worker was asked %d times, the stream took %v", at, asked, got.took)
						}
					}
				})
			})
		}
	}
}

// readLosing reads a stream whose first worker is lost after at tokens. asked is how often the
// second worker was called.
func readLosing(t *testing.T, stop, at int, limit uint32, fault func(*fake) error) (got result, asked int) {
	t.Helper()
	a, b := &fake{name: "w/0", stop: stop}, &fake{name: "w/1", stop: stop}
	a.fault = func(tokens int) error {
		if tokens == at {
			return fault(a)
		}
		return nil
	}
	p := poolOf(t, Options{Policy: inOrder, Migrations: 1, MigrateAfter: 3 * time.Second}, a, b)
	got = read(t.Context(), p, ask(limit), nil)
	workers := p.Members()
	p.Close()
	if a.running()+b.running() != 0 || workers[0].Load() != 0 || workers[1].Load() != 0 {
		t.Errorf("lost after %d tokens: a call still runs", at)
	}
	return got, len(b.asked)
}

func TestRequestWithoutSeedGetsASeedForAllItsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &fake{name: "w/0"}, &fake{name: "w/1"}
		a.fault = func(tokens int) error {
			if tokens == 3 {
				return lostBy(a)
			}
			return nil
		}
		p := poolOf(t, Options{Policy: inOrder, Migrations: 1}, a, b)
		for _, sampling := range []*llmv1.Sampling{nil, {MaxTokens: new(uint32(9))}} {
			req := &workerv1.TokenRequest{StreamId: "id", Model: "m", Prompt: []uint32{1}, Sampling: sampling}
			got := read(t.Context(), p, req, nil)
			p.Members()[0].Say(p.Members()[0].Info()) // as a health probe does
			first, second := a.asked[len(a.asked)-1], b.asked[len(b.asked)-1]
			if got.err != nil || first.GetSampling().Seed == nil || first.GetSampling().GetSeed() != second.GetSampling().GetSeed() || sampling.GetSeed() != 0 {
				t.Errorf("%v: %v, then %v", got.err, first, second)
			}
			if second.GetGenerated() != 3 || !slices.Equal(second.GetPrompt()[1:], got.tokens[:3]) || second.GetStreamId() != "id" || second.GetModel() != "m" {
				t.Errorf("%v", second)
			}
		}
		if a.asked[0].GetSampling().GetSeed() == a.asked[1].GetSampling().GetSeed() {
			t.Error("two requests got the same seed")
		}
		// it may not honour a seed
		p.Members()[0].Say(&llmv1.WorkerInfo{Instance: "w/0", ContextLength: contextLength})
		read(t.Context(), p, &workerv1.TokenRequest{Prompt: []uint32{1}}, nil)
		if s := a.asked[2].GetSampling(); s.Seed != nil || s.GetMaxTokens() != contextLength-1 {
			t.Error(a.asked[2])
		}
		p.Members()[0].Say(p.Members()[0].Info())
		// and the next worker has no free place
		a.fault = func(int) error { return streamerr.New(streamerr.Overloaded, "full") }
		read(t.Context(), p, &workerv1.TokenRequest{Prompt: []uint32{1}}, nil)
		if last := b.asked[len(b.asked)-1]; a.asked[3].GetSampling().Seed != nil || last.GetSampling().Seed == nil {
			t.Error(a.asked[3], last)
		}
	})
}

func TestRefusalsAreNotRetried(t *testing.T) {
	for _, reason := range []streamerr.Reason{streamerr.Invalid, streamerr.NotFound, streamerr.Forbidden, streamerr.OperatorStop, streamerr.SlowReader} {
		for _, at := range []int{-1, 0, 2} {
			synctest.Test(t, func(t *testing.T) {
				a := &fake{name: "w/0", fault: func(tokens int) error {
					if tokens == at {
						return &streamerr.Error{Reason: reason, Path: streamerr.NewPath("w/0")}
					}
					return nil
				}}
				b := &fake{name: "w/1"}
				p := poolOf(t, Options{Policy: inOrder, Migrations: 3}, a, b)
				read(t.Context(), p, ask(9), nil).failed(t, reason, "w/0")
				if len(b.asked) != 0 || !good(p.Members()[0]) {
					t.Errorf("%v after %d tokens: the second worker was asked %d times", reason, at, len(b.asked))
				}
			})
		}
	}
}

func TestEachWorkerIsTriedOnceAndTheFirstFailureCounts(t *testing.T) {
	for name, c := range map[string]struct {
		fault  func(*fake) error
		reason streamerr.Reason
		path   string
	}{
		"lost": {lostBy, streamerr.Unavailable, "w/0"},
		"overloaded": {func(f *fake) error {
			return &streamerr.Error{Reason: streamerr.Overloaded, Path: streamerr.NewPath(f.name)}
		}, streamerr.Overloaded, "w/0"},
		"draining": {func(f *fake) error {
			return &streamerr.Error{Reason: streamerr.Draining, Path: streamerr.NewPath(f.name)}
		}, streamerr.Draining, "w/0"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var fakes []*fake
				for i := range 3 {
					f := &fake{name: fmt.Sprint("w/", i)}
					f.fault = func(int) error { return c.fault(f) }
					fakes = append(fakes, f)
				}
				p := poolOf(t, Options{Policy: inOrder}, fakes...)
				got := read(t.Context(), p, ask(9), nil)
				got.failed(t, c.reason, c.path)
				for _, f := range fakes {
					if len(f.asked) != 1 {
						t.Errorf("%s was asked %d times", f.name, len(f.asked))
					}
				}
				if e := streamerr.As(got.err); !strings.Contains(e.Message, "; then w/1: ") || !strings.Contains(e.Message, "; then w/2: ") {
					t.Errorf("the message lacks the later failures: %s", e.Message)
				}
				if c.reason == streamerr.Unavailable && streamerr.As(got.err).RetryAfter == 0 {
					t.Error("the error has no Retry-After")
				}
			})
		})
	}
}

func TestNoHealthyWorkerIsUnavailable(t *testing.T) {
	p := poolOf(t, Options{}, &fake{name: "w/0"})
	p.Members()[0].Say(nil)
	got := read(t.Context(), p, ask(1), nil)
	got.failed(t, streamerr.Unavailable, "")
	if streamerr.As(got.err).RetryAfter == 0 {
		t.Error("the error has no Retry-After")
	}
}

func TestRetriesHaveABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &fake{name: "w/0"}, &fake{name: "w/1"}
		full := streamerr.New(streamerr.Overloaded, "full")
		a.fault, b.fault = func(int) error { return full }, func(int) error { return full }
		p := poolOf(t, Options{}, a, b)
		const requests = 500
		for range requests {
			read(t.Context(), p, ask(1), nil).failed(t, streamerr.Overloaded, "")
		}
		retries := len(a.asked) + len(b.asked) - requests
		if want := int(requests*failover.BudgetRatio) + failover.BudgetMax; retries > want || retries < want-2 {
			t.Errorf("%d requests were tried again %d times, want %d", requests, retries, want)
		}
		time.Sleep(3 * time.Second)
		for range 5 {
			if got := p.retries.Spend(time.Now()); !got {
				retries--
			}
		}
		if retries -= int(requests*failover.BudgetRatio) + failover.BudgetMax; retries > -2 || retries < -4 {
			t.Errorf("three seconds gave %d retries", 5+retries)
		}
	})
}

func TestMovesHaveABound(t *testing.T) {
	for _, migrations := range []int{0, 1, 3} {
		synctest.Test(t, func(t *testing.T) {
			a, b := &fake{name: "w/0"}, &fake{name: "w/1"}
			lose := func(f *fake) { // lose the worker after every second token
				f.fault = func(tokens int) error {
					f.mu.Lock()
					begun := f.asked[len(f.asked)-1].GetGenerated()
					f.mu.Unlock()
					if tokens-int(begun) == 2 {
						return lostBy(f)
					}
					return nil
				}
			}
			lose(a)
			lose(b)
			p := poolOf(t, Options{Policy: inOrder, Migrations: migrations}, a, b)
			want := read(t.Context(), poolOf(t, Options{}, &fake{name: "w"}), ask(40), nil)
			got := read(t.Context(), p, ask(40), nil)
			got.failed(t, streamerr.PeerLost, fmt.Sprint("w/", migrations%2))
			if n := 2 * (migrations + 1); len(got.tokens) != n || !slices.Equal(got.tokens, want.tokens[:n]) {
				t.Errorf("%d moves gave %d tokens", migrations, len(got.tokens))
			}
		})
	}
}

func TestFailureOfTheOnlyWorkerEndsTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fake{name: "w/0"}
		a.fault = func(tokens int) error {
			if tokens == 2 {
				return lostBy(a)
			}
			return nil
		}
		read(t.Context(), poolOf(t, Options{Migrations: 3, MigrateAfter: time.Second}, a), ask(9), nil).failed(t, streamerr.PeerLost, "w/0")
	})
}

func TestSilentWorkerIsKeptIfThereIsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &fake{name: "w/0"}, &fake{name: "w/1"}
		a.fault = func(tokens int) error {
			if tokens == 2 {
				time.Sleep(10 * time.Second)
			}
			return nil
		}
		p := poolOf(t, Options{Policy: inOrder, Migrations: 3, MigrateAfter: time.Second}, a, b)
		p.Members()[1].Say(nil)
		got := read(t.Context(), p, ask(9), nil)
		if got.err != nil || len(got.tokens) != 9 || got.took < 10*time.Second || len(a.causes) != 0 {
			t.Errorf("%+v, %v", got, a.causes)
		}
	})
}

func TestSlowPromptAndSlowReaderAreNotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &fake{name: "w/0"}, &fake{name: "w/1"}
		a.fault = func(tokens int) error {
			if tokens == 0 {
				time.Sleep(time.Minute)
			}
			return nil
		}
		got := read(t.Context(), poolOf(t, Options{Policy: inOrder, Migrations: 3, MigrateAfter: time.Second}, a, b), ask(40), func(int) { time.Sleep(time.Minute) })
		if got.err != nil || len(got.tokens) != 40 || len(b.asked) != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// A stop that comes while a stream moves ends the stream immediately, on every hop.
func TestStopDuringAMoveIsTheEnding(t *testing.T) {
	for name, fault := range map[string]error{"second worker hangs": errHang, "second worker is lost late": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gone := &streamerr.Error{Reason: streamerr.ClientGone, Path: streamerr.NewPath("client")}
				ctx, ctl := stream.WithControl(t.Context(), time.Second)
				defer ctl.Release()
				a, b, c := &fake{name: "w/0"}, &fake{name: "w/1"}, &fake{name: "w/2"}
				a.fault = func(tokens int) error {
					if tokens == 2 {
						time.AfterFunc(time.Second, func() { ctl.Stop(gone) })
						return lostBy(a)
					}
					return nil
				}
				b.fault = func(int) error {
					if fault == nil {
						time.Sleep(2 * time.Second)
						return lostBy(b) // the stream was stopped before
					}
					return fault
				}
				p := poolOf(t, Options{Policy: inOrder, Migrations: 3}, a, b, c)
				var kept ledger.Ledger
				got := read(ledger.With(ctx, kept.Open("id", "chat", "")), p, ask(9), nil)
				got.failed(t, streamerr.ClientGone, "client")

				if got.err != error(gone) || len(c.asked) != 0 || a.running()+b.running() != 0 { //nolint:errorlint // the very cause
					t.Errorf("%v, %d, %d", got.err, len(c.asked), b.running())
				}
				if len(b.causes) > 0 && b.causes[0] != error(gone) { //nolint:errorlint // the very cause
					t.Error(b.causes)
				}
			})
		})
	}
}

// A reader that leaves because of a stop has not completed, for example when writing to its caller
// fails.
func TestReaderThatLeavesBecauseOfAStopHasNotCompleted(t *testing.T) {
	gone := streamerr.New(streamerr.ClientGone, "gone")
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			a := &fake{name: "w/0"}
			ctx, ctl := stream.WithControl(t.Context(), time.Second)
			defer ctl.Release()
			for out := range poolOf(t, Options{Policy: inOrder}, a).Generate(ctx, ask(9)) {
				if out.GetTokens() != nil {
					ctl.Stop(gone)
					break
				}
			}
			if cause := a.left(); !errors.Is(cause, streamerr.ClientGone) {
				t.Fatal(cause)
			}
		})
	}
}

func TestStoppedStreamOfAnUnresponsiveWorkerDoesNotMove(t *testing.T) {
	for _, at := range []int{2, 9} { // in mid-answer, and before the End
		synctest.Test(t, func(t *testing.T) {
			a, b := &fake{name: "w/0"}, &fake{name: "w/1"}
			ctx, ctl := stream.WithControl(t.Context(), time.Second)
			defer ctl.Release()
			a.fault = func(tokens int) error {
				if tokens == at {
					time.AfterFunc(900*time.Millisecond, func() { ctl.Stop(streamerr.New(streamerr.ClientGone, "gone")) })
					return errDeaf // ignores the stop for a second, during which the bound is passed
				}
				return nil
			}
			var kept ledger.Ledger
			record := kept.Open("id", "chat", "")
			p := poolOf(t, Options{Policy: inOrder, Migrations: 1, MigrateAfter: time.Second}, a, b)
			read(ledger.With(ctx, record), p, ask(9), nil).failed(t, streamerr.ClientGone, "")
			p.Close()
			if len(b.asked) != 0 || len(record.Proto().GetMoves()) != 0 {
				t.Error(b.asked, record.Proto().GetMoves())
			}
		})
	}
}

func TestSilentWorkerGetsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &fake{name: "w/0"}, &fake{name: "w/1"}
		a.fault = func(tokens int) error {
			if tokens == 4 {
				return errHang
			}
			return nil
		}
		var log bytes.Buffer
		var kept ledger.Ledger
		record := kept.Open("id", "chat", "")
		p := poolOf(t, Options{Policy: inOrder, Migrations: 1, MigrateAfter: 3 * time.Second, Log: slog.New(slog.NewTextHandler(&log, nil))}, a, b)
		read(ledger.With(stream.WithID(t.Context(), "id"), record), p, ask(9), nil)
		if e := streamerr.As(errors.Join(a.causes...)); e.Reason != streamerr.Deadline || e.Message != "w/0 sent nothing for 3s" {
			t.Error(a.causes)
		}
		moves := record.Proto().GetMoves()
		if len(moves) != 1 || moves[0].GetFrom() != "w/0" || moves[0].GetTo() != "w/1" || moves[0].GetReason() != streamv1.Reason_REASON_DEADLINE || moves[0].GetTokens() != 4 {
			t.Error(moves)
		}
		if want := `msg="stream moved" stream=id hop=chat from=w/0 to=w/1 reason=deadline tokens=4`; strings.Count(log.String(), want) != 1 {
			t.Error(log.String())
		}
	})
}

func TestSeededStreamMovesOnlyToExactWorkers(t *testing.T) {
	for _, which := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			a, b := &fake{name: "w/0"}, &fake{name: "w/1"}
			a.fault = func(tokens int) error {
				if tokens == 4 {
					return lostBy(a)
				}
				return nil
			}
			p := poolOf(t, Options{Policy: inOrder, Migrations: 3}, a, b)
			p.Members()[which].Say(&llmv1.WorkerInfo{Instance: fmt.Sprint("w/", which), ContextLength: contextLength})
			read(t.Context(), p, ask(9), nil).failed(t, streamerr.PeerLost, "w/0")
			if len(b.asked) != 0 {
				t.Error(b.asked)
			}
		})
	}
}

// Another chat-service has begun the answer, and must not retry the request again and again.
func TestAnswerThatNoEngineContinuesIsRefused(t *testing.T) {
	p := poolOf(t, Options{Policy: inOrder}, &fake{name: "w/0"})
	p.Members()[0].Say(&llmv1.WorkerInfo{Instance: "w/0", ContextLength: contextLength, Resumes: true})
	req := ask(9) // has a seed
	req.Generated = 1
	got := read(t.Context(), p, req, nil)
	if e := streamerr.As(got.err); e.Reason != streamerr.Invalid || e.Param != "generated" {
		t.Error(got.err)
	}
}

func TestPanicOfAnEngineIsTheStreamsOwn(t *testing.T) {
	a := &fake{name: "w/0", fault: func(int) error { panic("a bug") }}
	p := poolOf(t, Options{}, a)
	defer func() {
		if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), "a bug") || p.Members()[0].Load() != 0 {
			t.Error(v, p.Members()[0].Load())
		}
	}()
	read(t.Context(), p, ask(1), nil)
}

// BenchmarkRelay measures the pool's overhead per token.
func BenchmarkRelay(b *testing.B) {
	item := &workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{1}}}}
	endless := func(context.Context, *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			for yield(item, nil) {
			}
		}
	}
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprint(workers, " workers"), func(b *testing.B) {
			p := poolOf(b, Options{Migrations: 3, MigrateAfter: time.Minute})
			var members []*fleet.Worker
			for i := range workers {
				w, long := fleet.Pretended(fmt.Sprint("w/", i), endless), info(fmt.Sprint("w/", i))
				long.ContextLength = 1 << 31
				w.Say(long)
				members = append(members, w)
			}
			p.Pretend(members...)
			req := ask(1 << 30)
			b.ReportAllocs()
			n := 0
			for _, err := range p.Generate(b.Context(), req) {
				if err != nil {
					b.Fatal(err)
				}
				if n++; n == b.N {
					break
				}
			}
		})
	}
}
