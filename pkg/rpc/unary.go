package rpc

import (
	"context"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

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

// A unary method is an engine of one item, which is also the End. ServeUnary and DialUnary do not
// use the Method's functions for messages.

// MaxRequest bounds a request between the services, in bytes. A body of 32 MiB at api-service fits.
const MaxRequest = 36 << 20

// MaxAnswer bounds a unary answer, in bytes. 2048 vectors of 2048 numbers fit; the default limit of
// gRPC clients is smaller.
const MaxAnswer = 16<<20 + 64<<10

// A Teller calls the unary method of a peer that ends a stream from outside.
type Teller = teller.Teller

// DialUnary returns the engine behind a unary method of a peer. self and peer are the names of this
// hop and of the peer's.
//
// A unary call has no room for a Stop, and its reset carries no cause. So when the stream is
// stopped, tell sends the peer the cause and the path so far in a call of its own, and the peer has
// the grace to answer. If the Stop cannot be sent, the call is reset at once. The Stop names the
// owner of the request, so that it cannot end the stream of another owner with the same id.
func DialUnary[Req, In, Out any](self, peer string, ask func(context.Context, Req, ...grpc.CallOption) (*Out, error), tell Teller, m *Method[Req, In, Out]) stream.Engine[Req, *Out] {
	return stream.Unary(func(ctx context.Context, req Req) (answer *Out, err error) {
		var c call
		asking, answered := make(chan struct{}), make(chan struct{})
		telling, answeredNow := context.WithCancel(context.WithoutCancel(ctx))
		defer answeredNow()
		sendStop := func(told *streamerr.Error, grace time.Duration) {
			<-asking // until the call is made, the peer does not know it
			if teller.Closed(answered) {
				return
			}
			c.events.Resetting(observer.StopSent, told)
			stop := &streamv1.StopStreamRequest{StreamId: *m.id(req), Stop: wire.ToStop(told, grace), Owners: []string{m.owner(req)}}
			if !tell.Until(wire.Outgoing(telling, self), answered, stop) { // the machine's grace bounds it: the reset ends the call
				c.step(protocol.Event{Kind: protocol.Untold})
			}
		}
		if !c.begin(ctx, self, peer, protocol.CallerConfig{Endless: true, Unary: true}, sendStop) {
			return nil, cause.Of(ctx)
		}
		defer c.end()
		if stopped := cause.Of(ctx); stopped != nil { // stopped since the call of begin: there is no call yet, so nothing runs
			close(answered)
			close(asking)
			c.stop()
			c.step(protocol.Event{Kind: protocol.Over, Own: true})
			return nil, stopped
		}
		close(asking)
		var trailers metadata.MD
		out, err := ask(c.callCtx, req, grpc.MaxCallRecvMsgSize(MaxAnswer), grpc.Trailer(&trailers))
		close(answered)
		answeredNow() // cancels a Stop that is being sent: it is too late
		if err == nil {
			c.events.Answered()
			c.flow.Received(m.tokens(out), out)
			c.step(protocol.Event{Kind: protocol.End}) // even if the call was stopped: the answer is complete
			err = io.EOF
		}
		c.consumed(trailers)
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
