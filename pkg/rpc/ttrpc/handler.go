package ttrpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudwego/kitex/pkg/remote"
	"github.com/cloudwego/kitex/pkg/remote/trans/detection"
	"github.com/cloudwego/kitex/pkg/remote/trans/ttstream"
	"github.com/cloudwego/kitex/pkg/serviceinfo"
	"github.com/cloudwego/kitex/pkg/stats"
	"github.com/cloudwego/netpoll"

	"github.com/whence-dev/whence/pkg/rpc/guard/flood"
)

// A message that is a little too large is read, and refused with a status. A connection is closed
// at the header of a larger frame.
const (
	framesPerMessage = 2
	maxFrameHeader   = 64 << 10
)

// Handlers makes the part of a Kitex server that serves TTHeader Streaming, for
// detection.NewSvrTransHandlerFactory. It bounds the messages of a peer and the time of a write to
// the peer. The method Fallback of Service answers calls of unknown methods.
type Handlers struct {
	// Limit bounds a received message, in bytes.
	Limit int
	// WriteTimeout is the longest time for a write to a connection. TTHeader Streaming has no flow
	// control: a write that the peer does not read blocks all streams of its connection, until the
	// connection is closed.
	WriteTimeout time.Duration
	// MaxStreams is the number of open streams from which on a connection is closed; 0 means no bound.
	// A stream is open until its trailers are written.
	MaxStreams uint32
	// Flooded is called when a connection is closed because of MaxStreams; nil for none.
	Flooded flood.Report
	// Service is a registered service that has the method Fallback.
	Service *serviceinfo.ServiceInfo
	// Fallback answers calls of unknown methods.
	Fallback serviceinfo.MethodInfo
}

// NewTransHandler implements remote.ServerTransHandlerFactory.
func (f Handlers) NewTransHandler(o *remote.ServerOption) (remote.ServerTransHandler, error) {
	own := *o
	own.SvcSearcher = searcher{o.SvcSearcher, f}
	h := &handler{limit: f.Limit, writeTimeout: f.WriteTimeout, maxStreams: f.MaxStreams, flooded: f.Flooded, conns: map[netpoll.Connection]struct{}{}, open: map[string]*atomic.Int64{}}
	own.TTHeaderStreamingOptions.TransportOptions = append(own.TTHeaderStreamingOptions.TransportOptions, ttstream.WithServerHeaderFrameHandler(headers{h}))
	own.TracerCtl.Append(finishes{})
	made, err := ttstream.NewSvrTransHandlerFactory().NewTransHandler(&own)
	if err != nil {
		return nil, err
	}
	inner, ok := made.(kitexHandler)
	if !ok {
		return nil, fmt.Errorf("ttrpc: this Kitex has another handler of TTHeader Streaming: %T", made)
	}
	h.kitexHandler = inner
	return h, nil
}

// A kitexHandler is Kitex's handler of TTHeader Streaming.
type kitexHandler interface {
	detection.DetectableServerTransHandler
	remote.InvokeHandleFuncSetter
}

// headers puts the headers of a call into its context, and counts the call.
type headers struct{ *handler }

// OnReadStream implements ttstream.HeaderFrameReadHandler.
func (h headers) OnReadStream(ctx context.Context, _ ttstream.IntHeader, header ttstream.StrHeader) (context.Context, error) {
	h.count(1)
	c := &callCount{handler: h.handler}
	if peer := peerOf(ctx); peer != nil {
		h.mu.Lock()
		c.open = h.open[peer.String()]
		h.mu.Unlock()
	}
	return incomingContext(context.WithValue(ctx, callCountKey{}, c), header), nil
}

// A callCount is the part of a call in the counts of a handler.
type callCount struct {
	*handler
	open *atomic.Int64 // open streams of the connection; nil if the connection is closed
}

type callCountKey struct{}

// finishes is a tracer that reports the end of calls: Kitex calls Finish when the trailers of a
// call have been written, or could not be written.
type finishes struct{}

var _ stats.Tracer = finishes{}

// Start implements stats.Tracer.
func (finishes) Start(ctx context.Context) context.Context { return ctx }

// Finish implements stats.Tracer. Calls over other protocols have no handler.
func (finishes) Finish(ctx context.Context) {
	if c, ok := ctx.Value(callCountKey{}).(*callCount); ok {
		c.count(-1)
		if c.open != nil {
			c.open.Add(-1)
		}
	}
}

