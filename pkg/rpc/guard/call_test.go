package guard_test

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/whence-dev/whence/pkg/rpc/guard"
	"github.com/whence-dev/whence/pkg/rpc/loop"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// pipe is a call without a transport: it receives the messages that the test sends.
type pipe struct {
	grpc.ServerStream
	messages chan error
	ctx      context.Context //nolint:containedctx // a gRPC stream has one
}

func (p *pipe) Context() context.Context { return p.ctx }
func (p *pipe) RecvMsg(any) error {
	select {
	case err := <-p.messages:
		return err
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

// registrar keeps the handler of the method that is registered with it.
type registrar struct {
	guard.Server
	handler grpc.StreamHandler
}

func (r *registrar) RegisterService(desc *grpc.ServiceDesc, _ any) {
	r.handler = desc.Streams[0].Handler
}

// receive serves a call whose first message arrives after first, and whose second message arrives
// after second. It returns the handler's results.
func receive(t *testing.T, limit, first, second time.Duration) (got []error) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	p := &pipe{messages: make(chan error), ctx: ctx}
	var server registrar
	guard.New(&server, guard.Options{Limits: guard.Limits{FirstMessage: limit}}).RegisterService(&grpc.ServiceDesc{Streams: []grpc.StreamDesc{{
		Handler: func(_ any, st grpc.ServerStream) error {
			got = append(got, st.RecvMsg(nil), st.RecvMsg(nil))
			return got[1]
		},
	}}}, nil)
	go func() {
		for _, after := range []time.Duration{first, second} {
			select {
			case <-time.After(after):
				select {
				case p.messages <- nil:
				case <-ctx.Done():
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	if err := server.handler(nil, p); (err == nil) != (got[1] == nil) {
		t.Errorf("the handler's %v became %v", got[1], err)
	}
	return got
}

func TestOnlyTheFirstMessageIsTimed(t *testing.T) {
	for name, test := range map[string]struct {
		limit, first, second time.Duration
		timely               bool
	}{
		"in time, then silence": {time.Second, time.Second - 1, time.Hour, true},
		"too late":              {time.Second, time.Second + 1, 0, false},
		"no limit":              {0, time.Hour, time.Hour, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			for i, err := range receive(t, test.limit, test.first, test.second) {
				if test.timely && err != nil || !test.timely && !errors.Is(err, streamerr.Deadline) {
					t.Errorf("%s: message %d: %v", name, i, err)
				}
			}
			synctest.Wait()
		})
	}
}

// A begunCall is a call whose first message has arrived. It keeps the stack of RecvMsg.
type begunCall struct {
	pipe
	stack string
}

func (a *begunCall) More() bool { return true }
func (a *begunCall) RecvMsg(any) error {
	a.stack = string(debug.Stack())
	return nil
}

func TestFirstMessageThatHasArrivedNeedsNoGoroutine(t *testing.T) {
	call := &begunCall{pipe: pipe{ctx: t.Context()}}
	var server registrar
	guard.New(&server, guard.Options{Limits: guard.Default}).RegisterService(&grpc.ServiceDesc{Streams: []grpc.StreamDesc{{
		Handler: func(_ any, st grpc.ServerStream) error { return st.RecvMsg(nil) },
	}}}, nil)
	if err := server.handler(nil, call); err != nil || !strings.Contains(call.stack, t.Name()) {
		t.Errorf("%v; the message is received in\n%s", err, call.stack)
	}
}

// A leftCall is a call whose handler may return while its stream continues.
type leftCall struct {
	pipe
	loop.Sink
	finish func()
}

func (l *leftCall) OnFinish(f func()) { l.finish = f }

// A middleware stands between the connection and the guard.
type middleware struct{ grpc.ServerStream }

func (m middleware) Unwrap() grpc.ServerStream { return m.ServerStream }

// TestCallIsOpenUntilItsStreamFinishes: also after its handler has returned, and behind middleware.
func TestCallIsOpenUntilItsStreamFinishes(t *testing.T) {
	for name, wrap := range map[string]func(grpc.ServerStream) grpc.ServerStream{
		"alone":             func(st grpc.ServerStream) grpc.ServerStream { return st },
		"behind middleware": func(st grpc.ServerStream) grpc.ServerStream { return middleware{middleware{st}} },
	} {
		seen := newCounter()
		var server registrar
		guard.New(&server, guard.Options{Observer: seen}).RegisterService(&grpc.ServiceDesc{Streams: []grpc.StreamDesc{{
			Handler: func(any, grpc.ServerStream) error { return loop.ErrLeft },
		}}}, nil)
		call := &leftCall{pipe: pipe{ctx: t.Context()}}
		if err := server.handler(nil, wrap(call)); !errors.Is(err, loop.ErrLeft) || seen.opened.Load() != 1 || seen.closed.Load() != 0 {
			t.Fatalf("%s: %v; %d calls are opened and %d closed", name, err, seen.opened.Load(), seen.closed.Load())
		}
		if call.finish == nil {
			t.Fatalf("%s: the guard has registered no function for the end of the call", name)
		}
		call.finish()
		if n := seen.closed.Load(); n != 1 {
			t.Errorf("%s: %d calls are closed", name, n)
		}
	}
}

func TestLimitsLeaveRoomAboveStreams(t *testing.T) {
	for _, test := range []struct{ limits, want guard.Limits }{
		{guard.Default, guard.Limits{FirstMessage: 5 * time.Second, PerConnection: 12_001, Total: 24_002}},
		{guard.Limits{}, guard.Limits{}},
		{guard.Limits{PerConnection: 20_000, Total: guard.Auto}, guard.Limits{PerConnection: 20_000, Total: 40_000}},
	} {
		if got := test.limits.For(10_000); got != test.want {
			t.Errorf("%+v is %+v, want %+v", test.limits, got, test.want)
		}
	}
	if got := (&guard.Limits{PerConnection: -2}).Validate(); got == nil {
		t.Error("Validate accepts -2 calls")
	}
}
