package serverstream

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc"
)

// A client presents the call of a server-streaming method as a bidi call: the request opens the
// call, and a Stop is a separate unary call.
type client[In, Out any] struct {
	grpc.ClientStream // nil until the call is open; then st

	// Static.
	ctx   context.Context //nolint:containedctx // the call's
	reset context.CancelFunc
	open  func(context.Context, *In) (grpc.ServerStreamingClient[Out], error)
	name  func(*request[In]) (id, owner string)
	tell  rpc.Teller
	over  chan struct{} // closed when the call is over

	// Owned by the goroutine of the call.
	st     grpc.ServerStreamingClient[Out] // nil until the call is open
	failed error                           // why the call could not be opened

	id, owner string // of the stream; set before the call is open, constant after that

	mu      sync.Mutex // guards ended
	ended   bool       // telling accepts no more goroutines
	telling sync.WaitGroup
}

// Send implements grpc.BidiStreamingClient.
func (c *client[In, Out]) Send(f *frame[In]) error {
	if f.stop != nil {
		c.stopBeside(f.stop)
		return nil
	}
	c.id, c.owner = c.name(f.first)
	c.failed = io.ErrUnexpectedEOF // if open panics
	c.st, c.failed = c.open(metadata.AppendToOutgoingContext(c.ctx, IDHeader, c.id), f.first.in)
	if c.failed == nil {
		c.ClientStream = c.st
	}
	return c.failed
}

// stopBeside sends the peer a Stop, on a goroutine that ends with the call. If the Stop cannot be
// sent, it resets the call.
func (c *client[In, Out]) stopBeside(stop *streamv1.Stop) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	req := &streamv1.StopStreamRequest{StreamId: c.id, Owners: []string{c.owner}, Stop: stop}
	c.telling.Go(func() {
		if !c.tell.Until(c.ctx, c.over, req) { // the caller resets the call after its grace, which ends c.ctx
			c.reset()
		}
	})
}

// CloseSend implements grpc.ClientStream. The call is already half-closed after the request.
func (c *client[In, Out]) CloseSend() error { return nil }

// Recv implements grpc.BidiStreamingClient.
func (c *client[In, Out]) Recv() (*Out, error) {
	if c.st == nil {
		c.end()
		return nil, c.failed
	}
	out, err := c.st.Recv()
	if err != nil {
		c.end()
	}
	return out, err
}

// end frees the resources of the call.
func (c *client[In, Out]) end() {
	c.mu.Lock()
	before := c.ended
	c.ended = true
	c.mu.Unlock()
	if before {
		return
	}
	close(c.over)
	c.reset()
	c.telling.Wait()
}

// Trailer implements grpc.ClientStream.
func (c *client[In, Out]) Trailer() metadata.MD {
	if c.st == nil {
		return nil
	}
	return c.st.Trailer()
}
