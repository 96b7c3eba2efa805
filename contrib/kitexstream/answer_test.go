package kitexstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudwego/kitex/pkg/kerrors"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/codes"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/grpc"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/status"
	"github.com/cloudwego/kitex/server"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/whence-dev/whence/contrib/kitexstream/internal/kitextest"
	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// endings returns the endings of a hop, one line each.
func (h hop) endings() string {
	var lines strings.Builder
	for _, f := range h.Figures() {
		for _, e := range f.Endings {
			fmt.Fprintf(&lines, "%s %s %s %d\n", f.Side, e.Origin, e.Reason, e.N)
		}
	}
	return lines.String()
}

// TestABizStatusErrorIsTheApplicationsOwnAnswer: both hops on its way count it under its own
// reason.
func TestABizStatusErrorIsTheApplicationsOwnAnswer(t *testing.T) {
	for _, b := range bindings {
		t.Run(b.system, func(t *testing.T) {
			all := func(c *monitor.Config) { c.Ratio = 1 }
			leaf, middle := newHop(t, "leaf", all), newHop(t, "middle", all)
			leafAt, _ := b.serveAt(t, leaf, func(context.Context, func(int64) error) error {
				return kerrors.NewGRPCBizStatusError(404, "no such symbol")
			})
			below := b.dial(t, leafAt, watching(middle))
			middleAt, _ := b.serveAt(t, middle, func(ctx context.Context, _ func(int64) error) error {
				st, err := below(ctx)
				return readAll(ctx, st, err)
			})
			st, err := b.dial(t, middleAt)(kitextest.Context(t))
			err = readAll(kitextest.Context(t), st, err)
			if biz, ok := kerrors.FromBizStatusError(err); !ok || biz.BizStatusCode() != 404 || biz.BizMessage() != "no such symbol" {
				t.Errorf("the caller got %v", err)
			}
			for side, want := range map[string]struct {
				hop
				side         monitor.Side
				path, origin string
			}{
				"leaf":          {leaf, "server", "leaf", "self"},
				"middle's call": {middle, "client", "leaf > middle", "peer"},
				"middle":        {middle, "server", "leaf > middle", "peer"},
			} {
				span := only(t, want.ended(t), want.side)
				check(t, side, span, streamerr.Completed, want.path)
				if span.BizStatus == nil || *span.BizStatus != 404 {
					t.Errorf("%s: the record has the status %v", side, span.BizStatus)
				}
				lines := want.endings()
				if !strings.Contains(lines, fmt.Sprintf("%s %s biz_status 1\n", want.side, want.origin)) || strings.Contains(lines, "internal") {
					t.Errorf("%s: the endings are %s", side, lines)
				}
			}
		})
	}
}

// whenceError returns the ending of a Whence service, as its Kitex servers send it.
func whenceError(t *testing.T, reason, path string) error {
	t.Helper()
	st, err := status.New(codes.ResourceExhausted, "the queue is full").WithDetails(
		&errdetails.ErrorInfo{Reason: reason, Domain: streamerr.Domain, Metadata: map[string]string{streamerr.PathKey: path}})
	if err != nil {
		t.Fatal(err)
	}
	biz := kerrors.NewGRPCBizStatusError(int32(codes.ResourceExhausted), "the queue is full")
	biz.(kerrors.GRPCStatusIface).SetGRPCStatus(st)
	return biz
}

// TestAStatusOfAWhenceServiceIsAnEnding: Whence's Kitex servers send their endings as
// BizStatusErrors.
func TestAStatusOfAWhenceServiceIsAnEnding(t *testing.T) {
	caller := newHop(t, "root", nil)
	addr, _ := bindings[0].servePlain(t, func(context.Context, func(int64) error) error {
		return whenceError(t, "OVERLOADED", "worker > chat")
	})
	st, err := bindings[0].dial(t, addr, watching(caller))(kitextest.Context(t))
	_ = readAll(kitextest.Context(t), st, err)
	check(t, "root", only(t, caller.ended(t), "client"), streamerr.Overloaded, "worker > chat > root")
}

