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

// A client makes the call of a server-streaming method a bidi call: the request opens the call, and a Stop goes out beside it.
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
	failed error                           // why it could not be opened

	id, owner string // of the stream; set before the call is open, and not changed

	mu      sync.Mutex // guards ended
	ended   bool       // telling takes no more goroutines
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

// stopBeside tells the peer to stop, on a goroutine that ends with the call. A peer that cannot be told is reset.
func (c *client[In, Out]) stopBeside(stop *streamv1.Stop) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	req := &streamv1.StopStreamRequest{StreamId: c.id, Owners: []string{c.owner}, Stop: stop}
	c.telling.Go(func() {
		within, cancel := context.WithTimeout(c.ctx, rpc.DefaultGrace)
		defer cancel()
		if !c.tell.Until(within, c.over, req) {
			c.reset()
		}
	})
}

// CloseSend implements grpc.ClientStream: the request has closed the call.
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

// end frees what the call holds.
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
