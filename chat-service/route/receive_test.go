package route

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/kvcache"
	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

func TestTokenReachesItsReaderBeforeTheNextReceive(t *testing.T) {
	sent, got := 0, 0
	w := fleet.Pretended("w/0", func(context.Context, *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			for sent < 20 {
				sent++
				if !yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Tokens{Tokens: &workerv1.Tokens{Ids: []uint32{uint32(sent)}}}}, nil) {
					return
				}
				if got != sent {
					t.Errorf("the next receive began after %d tokens, but the reader has %d", sent, got)
				}
			}
			yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_End{End: &llmv1.End{}}}, nil)
		}
	})
	w.Say(info("w/0"))
	p := poolOf(t, Options{Migrations: 1, MigrateAfter: time.Second})
	p.Pretend(w)
	if r := read(t.Context(), p, ask(40), func(tokens int) { got = tokens }); r.err != nil || len(r.tokens) != 20 {
		t.Error(r.err, len(r.tokens))
	}
}

// The reader's loop body runs on the attempt's goroutine. A panic there must reach the reader's
// goroutine.
func TestPanicOfTheReaderIsRepeated(t *testing.T) {
	a := &fake{name: "w/0"}
	p := poolOf(t, Options{}, a)
	defer func() {
		if v := recover(); !strings.Contains(fmt.Sprint(v), "the reader's bug") || a.running() != 0 || p.Members()[0].Load() != 0 {
			t.Errorf("%.40v, %d run", v, a.running())
		}
		if e := streamerr.As(a.left()); e.Reason != streamerr.Internal || e.Message != "the reader panicked" {
			t.Error(e)
		}
	}()
	read(t.Context(), p, ask(9), func(int) { panic("the reader's bug") })
}

func TestExitOfTheReaderIsRepeated(t *testing.T) {
	a := &fake{name: "w/0"}
	p := poolOf(t, Options{}, a)
	var reading sync.WaitGroup
	exited := true
	reading.Go(func() {
		read(t.Context(), p, ask(9), func(int) { runtime.Goexit() })
		exited = false
	})
	reading.Wait()
	if !exited || a.running() != 0 || p.Members()[0].Load() != 0 {
		t.Errorf("exited: %t, %d run", exited, a.running())
	}
}

// Health changes and timers must neither wait for a reader nor act in the middle of a delivery.
func TestWorkerThatIsDownWhileItsReaderIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := hangsAt("w/0", 0), &fake{name: "w/1"}
		p := poolOf(t, Options{Policy: inOrder, Migrations: 3, MigrateAfter: time.Second, FirstTokenMove: 3 * time.Second}, a, b)
		time.AfterFunc(time.Second, func() { p.Members()[0].Say(nil) })
		began, started, tokens := time.Now(), 0, 0
		for out, err := range p.Generate(t.Context(), ask(9)) {
			if err != nil {
				t.Fatal(err)
			}
			if out.GetStarted() != nil {
				started++
				time.Sleep(time.Minute) // the worker goes down meanwhile
			}
			tokens += len(out.GetTokens().GetIds())
		}
		if took := time.Since(began); started != 1 || tokens != 9 || took > time.Minute+20*time.Millisecond {
			t.Error(started, tokens, took)
		}
		p.calls.Wait()
	})
}

func TestStopReachesTheEngineWhileTheReaderIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, ctl := controlled(t)
		defer ctl.Release()
		heard := time.Duration(-1)
		began := time.Now()
		w := fleet.Pretended("w/0", func(ctx context.Context, _ *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
			return func(yield func(*workerv1.GenerateResponse, error) bool) {
				var waiting sync.WaitGroup
				stopping := stream.Stopping(ctx)
				waiting.Go(func() { <-stopping; heard = time.Since(began) })
				yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{}}}, nil)
				waiting.Wait()
				yield(nil, stream.Cause(ctx))
			}
		})
		w.Say(info("w/0"))
		p := poolOf(t, Options{})
		p.Pretend(w)
		time.AfterFunc(time.Second, func() { ctl.Stop(errGone) })
		for range p.Generate(ctx, ask(9)) {
			time.Sleep(5 * time.Second)
		}
		if heard != time.Second {
			t.Error("the stop reached the engine after", heard)
		}
	})
}