// TestAShutdownIsTheServersEnding: a server stops while a handler runs. Over TTHeader Streaming
// Kitex lets the handler continue.
func TestAShutdownIsTheServersEnding(t *testing.T) {
	for _, b := range bindings[:2] {
		t.Run(b.system, func(t *testing.T) {
			at, caller := newHop(t, "leaf", nil), newHop(t, "root", nil)
			addr, stop := b.serveAt(t, at, func(ctx context.Context, send func(int64) error) error {
				err := send(1)
				<-ctx.Done()
				return errors.Join(err, ctx.Err())
			})
			st, err := b.dial(t, addr, watching(caller))(kitextest.Context(t))
			if err == nil {
				_, err = st.recv(kitextest.Context(t))
			}
			if err != nil {
				t.Fatal(err)
			}
			stop()
			if err := readAll(kitextest.Context(t), st, nil); errors.Is(err, io.EOF) {
				t.Error("the stream completed")
			}
			check(t, "leaf", only(t, at.ended(t), "server"), streamerr.Draining, "leaf")
			check(t, "root", only(t, caller.ended(t), "client"), streamerr.Draining, "next > root")
		})
	}
}

// TestAConnectionPastItsMaximumAgeIsTheServersEnding: the server's keepalive options bound the age
// of a connection. On a busy machine a connection can reach its maximum age before its stream
// reaches the handler; then the test tries again with a higher age.
func TestAConnectionPastItsMaximumAgeIsTheServersEnding(t *testing.T) {
	for age := 250 * time.Millisecond; age < time.Minute; age *= 4 {
		at, caller := newHop(t, "leaf", nil), newHop(t, "root", nil)
		var handled atomic.Bool
		addr, _ := bindings[0].serveAt(t, at, func(ctx context.Context, _ func(int64) error) error {
			handled.Store(ctx.Err() == nil)
			<-ctx.Done()
			return ctx.Err()
		}, server.WithGRPCKeepaliveParams(grpc.ServerKeepalive{MaxConnectionAge: age, MaxConnectionAgeGrace: age}))
		st, err := bindings[0].dial(t, addr, watching(caller))(kitextest.Context(t))
		_ = readAll(kitextest.Context(t), st, err)
		if !handled.Load() {
			t.Logf("after %v the stream has not reached the handler", age)
			continue
		}
		check(t, "leaf", only(t, at.ended(t), "server"), streamerr.Draining, "leaf")
		check(t, "root", only(t, caller.ended(t), "client"), streamerr.PeerLost, "next > root")
		return
	}
	t.Error("no stream reached its handler")
}

// TestCallersWithoutASuite: the server names such a caller "client".
func TestCallersWithoutASuite(t *testing.T) {
	for _, b := range canceling() {
		for name, test := range map[string]struct {
			end    func(cut, cancel func())
			reason streamerr.Reason
			path   string
		}{
			"reads to the end": {func(func(), func()) {}, streamerr.Completed, "leaf"},
			"cancels":          {func(_, cancel func()) { cancel() }, streamerr.PeerReset, "client > leaf"},
			"vanishes":         {func(cut, _ func()) { cut() }, streamerr.PeerLost, "client > leaf"},
		} {
			t.Run(b.system+" "+name, func(t *testing.T) {
				at := newHop(t, "leaf", func(c *monitor.Config) { c.Ratio = 1 })
				completes := test.reason == streamerr.Completed
				addr, _ := b.serveAt(t, at, func(ctx context.Context, send func(int64) error) error {
					if err := send(1); err != nil || completes {
						return err
					}
					<-ctx.Done()
					return ctx.Err()
				})
				proxy := newProxy(t)
				proxy.to(addr)
				ctx, cancel := context.WithCancel(kitextest.Context(t))
				defer cancel()
				st, err := b.dial(t, proxy.addr())(ctx)
				if err == nil {
					_, err = st.recv(ctx)
				}
				if err != nil {
					t.Fatal(err)
				}
				test.end(proxy.cut, cancel)
				_ = readAll(ctx, st, nil)
				check(t, "leaf", only(t, at.ended(t), "server"), test.reason, test.path)
			})
		}
	}
}
