package link_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/rpc/link/inbox"
	"github.com/whence-dev/whence/pkg/rpc/link/mux"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestUnreadRelayedStreamDelaysNoOther: a hop between two links carries a message on the goroutine
// that reads it, until the next hop grants no more credit for one stream. Then only that stream
// waits.
func TestUnreadRelayedStreamDelaysNoOther(t *testing.T) {
	below, _, lower := serve(t, link.Options{}, count)
	relay, _, addr := serveEngine(t, link.Options{}, engineAt(dial(t, lower, link.Options{Links: 1})))
	client := dial(t, addr, link.Options{Links: 1})
	unread := begin(t, t.Context(), client, "unread", 1<<30, 100)
	var reading sync.WaitGroup
	for i := range 8 {
		reading.Go(func() {
			for range 2 {
				at := uint32(0)
				for out, err := range engineAt(client).Range(t.Context(), &workerv1.TokenRequest{StreamId: fmt.Sprintf("read-%d", i), Prompt: []uint32{1000, 100}}) {
					if err != nil {
						t.Error(err)
						return
					}
					for _, id := range out.GetTokens().GetIds() {
						if id != at {
							t.Errorf("token %d instead of %d", id, at)
							return
						}
					}
					at++
				}
				if at != 1001 {
					t.Errorf("%d messages", at)
				}
			}
		})
	}
	reading.Wait()
	for at := range uint32(2000) { // the items that waited arrive in order
		out, err := unread.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if ids := out.GetTokens().GetIds(); ids[0] != at || ids[99] != at {
			t.Fatalf("tokens %d instead of %d", ids[0], at)
		}
	}
	relay.hop.Live.Stop("unread", streamerr.New(streamerr.UserStop, "enough"))
	awaitNone(t, relay.hop)
	awaitNone(t, below.hop)
	for _, w := range []*worker{relay, below} {
		if r := ledger.At(w.hop).Get("unread"); streamerr.Reason(r.GetReason()) != streamerr.UserStop {
			t.Error(r)
		}
	}
}

// waiting yields a token and waits until it is stopped.
func waiting(ctx context.Context, _ *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
	return func(yield func(*workerv1.GenerateResponse, error) bool) {
		if yield(tokens(1), nil) {
			<-stream.Stopping(ctx)
			yield(nil, stream.Cause(ctx))
		}
	}
}

// TestRelayedStreamHasNoGoroutine: only the worker's engine has one.
func TestRelayedStreamHasNoGoroutine(t *testing.T) {
	below, _, lower := serve(t, link.Options{}, waiting)
	relay, _, addr := serveEngine(t, link.Options{}, engineAt(dial(t, lower, link.Options{Links: 1})))
	client := dial(t, addr, link.Options{Links: 1})
	open := func(n int) {
		for i := range n {
			if _, err := begin(t, t.Context(), client, fmt.Sprint(n, "-", i), 0, 0).Recv(); err != nil {
				t.Fatal(err)
			}
		}
	}
	open(1) // opens the connections
	const streams = 20
	before := runtime.NumGoroutine()
	open(streams)
	polltest.Eventually(t, "each stream has one goroutine, the engine's", func() bool {
		return runtime.NumGoroutine()-before <= streams+streams/2 // a few others come and go
	})
	for _, w := range []*worker{relay, below} {
		w.hop.Live.Close()
		for i := range streams {
			w.hop.Live.Stop(fmt.Sprint(streams, "-", i), streamerr.New(streamerr.UserStop, "enough"))
		}
		w.hop.Live.Stop("1-0", streamerr.New(streamerr.UserStop, "enough"))
		awaitNone(t, w.hop)
	}
}

// A quitter is a Reader that exits its goroutine at an item, or never if at is 0.
type quitter struct {
	at, items int
	ended     chan error
}

func (q *quitter) Item(*stream.Loop, *workerv1.GenerateResponse) bool {
	if q.items++; q.items == q.at {
		runtime.Goexit()
	}
	return true
}

func (q *quitter) End(err error) { q.ended <- err }

// TestReaderThatExitsOnALoop: its stream ends, and no other stream. The goroutine that starts the stream
// may carry the item as well, and exits then.
func TestReaderThatExitsOnALoop(t *testing.T) {
	w, _, addr := serve(t, link.Options{}, count)
	engine := engineAt(dial(t, addr, link.Options{Links: 1}))
	for _, at := range []int{100, 0} {
		q := &quitter{at: at, ended: make(chan error, 1)}
		n := 10
		if at > 0 {
			n = 1 << 20
		}
		ctx, ctl := stream.WithControl(t.Context(), rpc.DefaultGrace)
		ctl.OnBreak(func(error) {})
		var starting sync.WaitGroup
		starting.Go(func() {
			stream.Start(ctx, engine, &workerv1.TokenRequest{Prompt: []uint32{uint32(n), 1}}, stream.Reader[*workerv1.GenerateResponse](q))
		})
		err := polltest.Receive(t, "the stream ends", q.ended)
		if (stream.FailureOf(err) != nil) != (at > 0) || at == 0 && (err != nil || q.items != 11) {
			t.Errorf("after %d items: %v", q.items, err)
		}
		starting.Wait()
		ctl.Release()
		awaitNone(t, w.hop)
	}
}

