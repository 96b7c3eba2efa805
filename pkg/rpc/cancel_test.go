package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// threeHops is front -> middle -> leaf. wrap replaces code of the middle that derives a context
// from the stream's.
type threeHops struct {
	front        engine
	middle, leaf *service
	causes       chan error // the causes with which the leaf was stopped
}

func newThreeHops(t *testing.T, above, below transport, wrap func(context.Context) (context.Context, context.CancelFunc)) *threeHops {
	t.Helper()
	counter := newCounter()
	leaf := patient(newService("leaf", counter.generate))
	relay := engineAt(below.dial(t, below.serve(t, leaf)), "middle", "leaf")
	middle := patient(newService("middle", stream.Push(func(ctx context.Context, req *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			own, cancel := wrap(ctx)
			defer cancel()
			n := 0
			for out, err := range relay.Range(own, req) {
				if n++; n == 3 && wrapped(own, ctx) {
					cancel()
				}
				if !yield(out, err) {
					return
				}
			}
		}
	})))
	return &threeHops{front: engineAt(above.dial(t, above.serve(t, middle)), "front", "middle"), middle: middle, leaf: leaf, causes: counter.causes}
}

func wrapped(own, ctx context.Context) bool { return own != ctx }

func verbatim(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} }

// TestPlainCancelNamesTheHopThatCanceled: a context that ends without a cause is an ordinary ending
// on every hop. It never counts as a bug of the hop that sees it.
func TestPlainCancelNamesTheHopThatCanceled(t *testing.T) {
	here, grpcs := transport{"in process", serveHere, dialHere}, transport{"grpc-go", serveGRPC, dialGRPC}
	type caller func(t *testing.T) (ctx context.Context, leave func())
	plain := func(t *testing.T) (context.Context, func()) { return context.WithCancel(t.Context()) }
	stays := func(t *testing.T) (context.Context, func()) { return t.Context(), func() {} }
	for name, test := range map[string]struct {
		caller      caller
		wrap        func(context.Context) (context.Context, context.CancelFunc)
		reason      streamerr.Reason
		front       string // the path of the error that the caller gets
		middle      string // the path in the middle's record
		heardByLeaf string // the path of the leaf's cause
		virtual     bool   // in virtual time alone: it has a deadline, or the grace of a caller without a Control
	}{
		"the caller's context": {plain, verbatim, streamerr.ClientGone, "client", "client > front > middle", "client > front > middle", true},
		"the parent of the caller's control": {func(t *testing.T) (context.Context, func()) {
			parent, cancel := context.WithCancel(t.Context())
			ctx, ctl := stream.WithControl(parent, polltest.Patience)
			t.Cleanup(ctl.Release)
			return ctx, cancel
		}, verbatim, streamerr.ClientGone, "client", "client > front > middle", "client > front > middle", false},
		"a context that the caller derived": {func(t *testing.T) (context.Context, func()) {
			ctx, ctl := stream.WithControl(t.Context(), polltest.Patience)
			t.Cleanup(ctl.Release)
			return context.WithCancel(ctx)
		}, verbatim, streamerr.PeerReset, "", "front > middle", "front > middle", false},
		"the deadline of the caller's context": {func(t *testing.T) (context.Context, func()) {
			return context.WithTimeout(t.Context(), 300*time.Millisecond)
		}, verbatim, streamerr.Deadline, "", "front > middle", "front > middle", true},
		"a context that the middle derived": {stays, context.WithCancel, streamerr.PeerReset, "middle", "middle", "middle", false},
		"the deadline of a context that the middle derived": {stays, func(ctx context.Context) (context.Context, context.CancelFunc) {
			own, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			context.AfterFunc(own, cancel)
			return own, func() {} // ends by its deadline alone
		}, streamerr.Deadline, "middle", "middle", "middle", true},
	} {
		play := func(t *testing.T, above, below transport) {
			hops := newThreeHops(t, above, below, test.wrap)
			ctx, leave := test.caller(t)
			defer leave()
			req := ask(1 << 30)()
			req.StreamId = "one"
			items := 0
			var last error
			for _, err := range hops.front.Range(ctx, req) {
				if last = err; err != nil {
					break
				}
				if items++; items == 3 && test.reason != streamerr.Deadline {
					leave()
				}
			}
			if e := streamerr.As(last); e.Reason != test.reason || e.Path.String() != test.front {
				t.Errorf("the caller got %v", last)
			}
			if canceled := errors.Is(last, context.Canceled) || errors.Is(last, context.DeadlineExceeded); !canceled && test.front != "middle" {
				t.Errorf("%v does not wrap the error of the caller's context", last)
			}
			if got := streamerr.As(<-hops.causes); got.Reason != test.reason || got.Path.String() != test.heardByLeaf {
				t.Errorf("the leaf was stopped with %v", got)
			}
			hops.middle.hop.Drain(t.Context(), time.Minute) // returns when all streams have ended
			hops.leaf.hop.Drain(t.Context(), time.Minute)
			for _, hop := range []*service{hops.middle, hops.leaf} {
				want := test.middle
				if hop == hops.leaf {
					want = fmt.Sprint(test.heardByLeaf, " > leaf")
				}
				r := ledger.At(hop.hop).Get("one")
				if path := streamerr.NewPath(r.GetPath()...).String(); streamerr.Reason(r.GetReason()) != test.reason || path != want {
					t.Errorf("the record of %s has %v [%s]: %s", hop.hop.Name, streamerr.Reason(r.GetReason()), path, r.GetMessage())
				}
			}
		}
		t.Run(name+", in process", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { play(t, here, here) })
		})
		if test.virtual {
			continue
		}
		for _, above := range []transport{grpcs, {"kitex", serveKitex, dialKitex}} {
			t.Run(name+", "+above.name, func(t *testing.T) { play(t, above, grpcs) })
		}
	}
}