// A searcher finds a method for every call, because Kitex does not answer calls without a method.
type searcher struct {
	remote.ServiceSearcher
	known Handlers
}

// SearchService implements remote.ServiceSearcher.
func (s searcher) SearchService(service, method string, strict bool, codec serviceinfo.PayloadCodec) *serviceinfo.ServiceInfo {
	found := s.ServiceSearcher.SearchService(service, method, strict, codec)
	if found != nil && found.MethodInfo(context.Background(), method) != nil {
		return found
	}
	answering := *s.known.Service
	answering.Methods = nil
	answering.GenericMethod = func(context.Context, string) serviceinfo.MethodInfo { return s.known.Fallback }
	return &answering
}

// A handler limits the connections of Kitex's handler.
type handler struct {
	kitexHandler
	limit        int
	writeTimeout time.Duration
	maxStreams   uint32
	flooded      flood.Report

	mu    sync.Mutex // guards the following fields
	conns map[netpoll.Connection]struct{}
	open  map[string]*atomic.Int64 // the number of open streams of each connection, by the peer's address
	calls int                      // calls whose trailers have not been written
	idle  chan struct{}            // closed when calls is 0; nil until the server stops
}

var _ remote.GracefulShutdown = (*handler)(nil)

// count adds n to the number of calls whose trailers have not been written.
func (h *handler) count(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls += n; h.calls == 0 && h.idle != nil {
		close(h.idle)
		h.idle = nil
	}
}

// OnActive implements remote.ServerTransHandler.
func (h *handler) OnActive(ctx context.Context, conn net.Conn) (context.Context, error) {
	polled, ok := conn.(netpoll.Connection)
	if !ok {
		return nil, fmt.Errorf("ttrpc: %T is not a connection of netpoll", conn)
	}
	if err := polled.SetWriteTimeout(h.writeTimeout); err != nil {
		return nil, err
	}
	peer, open := polled.RemoteAddr(), new(atomic.Int64)
	h.mu.Lock()
	h.conns[polled], h.open[peer.String()] = struct{}{}, open
	h.mu.Unlock()
	err := polled.AddCloseCallback(func(netpoll.Connection) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.conns, polled)
		if h.open[peer.String()] == open {
			delete(h.open, peer.String())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r := newFrameReader(polled.Reader(), framesPerMessage*h.limit+maxFrameHeader)
	r.opened = func() error {
		if n := open.Add(1); h.maxStreams == 0 || n <= int64(h.maxStreams) {
			return nil
		}
		err := fmt.Errorf(refusedFrame+"the connection has more than %d open streams", h.maxStreams)
		if h.flooded != nil {
			h.flooded(peer, err)
		}
		return err
	}
	return h.kitexHandler.OnActive(ctx, &boundedConn{polled, r})
}

// GracefulShutdown closes the connections when the trailers of all calls have been written. netpoll
// regards every TTHeader Streaming connection as busy and never closes it.
func (h *handler) GracefulShutdown(ctx context.Context) error {
	h.count(1) // until idle is set
	idle := make(chan struct{})
	h.mu.Lock()
	h.idle = idle
	h.mu.Unlock()
	h.count(-1)
	select {
	case <-idle:
	case <-ctx.Done():
	}
	h.mu.Lock()
	open := make([]netpoll.Connection, 0, len(h.conns))
	for conn := range h.conns {
		open = append(open, conn)
	}
	h.mu.Unlock()
	for _, conn := range open {
		_ = conn.Close()
	}
	return nil
}

// A boundedConn bounds the frames that are read from a connection.
type boundedConn struct {
	netpoll.Connection
	reader *frameReader
}

// Reader implements netpoll.Connection.
func (c *boundedConn) Reader() netpoll.Reader { return c.reader }

// SetOnDisconnect is needed by Kitex.
func (c *boundedConn) SetOnDisconnect(f netpoll.OnDisconnect) error {
	setter, ok := c.Connection.(interface {
		SetOnDisconnect(netpoll.OnDisconnect) error
	})
	if !ok {
		return errors.New("ttrpc: this netpoll does not report disconnects")
	}
	return setter.SetOnDisconnect(f)
}
