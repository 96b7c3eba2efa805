package rpc_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc"
	"github.com/whence-dev/whence/pkg/rpc/methods"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/rpc/wire"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// notes is a Flow that keeps the kinds of its events. on, if not nil, is called with each event.
type notes struct {
	observer.Nobody
	on func(observer.Event)

	mu    sync.Mutex // guards kinds
	kinds []observer.Kind
}

func (n *notes) Note(e observer.Event) {
	n.mu.Lock()
	n.kinds = append(n.kinds, e.Kind)
	n.mu.Unlock()
	if n.on != nil {
		n.on(e)
	}
}

func (n *notes) saw(kind observer.Kind) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.kinds, kind)
}

// An endedClient is a call that ends with err and trailers after the callee was sent a Stop.
type endedClient struct {
	fakeClient
	err     error
	trailer metadata.MD
}

func (c endedClient) Recv() (*workerv1.GenerateResponse, error) {
	_, _ = c.fakeClient.Recv()
	return nil, c.err
}

func (c endedClient) Trailer() metadata.MD { return c.trailer }

// TestOnlyTheCalleesOwnEndingConfirmsAStop ends a stopped call in every way in which calls end. A
// status without our trailers or details may come from a transport or a proxy, which know nothing
// of the engine.
func TestOnlyTheCalleesOwnEndingConfirmsAStop(t *testing.T) {
	type end struct {
		err     error
		trailer metadata.MD
		want    observer.Kind
	}
	ends := map[string]end{
		"status OK":            {io.EOF, nil, observer.Confirmed},
		"our trailers":         {status.Error(codes.Internal, ""), wire.EndTrailer(streamerr.UserStop, nil, 0, 0), observer.Confirmed},
		"our details":          {streamerr.New(streamerr.Overloaded, "full").GRPCStatus().Err(), nil, observer.Confirmed},
		"an error of this hop": {streamerr.New(streamerr.Internal, "a bug"), nil, observer.Unconfirmed},
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		ends["a bare "+code.String()] = end{status.Error(code, "made up"), nil, observer.Unconfirmed}
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := &notes{}
				ctx, ctl := stream.WithControl(observer.With(context.Background(), seen), time.Second)
				defer ctl.Release()
				call := endedClient{fakeClient{opened: make(chan struct{}), stops: make(chan *streamv1.Stop, 1)}, end.err, end.trailer}
				open := func(context.Context, ...grpc.CallOption) (grpc.BidiStreamingClient[workerv1.GenerateRequest, workerv1.GenerateResponse], error) {
					return call, nil
				}
				go func() {
					<-call.opened
					time.Sleep(time.Millisecond) // the call is open
					ctl.Stop(streamerr.UserStop)
				}()
				for range rpc.Dial("chat", "worker", open, methods.Worker).Range(ctx, ask(1)()) {
				}
				other := observer.Confirmed + observer.Unconfirmed - end.want
				if !seen.saw(end.want) || seen.saw(other) {
					t.Errorf("confirmed: %v, unconfirmed: %v", seen.saw(observer.Confirmed), seen.saw(observer.Unconfirmed))
				}
			})
		})
	}
}

// TestStoppedUnaryCallIsNotMade stops the stream while its call is being prepared. The peer must
// get neither the call nor the Stop.
func TestStoppedUnaryCallIsNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 1000 {
			seen := &notes{}
			ctx, ctl := stream.WithControl(observer.With(context.Background(), seen), time.Second)
			seen.on = func(e observer.Event) {
				if e.Kind == observer.Calling {
					ctl.Stop(streamerr.UserStop)
				}
			}
			tell := func(context.Context, *streamv1.StopStreamRequest) error {
				t.Error("the peer got a Stop for a stream that it does not have")
				return status.Error(codes.NotFound, "")
			}
			embed := func(context.Context, *workerv1.EmbedRequest, ...grpc.CallOption) (*workerv1.EmbedResponse, error) {
				t.Error("the call was made")
				return &workerv1.EmbedResponse{}, nil
			}
			begun := time.Now()
			err := lastError(ctx, rpc.DialUnary("chat", "worker", embed, tell, methods.WorkerEmbed), text(1)())
			if took := time.Since(begun); !errors.Is(err, streamerr.UserStop) || took > 0 || !seen.saw(observer.Confirmed) {
				t.Errorf("%v after %v", err, took)
			}
			ctl.Release()
		}
	})
}
