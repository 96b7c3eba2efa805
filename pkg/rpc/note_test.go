package rpc_test

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"

	llmv1 "github.com/whence-dev/whence/idl/gen/whence/llm/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/logtest"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A panicker is an Observer and Flow that panics at one kind of event.
type panicker struct {
	observer.Nobody
	at observer.Kind
}

func (p panicker) Begin(context.Context, observer.Beginning) observer.Flow { return p }

func (p panicker) Note(e observer.Event) {
	if e.Kind == p.at {
		panic(bug("the observer panics at an event"))
	}
}

// TestPanicOfAnObserverAtAStop: the goroutines that tell an observer about a stop, or about a
// caller that has gone, belong to no stream. A panic there is logged with its stack, and does not
// change the stream's ending.
func TestPanicOfAnObserverAtAStop(t *testing.T) {
	for name, at := range map[string]observer.Kind{"stop heard": observer.StopHeard, "stop sent": observer.StopSent, "caller gone": observer.CallerGone} {
		for _, tr := range []transport{wires[0], wires[4]} {
			t.Run(name+", "+tr.name, func(t *testing.T) {
				release := make(chan struct{})
				svc := newService("worker", stream.Push(func(ctx context.Context, _ *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
					return func(yield func(*workerv1.GenerateResponse, error) bool) {
						yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{}}}, nil)
						if at == observer.CallerGone { // its caller resets the call after the grace
							<-release
						} else {
							<-stream.Stopping(ctx)
						}
						yield(nil, stream.Cause(ctx))
					}
				}))
				var logs logtest.Log
				log := slog.New(slog.NewTextHandler(&logs, nil))
				svc.hop = &rpc.Hop{Name: "worker", Log: log, Observer: panicker{at: at}}
				caller := &rpc.Hop{Name: "caller", Log: log, Observer: panicker{at: at}}
				var id string
				ctx, end, err := caller.Begin(t.Context(), &id, "", "", func() *streamerr.Error { return nil })
				if err != nil {
					t.Fatal(err)
				}
				o := rpc.Drive(ctx, caller, methods.Worker, engineAt(tr.dial(t, tr.serve(t, svc)), "caller", "worker"), ask(1)(), func(*workerv1.GenerateResponse) error {
					stream.ControlOf(ctx).Stop(streamerr.New(streamerr.UserStop, "enough"))
					return nil
				})
				end()
				if o.Reason() != streamerr.UserStop {
					t.Errorf("the stream has ended with %v", o.Err)
				}
				if at == observer.CallerGone {
					polltest.Eventually(t, "the observer has panicked", func() bool { return strings.Contains(logs.String(), "the observer panics at an event") })
				}
				close(release)
				awaitNoLive(t, svc.hop)
				if text := logs.String(); !strings.Contains(text, "the observer panics at an event") || !strings.Contains(text, "note_test.go") {
					t.Errorf("the log has no panic with its stack:\n%s", text)
				}
			})
		}
	}
}

// A noter is an Observer and Flow that keeps the kinds of its events. It takes a second for a
// CallerGone.
type noter struct {
	observer.Nobody
	mu     sync.Mutex
	kinds  []observer.Kind
	closed []observer.Kind // kinds at the time of Close
}

func (n *noter) Begin(context.Context, observer.Beginning) observer.Flow { return n }

func (n *noter) Note(e observer.Event) {
	if e.Kind == observer.CallerGone {
		time.Sleep(time.Second)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kinds = append(n.kinds, e.Kind)
}

func (n *noter) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = slices.Clone(n.kinds)
}

// noted returns the kinds of all events, and of the events before Close.
func (n *noter) noted() (all, closed []observer.Kind) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.kinds), n.closed
}

// A lostServer is a call whose caller leaves when cancel is called. Its handler may end at once.
type lostServer struct {
	fakeServer
	cancel context.CancelFunc
}

func (s lostServer) Send(*workerv1.GenerateResponse) error { return nil }

func (s lostServer) Recv() (*workerv1.GenerateRequest, error) {
	if req := <-s.requests; req != nil {
		return req, nil
	}
	<-s.ctx.Done()
	return nil, s.ctx.Err()
}

func newLostServer(t *testing.T) lostServer {
	t.Helper()
	st := lostServer{fakeServer: newFakeServer(t, "lost")}
	st.ctx, st.cancel = context.WithCancel(st.ctx)
	return st
}

// TestNoEventFollowsTheEnding: the caller leaves a stopped stream, and the engine ends while the
// observer gets the event of that.
func TestNoEventFollowsTheEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notes noter
		hop := &rpc.Hop{Name: "worker", Observer: &notes}
		st := newLostServer(t)
		go func() {
			time.Sleep(time.Millisecond)
			hop.Live.Stop("lost", streamerr.New(streamerr.Draining, "drain"))
			time.Sleep(time.Millisecond)
			st.cancel()
		}()
		_ = rpc.Serve(hop, st, methods.Worker, stream.Push(func(context.Context, *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
			return func(yield func(*workerv1.GenerateResponse, error) bool) {
				time.Sleep(100 * time.Millisecond)
				yield(nil, streamerr.New(streamerr.Draining, "drain"))
			}
		}))
		time.Sleep(time.Minute)
		if all, closed := notes.noted(); !slices.Equal(all, closed) || !slices.Contains(all, observer.CallerGone) {
			t.Errorf("events %v, of which %v came before the stream's ending", all, closed)
		}
	})
}

// An endingServer is a call that ends with its handler: Send blocks until then.
type endingServer struct {
	lostServer
}

func (s endingServer) Send(m *workerv1.GenerateResponse) error { return s.fakeServer.Send(m) }

func (s endingServer) SetTrailer(md metadata.MD) {
	s.fakeServer.SetTrailer(md)
	s.cancel() // the handler returns
}

// TestAbandonedStreamHasOneEnding: the caller of an abandoned message either is told the ending or
// has gone, but never both.
func TestAbandonedStreamHasOneEnding(t *testing.T) {
	for name, leaves := range map[string]bool{"the caller does not read": false, "the caller leaves": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var notes noter
				hop := &rpc.Hop{Name: "worker", Observer: &notes}
				st := endingServer{newLostServer(t)}
				go func() {
					time.Sleep(time.Millisecond)
					hop.Live.Stop("lost", streamerr.New(streamerr.Deadline, "too late"))
					if leaves {
						time.Sleep(rpc.DefaultGrace - time.Millisecond)
						st.cancel()
					}
				}()
				err := rpc.Serve(hop, st, methods.Worker, stream.Push(func(context.Context, *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
					return func(yield func(*workerv1.GenerateResponse, error) bool) {
						yield(&workerv1.GenerateResponse{Message: &workerv1.GenerateResponse_Started{Started: &llmv1.Started{}}}, nil)
						time.Sleep(time.Second) // ignores the end of its context
					}
				}))
				time.Sleep(time.Minute)
				told, gone := 0, 0
				all, _ := notes.noted()
				for _, kind := range all {
					switch kind {
					case observer.EndingSent:
						told++
					case observer.CallerGone:
						gone++
					default:
					}
				}
				if told+gone != 1 || leaves == (told == 1) || streamerr.As(err).Reason != streamerr.Deadline {
					t.Errorf("told %d times, gone %d times, %v: %v", told, gone, err, all)
				}
			})
		})
	}
}