// TestEngineMayReturnTheErrorOfItsContext: an engine that ignores causes does not change the
// ending.
func TestEngineMayReturnTheErrorOfItsContext(t *testing.T) {
	svc := newService("worker", stream.Push(func(ctx context.Context, _ *workerv1.TokenRequest) iter.Seq2[*workerv1.GenerateResponse, error] {
		return func(yield func(*workerv1.GenerateResponse, error) bool) {
			if yield(&workerv1.GenerateResponse{}, nil) {
				<-ctx.Done()
				yield(nil, ctx.Err())
			}
		}
	}))
	for _, tr := range perServer {
		req := ask(1)()
		req.StreamId = tr.name[len(tr.name)-4:]
		ctx, ctl := stream.WithControl(t.Context(), polltest.Patience)
		for _, err := range engineAt(tr.dial(t, tr.serve(t, svc)), "caller", "worker").Range(ctx, req) {
			if err == nil {
				ctl.Stop(streamerr.New(streamerr.UserStop, "enough"))
			}
		}
		ctl.Release()
	}
	svc.hop.Drain(t.Context(), time.Minute)
	for _, tr := range perServer {
		if r := ledger.At(svc.hop).Get(tr.name[len(tr.name)-4:]); streamerr.Reason(r.GetReason()) != streamerr.UserStop {
			t.Errorf("%s: the stream ended with %v: %s", tr.name, streamerr.Reason(r.GetReason()), r.GetMessage())
		}
	}
}

func TestPlainCancelOfAUnaryCallNamesTheHopThatCanceled(t *testing.T) {
	leaf := newCounter()
	parent, cancel := context.WithCancel(t.Context())
	ctx, ctl := stream.WithControl(parent, polltest.Patience)
	defer ctl.Release()
	worker := newEmbedder("worker", whenRunning(leaf.embed, cancel))
	chat := newEmbedder("chat", embedAt(dialGRPC(t, serveGRPC(t, worker)), "chat", "worker"))
	patient(worker.service)
	patient(chat.service)
	edge := embedAt(dialKitex(t, serveKitex(t, chat)), "edge", "chat")
	if e := streamerr.As(lastError(ctx, edge, text(1<<30)())); e.Reason != streamerr.ClientGone || e.Path.String() != "client" {
		t.Fatalf("the caller got %v", e)
	}
	if got := streamerr.As(<-leaf.causes); got.Reason != streamerr.ClientGone || got.Path.String() != "client > edge > chat" {
		t.Errorf("the leaf was stopped with %v", got)
	}
}