// TestEngineThatExitsItsGoroutine: its stream ends with INTERNAL, and no other stream ends.
func TestEngineThatExitsItsGoroutine(t *testing.T) {
	w, _, addr := serve(t, link.Options{}, func(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		if req.GetPrompt()[0] > 0 {
			return count(ctx, req)
		}
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			yield(tokens(1), nil)
			runtime.Goexit()
		}
	})
	engine := engineAt(dial(t, addr, link.Options{Links: 1}))
	for n, want := range map[uint32]streamerr.Reason{0: streamerr.Internal, 10: streamerr.Unspecified} {
		var last error
		for _, err := range engine.Range(t.Context(), &workerv1.TokenRequest{Prompt: []uint32{n, 1}}) {
			last = err
		}
		if (last == nil) != (want == streamerr.Unspecified) || last != nil && !errors.Is(last, want) {
			t.Errorf("%d: %v", n, last)
		}
	}
	awaitNone(t, w.hop)
}

// A journal is an Observer and Flow that keeps the kinds of the events.
type journal struct {
	observer.Nobody
	mu    sync.Mutex
	kinds []observer.Kind
}

func (j *journal) Begin(context.Context, observer.Beginning) observer.Flow { return j }

func (j *journal) Note(e observer.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.kinds = append(j.kinds, e.Kind)
}

// count returns how often an event of a kind was noted.
func (j *journal) count(kind observer.Kind) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, k := range j.kinds {
		if k == kind {
			n++
		}
	}
	return n
}

// An announcer is the Reader of the first stream of a hop. It closes waits when the next item finds no
// credit, which happens if the caller does not read.
type announcer struct {
	stream.Relay[*workerv1.GenerateResponse]
	credit   int
	announce func()
}

func (a *announcer) Item(on *stream.Loop, out *workerv1.GenerateResponse) bool {
	if a.credit <= 0 {
		a.announce()
	}
	a.credit -= inbox.Cost(proto.Size(out))
	return a.Pass(on, out)
}

func announcing(next engine, waits chan struct{}) engine {
	announce := sync.OnceFunc(func() { close(waits) })
	return func(ctx context.Context, req *workerv1.TokenRequest, to stream.Reader[*workerv1.GenerateResponse]) {
		next(ctx, req, &announcer{stream.RelayTo(to), mux.DefaultWindow, announce})
	}
}

// TestRelayAbandonsAnUnreadStream: the relay waits for credit when its stream is stopped. The
// caller that does not read is told the ending all the same, its credit frees the goroutine, the
// hop below is stopped, and the links carry other streams.
func TestRelayAbandonsAnUnreadStream(t *testing.T) {
	below, _, lower := serve(t, link.Options{}, count)
	relay, _, addr := serveEngine(t, link.Options{}, engineAt(dial(t, lower, link.Options{Links: 1})))
	var notes journal
	relay.hop.Observer = &notes
	waits := make(chan struct{})
	relay.engine = announcing(relay.engine, waits)
	client := dial(t, addr, link.Options{Links: 1})
	unread := begin(t, t.Context(), client, "unread", 1<<30, 100)
	<-waits
	relay.hop.Live.Stop("unread", streamerr.New(streamerr.Draining, "drain"))
	awaitNone(t, relay.hop)
	awaitNone(t, below.hop)
	if told, gone := notes.count(observer.EndingSent), notes.count(observer.CallerGone); told != 1 || gone != 0 {
		t.Errorf("the caller was told the ending %d times, and has gone %d times", told, gone)
	}
	if r := ledger.At(below.hop).Get("unread"); streamerr.Reason(r.GetReason()) != streamerr.Draining {
		t.Error(r)
	}
	var err error
	for at := uint32(0); err == nil; at++ { // the END overtakes no message that was sent before
		var out *workerv1.GenerateResponse
		if out, err = unread.Recv(); err == nil && out.GetTokens().GetIds()[0] != at {
			t.Fatalf("tokens %d instead of %d", out.GetTokens().GetIds()[0], at)
		}
	}
	if e := streamerr.FromGRPC("", err); e.Reason != streamerr.Draining || e.Path.Origin() != "worker" {
		t.Error(err)
	}
	n := 0
	for _, err := range engineAt(client).Range(t.Context(), &workerv1.TokenRequest{Prompt: []uint32{1000, 100}}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 1001 {
		t.Error(n)
	}
}
