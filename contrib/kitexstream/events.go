package kitexstream

import (
	"context"

	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/metadata"
	"github.com/cloudwego/kitex/pkg/rpcinfo"

	"github.com/whence-dev/whence/contrib/kitexstream/monitor"
)

// HeaderReceived and StreamFinished are handlers of two events of Kitex's clients, which exist from
// Kitex 0.16 on:
//
//	client.WithStreamOptions(client.WithStreamEventHandler(rpcinfo.ClientStreamEventHandler{
//		HandleStreamRecvHeaderEvent: kitexstream.HeaderReceived[rpcinfo.StreamRecvHeaderEvent],
//		HandleStreamFinishEvent:     kitexstream.StreamFinished[rpcinfo.StreamFinishEvent],
//	}))
//
// They are generic in the types of the events, so that this module builds with older versions of
// Kitex. Without them a client records the callee's header with the first message, and the trailer
// when the client has read the stream to its end.
func HeaderReceived[E any](ctx context.Context, _ rpcinfo.RPCInfo, _ E) {
	if c, ok := ctx.Value(callKey{}).(*clientCall); ok {
		c.gotHeader()
	}
}

// A finishEvent is the type of the event of Kitex 0.16.
type finishEvent = struct {
	GRPCTrailer     map[string][]string
	TTStreamTrailer map[string]string
}

// StreamFinished records the callee's trailer: see HeaderReceived. A client that leaves a stream
// without reading its end then takes the ending from the trailer.
func StreamFinished[E ~finishEvent](ctx context.Context, _ rpcinfo.RPCInfo, event E) {
	c, ok := ctx.Value(callKey{}).(*clientCall)
	if !ok {
		return
	}
	switch e := finishEvent(event); {
	case e.GRPCTrailer != nil:
		c.gotTrailer(grpcTrailer(metadata.MD(e.GRPCTrailer)))
	case e.TTStreamTrailer != nil:
		c.gotTrailer(func(key string) string { return e.TTStreamTrailer[key] })
	}
}

// grpcTrailer returns a function that returns the values of a trailer.
func grpcTrailer(md metadata.MD) func(key string) string {
	return func(key string) string {
		if values := md.Get(key); len(values) > 0 {
			return values[0]
		}
		return ""
	}
}

// gotHeader records the callee's header once.
func (c *clientCall) gotHeader() {
	c.headed.Do(func() { c.stream.Note(monitor.RecvHeader, "", nil) })
}
