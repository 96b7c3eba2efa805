package rpc

import (
	"context"
	"io"
	"time"

	"google.golang.org/grpc"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc/cause"
	"github.com/whence-dev/whence/pkg/rpc/delivery"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/rpc/protocol"
	"github.com/whence-dev/whence/pkg/rpc/teller"
	"github.com/whence-dev/whence/pkg/rpc/wire"
	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A unary method is an engine of one item, which is also its End. ServeUnary and DialUnary need no messages of its Method.

// MaxAnswer bounds a unary answer, in bytes: 2048 vectors of 2048 numbers. It is more than gRPC clients take by default.
const MaxAnswer = 16<<20 + 64<<10

// A Teller is the unary method of a peer that ends a stream from outside of it.
type Teller = teller.Teller

// DialUnary returns the engine behind a unary method of a peer. self and peer are hop names.
//
// A unary call has no room for a Stop, and its reset says nothing, so when the stream is stopped the peer is told by tell, with
// the cause and the path so far, and then has the grace to answer; one that cannot be told is reset at once. The Stop names the
// owner of the request, so that it cannot end the stream of another owner that has the same id.
func DialUnary[Req, In, Out any](self, peer string, ask func(context.Context, Req, ...grpc.CallOption) (*Out, error), tell Teller, m *Method[Req, In, Out]) stream.Engine[Req, *Out] {
	return stream.Unary(func(ctx context.Context, req Req) (answer *Out, err error) {
		var c call
		asking, answered := make(chan struct{}), make(chan struct{})
		telling, answeredNow := context.WithCancel(context.WithoutCancel(ctx))
		defer answeredNow()
		sendStop := func(told *streamerr.Error, grace time.Duration) {
			<-asking // the peer knows nothing of a call that is not made yet
			if teller.Closed(answered) {
				return
			}
			c.events.Resetting(observer.StopSent, told)
			stop := &streamv1.StopStreamRequest{StreamId: *m.id(req), Stop: wire.ToStop(told, grace), Owners: []string{m.owner(req)}}
			within, cancel := context.WithTimeout(wire.Outgoing(telling, self), DefaultGrace)
			defer cancel()
			if !tell.Until(within, answered, stop) {
				c.step(protocol.Event{Kind: protocol.Untold})
			}
		}
		if !c.begin(ctx, self, peer, protocol.CallerConfig{Endless: true, Unary: true}, sendStop) {
			return nil, cause.Of(ctx)
		}
		defer c.end()
		if stopped := cause.Of(ctx); stopped != nil { // meanwhile: there is no call, and so nothing that runs
			close(answered)
			close(asking)
			c.stop()
			c.step(protocol.Event{Kind: protocol.Over, Own: true})
			return nil, stopped
		}
		close(asking)
		out, err := ask(c.callCtx, req, grpc.MaxCallRecvMsgSize(MaxAnswer))
		close(answered)
		answeredNow() // a Stop that is on its way has come too late
		if err == nil {
			c.events.Answered()
			c.flow.Received(m.tokens(out), out)
			c.step(protocol.Event{Kind: protocol.End}) // even if it was stopped: this is all of it
			err = io.EOF
		}
		do := c.ended(nil, delivery.Fault(req, err))
		for _, a := range do.All() {
			switch a.Verb {
			case protocol.DeliverHeld:
				answer = out
			case protocol.Finish:
				return answer, a.Err
			default:
			}
		}
		return answer, nil
	})
}
