package rpc

import (
	"google.golang.org/grpc"

	"github.com/whence-dev/whence/pkg/rpc/delivery"
	"github.com/whence-dev/whence/pkg/rpc/protocol"
	"github.com/whence-dev/whence/pkg/stream"
)

// ServeGather is Serve for a client-streaming method. It passes each item to collect. When the
// stream has completed, it sends the result of done as the answer.
func ServeGather[Req, In, Out, Resp any](h *Hop, st grpc.ClientStreamingServer[In, Resp], m *Method[Req, In, Out], engine stream.Engine[Req, *Out], collect func(*Out), done func() *Resp) error {
	send := func(_ *stream.Loop, out *Out) error { collect(out); return nil }
	answer := func(o Outcome) error {
		if o.Err == nil {
			resp := done()
			return delivery.Fault(resp, st.SendAndClose(resp))
		}
		return nil // the status carries the error
	}
	gathered := gatherStream[In, Out, Resp]{ClientStreamingServer: st}
	return serve(h, gathered, m, engine, protocol.CalleeConfig{Whole: true}, send, answer)
}

// A gatherStream drops its messages: the gathered answer is sent once, when it is complete.
type gatherStream[In, Out, Resp any] struct {
	grpc.ClientStreamingServer[In, Resp]
}

// Send implements grpc.BidiStreamingServer.
func (gatherStream[In, Out, Resp]) Send(*Out) error { return nil }
