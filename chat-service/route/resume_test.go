package route

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/chat-service/fleet"
	"github.com/whence-dev/whence/chat-service/route/policy"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/stream/streamtest"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// carriedBy returns a worker whose messages come on another goroutine than the one that starts its
// engine, as with Loops. end is called before the call ends.
func carriedBy(f *fake, end func()) *fleet.Worker {
	w := fleet.Pretended(f.name, f.generate)
	w.PretendEngine(func(ctx context.Context, req *workerv1.TokenRequest, to tokenReader) {
		e := &stream.Entry[*workerv1.GenerateResponse]{}
		e.Init(ctx, to)
		go e.Run(func() (err error) {
			for out, failed := range f.generate(ctx, req) {
				if err = failed; failed != nil || !e.Item(nil, out) {
					break
				}
			}
			end()
			return err
		})
	})
	w.Say(info(f.name))
	return w
}

// resumed returns a pool of workers whose calls Loops carry.
func resumed(t *testing.T, opts Options, end func(), fakes ...*fake) *Pool {
	t.Helper()
	p := poolOf(t, opts)
	var members []*fleet.Worker
	for _, f := range fakes {
		members = append(members, carriedBy(f, end))
	}
	p.Pretend(members...)
	return p
}

// over checks that no call of a pool is still running.
func over(t *testing.T, p *Pool, fakes ...*fake) {
	t.Helper()
	p.calls.Wait()
	for i, w := range p.Members() {
		if w.Load() != 0 || fakes[i].running() != 0 {
			t.Errorf("%s has %d streams, and runs %d", fakes[i].name, w.Load(), fakes[i].running())
		}
	}
}

func TestCarriedCallGivesTheSameStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := read(t.Context(), poolOf(t, Options{}, &fake{name: "w/0"}), ask(9), nil)
		a, ends := &fake{name: "w/0"}, 0
		p := resumed(t, Options{}, func() { ends++ }, a)
		read(t.Context(), p, ask(9), nil).same(t, want)
		over(t, p, a)
		if ends != 1 {
			t.Errorf("the call has ended %d times", ends)
		}
	})
}

func TestCarriedCallThatIsLostMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := read(t.Context(), poolOf(t, Options{}, &fake{name: "w"}), ask(9), nil)
		a, b := &fake{name: "w/0"}, &fake{name: "w/1"}
		a.fault = func(tokens int) error {
			if tokens == 4 {
				return lostBy(a)
			}
			return nil
		}
		p := resumed(t, Options{Policy: inOrder, Migrations: 1}, func() {}, a, b)
		read(t.Context(), p, ask(9), nil).same(t, want)
		over(t, p, a, b)
	})
}

func TestStopReachesACarriedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, ctl := controlled(t)
		defer ctl.Release()
		a := hangsAt("w/0", 3)
		p := resumed(t, Options{}, func() {}, a)
		time.AfterFunc(time.Second, func() { ctl.Stop(errGone) })
		if r := read(ctx, p, ask(9), nil); !errors.Is(r.err, streamerr.ClientGone) || len(r.tokens) != 3 || r.took > 1100*time.Millisecond {
			t.Error(len(r.tokens), r.err, r.took)
		}
		over(t, p, a)
		if !slices.Equal(a.causes, []error{errGone}) {
			t.Error(a.causes)
		}
	})
}

// When the reader leaves a carried call, the worker gets the cause COMPLETED: the reader has what
// it needs.
func TestReaderThatLeavesACarriedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fake{name: "w/0"}
		p := resumed(t, Options{}, func() {}, a)
		for out, err := range p.Generate(t.Context(), ask(9)) {
			if err != nil {
				t.Fatal(err)
			}
			if out.GetTokens() != nil {
				break
			}
		}
		over(t, p, a)
		if e := streamerr.As(a.left()); e.Reason != streamerr.Completed {
			t.Error(e)
		}
	})
}

// A panic or an exit of the goroutine that carries the call, and a panic of the reader on that goroutine,
// end the stream on the goroutine that ranges over it, and release the worker.
func TestCrashOfACarriedCall(t *testing.T) {
	for name, test := range map[string]struct {
		end  func()
		each func(int)
	}{
		"panic of the engine": {func() { panic("the engine's bug") }, nil},
		"exit of the engine":  {runtime.Goexit, nil},
		"panic of the reader": {func() {}, func(int) { panic("the reader's bug") }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &fake{name: "w/0"}
				p := resumed(t, Options{}, test.end, a)
				var reading sync.WaitGroup
				returned := false
				reading.Go(func() {
					defer func() {
						text := fmt.Sprint(recover())
						if strings.HasPrefix(name, "panic") != strings.Contains(text, "'s bug") {
							t.Errorf("the reader's goroutine panics with %.60q", text)
						}
					}()
					read(t.Context(), p, ask(9), test.each)
					returned = true
				})
				reading.Wait()
				if returned {
					t.Error("the reader's loop continues")
				}
				over(t, p, a)
			})
		})
	}
}

// When a worker goes down, the goroutine that watches its health searches for another worker. A
// panic there ends the stream.
func TestCrashOnTheWatchGoroutine(t *testing.T) {
	for name, crash := range map[string]func(){
		"panic":   func() { panic("the policy's bug") },
		"exit":    runtime.Goexit,
		"neither": func() {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hung, good := hangsAt("w/0", 0), &fake{name: "w/1"}
				choices := 0
				p := resumed(t, Options{Policy: func(policy.Request, []policy.Candidate) int {
					if choices++; choices == 2 {
						crash()
					}
					return 0
				}}, func() {}, hung, good)
				time.AfterFunc(time.Second, func() { p.Members()[0].Say(nil) })
				ended := false
				r := streamtest.Record(t, func(_ *stream.Loop, out *workerv1.GenerateResponse, _ int) bool {
					ended = ended || out.GetEnd() != nil
					return true
				})
				p.Start(t.Context(), ask(9), r)
				_, err := r.Await()
				outcome := "neither"
				if failure := stream.FailureOf(err); failure != nil {
					outcome = "exit"
					if strings.Contains(fmt.Sprint(failure.Value), "the policy's bug") {
						outcome = "panic"
					}
				}
				if outcome != name || ended != (name == "neither") {
					t.Errorf("the stream ends with %s; the reader has an End: %t", outcome, ended)
				}
				over(t, p, hung, good)
			})
		})
	}
}
