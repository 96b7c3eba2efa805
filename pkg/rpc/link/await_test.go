package link_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/rpc/link/mux"
)

// errOverGRPC is the result of all streams of an answering Conn.
var errOverGRPC = errors.New("the stream went over gRPC")

// An answering Conn is a gRPC connection to a callee that answers Where after a time.
type answering struct {
	after  time.Duration
	asked  atomic.Int32
	answer atomic.Pointer[status.Status] // of the next calls; OK names the port of a callee with links
}

func (a *answering) Invoke(ctx context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	a.asked.Add(1)
	select {
	case <-time.After(a.after):
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	if s := a.answer.Load(); s != nil {
		return s.Err()
	}
	where := reply.(*streamv1.WhereResponse)
	where.Port, where.Identity = 1, "callee"
	return nil
}

func (a *answering) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errOverGRPC
}

func (a *answering) Close() error { return nil }

// TestStreamsWaitForTheFirstLink: a stream keeps its transport to its end, so a stream that comes
// before the callee has said whether it serves links waits a moment.
func TestStreamsWaitForTheFirstLink(t *testing.T) {
	unavailable, unimplemented := status.New(codes.Unavailable, "refused"), status.New(codes.Unimplemented, "no such service")
	for name, c := range map[string]struct {
		after  time.Duration  // until the callee answers
		before *status.Status // of calls in the first half second; nil: the callee serves links
		then   *status.Status // of calls after that
		linked bool           // the stream is opened after half a second, too
		waits  time.Duration
		awaits bool // Await is called before the stream is opened
	}{
		"the callee answers":                 {after: 20 * time.Millisecond, linked: true},
		"the callee was away":                {after: 20 * time.Millisecond, before: unavailable, linked: true, waits: 20 * time.Millisecond},
		"the callee is away":                 {after: 20 * time.Millisecond, before: unavailable, then: unavailable, waits: 20 * time.Millisecond},
		"the callee has no links":            {after: 20 * time.Millisecond, before: unimplemented, then: unimplemented},
		"the callee does not answer in time": {after: time.Hour, waits: 100 * time.Millisecond},
		"the hop awaits a slow callee":       {after: 300 * time.Millisecond, before: unavailable, linked: true, awaits: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, _, ln := serveInMemory(t, link.Options{Mux: mux.Options{Identity: "callee"}}, count)
				cc := &answering{after: c.after}
				cc.answer.Store(c.before)
				var opened []bool
				u := link.Upgrade(cc, "callee:1", link.Options{
					Dial:   func(ctx context.Context, _, _ string) (net.Conn, error) { return ln.DialContext(ctx) },
					Opened: func(linked bool) { opened = append(opened, linked) },
				}, slog.New(slog.DiscardHandler))

				time.Sleep(500 * time.Millisecond)
				cc.answer.Store(c.then)
				if c.awaits {
					link.Await(t.Context(), u)
				}
				begun := time.Now()
				_, err := workerv1.NewWorkerClient(u).Generate(t.Context())
				if waited := time.Since(begun); waited != c.waits {
					t.Errorf("the stream waited %v, want %v", waited, c.waits)
				}
				if linked := err == nil; linked != c.linked || err != nil && !errors.Is(err, errOverGRPC) {
					t.Errorf("over a link: %v, want %v; %v", linked, c.linked, err)
				}
				if !slices.Equal(opened, []bool{c.linked}) {
					t.Errorf("Opened got %v, want %v once", opened, c.linked)
				}
				_ = u.Close()
			})
		})
	}
}