func TestRefusedRetryChargesNoWorker(t *testing.T) {
	p, k := cachingPool(t, kvcache.Options{Overlap: 1}, "a")
	w := p.Members()[0]
	w.Fail(streamerr.EngineFailed)
	for p.retries.Spend(time.Now()) {
	}
	req := prompt(1, 160)
	if a, outcome := p.take(wish{req: req, usesBudget: true}, 0); a != nil || outcome != unpaid {
		t.Fatal(a, outcome)
	}
	if n := k.Lookup(req).Cached(w, w.Info()); n != 0 || w.Load() != 0 {
		t.Errorf("the worker is expected to have %d tokens of the prompt, and has %d streams", n, w.Load())
	}
}

// TestPanicOfAnAbandonedCallIsLogged checks that a panic in an abandoned call does not end the stream,
// even while the reader has a message of another call.
func TestPanicOfAnAbandonedCallIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := fleet.Pretended("w/0", func(ctx context.Context, _ *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
			return func(func(*workerv1.GenerateResponse, error) bool) {
				<-stream.Stopping(ctx)
				time.Sleep(time.Second)
				panic("the left call's bug")
			}
		})
		left.Say(info("w/0"))
		var log logtest.Log
		p := poolOf(t, Options{Policy: inOrder, Log: slog.New(slog.NewTextHandler(&log, nil))}, &fake{name: "w/1"})
		p.Pretend(append([]*fleet.Worker{left}, p.Members()...)...)
		time.AfterFunc(time.Second, func() { left.Say(nil) })
		got := read(t.Context(), p, ask(9), func(tokens int) {
			if tokens == 1 {
				time.Sleep(5 * time.Second)
			}
		})
		p.calls.Wait()
		if got.err != nil || len(got.tokens) != 9 || log.Count("the call of a worker that was left panicked") != 1 || log.Count("receive_test.go") == 0 || log.Count("the left call's bug") != 0 || log.Count("level=ERROR") != 1 {
			t.Error(len(got.tokens), got.err, log.String())
		}
	})
}

// An unluckyReader is a Reader that panics in End.
type unluckyReader struct{}

func (unluckyReader) Item(*stream.Loop, *workerv1.GenerateResponse) bool { return true }

func (unluckyReader) End(error) { panic("unlucky") }

// TestPanicOfTheReadersEndBreaksTheStream: on whichever goroutine the End is called, the code that
// started the stream learns of the panic.
func TestPanicOfTheReadersEndBreaksTheStream(t *testing.T) {
	for name, worker := range map[string]stream.Sequence[*workerv1.TokenRequest, *workerv1.GenerateResponse]{
		"after the call": (&fake{name: "w/0"}).generate, "while the abandoned call runs": babbling(20, 1), "without a call": nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			p := poolOf(t, Options{})
			if worker != nil {
				w := fleet.Pretended("w/0", worker)
				w.Say(info("w/0"))
				p.Pretend(w)
			}
			ctx, ctl := controlled(t)
			defer ctl.Release()
			broken := make(chan error, 1)
			ctl.OnBreak(func(err error) { broken <- err })
			p.Start(ctx, ask(5), unluckyReader{})
			if failure := stream.FailureOf(<-broken); failure == nil || failure.Value != any("unlucky") {
				t.Error(name, failure)
			}
			p.calls.Wait()
		})
	}
}

// TestPanicOfAnEngineGivesItsPlaceBack: a stream that has moved to a worker, and ends before its next
// token, does not count as moving any longer.
func TestPanicOfAnEngineGivesItsPlaceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fake{name: "w/1", fault: func(int) error { panic("a bug") }}
		p := poolOf(t, Options{Policy: inOrder, Migrations: 1}, losing("w/0", 4), b)
		r := streamtest.Record[*workerv1.GenerateResponse](t, nil)
		p.Start(t.Context(), ask(9), r)
		if _, err := r.Await(); stream.FailureOf(err) == nil || len(p.moving) != 0 || len(b.asked) != 1 {
			t.Error(err, p.moving, len(b.asked))
		}
		p.calls.Wait()
	})
}
