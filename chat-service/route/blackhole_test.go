package route

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/chat-service/route/failover"
	"github.com/whence-dev/whence/chat-service/route/policy"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// failsAtOnce returns a worker that fails every stream with err before it admits the stream.
func failsAtOnce(name string, err *streamerr.Error) *fake {
	err.Path = streamerr.NewPath("engine", name)
	return &fake{name: name, fault: func(int) error { return err }}
}

// probed lets the workers of a pool answer a health probe right after a stream has failed there,
// and every second for d.
func probed(p *Pool, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, w := range p.Members() {
			w.Answer()
		}
	}
}

// A worker that fails at once has no streams, so least-loaded must not send it all requests because
// it looks idle.
func TestWorkerThatFailsAtOnceGetsFewRequests(t *testing.T) {
	for name, err := range map[string]*streamerr.Error{
		"500":                  {Reason: streamerr.EngineFailed, Message: "500"},
		"429":                  {Reason: streamerr.Overloaded, Message: "429"},
		"429 with Retry-After": {Reason: streamerr.Overloaded, Message: "429", RetryAfter: time.Second},
		"503":                  {Reason: streamerr.Unavailable, Message: "503", RetryAfter: time.Second},
		"a bug":                {Reason: streamerr.Internal, Message: "panic"},
		"refused connections":  {Reason: streamerr.PeerLost, Message: "refused"},
	} {
		for _, by := range []string{policy.LeastLoaded, policy.RoundRobin, policy.PowerOfTwo, policy.Session} {
			if by != policy.LeastLoaded && !strings.HasPrefix(name, "500") {
				continue
			}
			t.Run(name+" "+by, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const seconds, rate = 60, 10
					bad, good := failsAtOnce("w/0", err), &fake{name: "w/1"}
					var log bytes.Buffer
					p := poolOf(t, Options{Policy: named(by), Log: slog.New(slog.NewTextHandler(&log, nil))}, bad, good)
					var all sync.WaitGroup
					all.Go(func() { probed(p, seconds*time.Second) })
					for i := range seconds * rate {
						all.Go(func() {
							req := ask(10)
							req.Session = string(rune('a' + i%26))
							if got := read(t.Context(), p, req, nil); got.err != nil {
								t.Error(got.err)
							}
						})
						time.Sleep(time.Second / rate)
					}
					all.Wait()
					if n := len(bad.asked); n > seconds*rate/20 {
						t.Errorf("%d of %d requests touched the bad worker, more than 5 %%", n, seconds*rate)
					} else {
						t.Logf("%d of %d requests touched the bad worker", n, seconds*rate)
					}
					if !strings.Contains(log.String(), `worker cools down`) {
						t.Error("the log does not say why the worker gets no streams")
					}
				})
			})
		}
	}
}

// All requests of a burst leave before the first answer is back, so half of them reach the bad
// worker.
func TestBurstIsAnsweredDespiteABadWorker(t *testing.T) {
	for name, err := range map[string]*streamerr.Error{
		"500": {Reason: streamerr.EngineFailed, Message: "500"},
		"429": {Reason: streamerr.Overloaded, Message: "429", RetryAfter: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad, good := failsAtOnce("w/0", err), &fake{name: "w/1"}
				p := poolOf(t, Options{}, bad, good)
				for range failover.BudgetMax {
					p.retries.Spend(time.Now()) // an earlier burst of failures has spent the budget
				}
				var all sync.WaitGroup
				for range 80 {
					all.Go(func() {
						if got := read(t.Context(), p, ask(10), nil); got.err != nil {
							t.Error(got.err)
						}
					})
				}
				all.Wait()
			})
		})
	}
}

func TestWorkerThatRecoversGetsStreamsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := true
		flaky, good := &fake{name: "w/0"}, &fake{name: "w/1"}
		flaky.fault = func(int) error {
			if broken {
				return streamerr.New(streamerr.EngineFailed, "500")
			}
			return nil
		}
		var log bytes.Buffer
		p := poolOf(t, Options{Policy: named(policy.RoundRobin), Log: slog.New(slog.NewTextHandler(&log, nil))}, flaky, good)
		var all sync.WaitGroup
		all.Go(func() { probed(p, time.Minute) })
		spread := func() {
			for range 100 {
				if got := read(t.Context(), p, ask(10), nil); got.err != nil {
					t.Error(got.err)
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
		spread()
		broken = false
		time.Sleep(20 * time.Second)
		before := len(flaky.asked)
		spread()
		if n := len(flaky.asked) - before; n < 30 {
			t.Errorf("the worker got %d of 100 requests after it had recovered", n)
		}
		if !strings.Contains(log.String(), "worker gets streams again") {
			t.Error("the log does not say that the worker gets streams again")
		}
		all.Wait()
	})
}

// A request that kills engines is not passed from worker to worker.
func TestRequestThatEnginesFailOnIsTriedOnlyTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fakes []*fake
		for _, name := range []string{"w/0", "w/1", "w/2", "w/3"} {
			fakes = append(fakes, failsAtOnce(name, &streamerr.Error{Reason: streamerr.EngineFailed, Message: "500"}))
		}
		p := poolOf(t, Options{Policy: inOrder}, fakes...)
		read(t.Context(), p, ask(10), nil).failed(t, streamerr.EngineFailed, "engine > w/0")
		asked := 0
		for _, f := range fakes {
			asked += len(f.asked)
		}
		if asked != 2 {
			t.Errorf("%d workers were asked", asked)
		}
	})
}

// If all workers fail, there is no better one, and each request is still tried.
func TestFailingWorkerIsStillTriedIfItIsTheOnlyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := failsAtOnce("w/0", &streamerr.Error{Reason: streamerr.Overloaded, Message: "429", RetryAfter: time.Minute})
		p := poolOf(t, Options{}, bad)
		for range 10 {
			read(t.Context(), p, ask(10), nil).failed(t, streamerr.Overloaded, "engine > w/0")
		}
		if len(bad.asked) != 10 {
			t.Error(len(bad.asked))
		}
	})
}

// A decision sees one load for each worker: the policy session panicked when a load changed between
// two reads.
func TestSessionChoosesWhileLoadsChange(t *testing.T) {
	p := poolOf(t, Options{Policy: named(policy.Session)}, &fake{name: "w/0"}, &fake{name: "w/1"}, &fake{name: "w/2"})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 2000 {
				c := p.Members()[i%3].Charge(5, 0) // outside the pool's lock, as when a stream ends
				a := take(p, &workerv1.TokenRequest{Session: "s", Prompt: []uint32{1}})
				a.abandon()
				c.End()
			}
		})
	}
	all.Wait()
}
