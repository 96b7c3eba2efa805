package ttrpc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/cloudwego/kitex/pkg/endpoint"
	"github.com/cloudwego/kitex/pkg/remote"
	"github.com/cloudwego/kitex/pkg/remote/trans/detection"
	"github.com/cloudwego/kitex/pkg/remote/trans/ttstream"
	"github.com/cloudwego/kitex/pkg/serviceinfo"
	"github.com/cloudwego/netpoll"
)

// A frame of a message that is a little too large is read, and the message is refused with a status. The connection is cut at the
// header of a larger frame.
const (
	framesPerMessage = 2
	maxFrameHeader   = 64 << 10
)

// Handlers makes the part of a Kitex server that serves TTHeader Streaming, for detection.NewSvrTransHandlerFactory. It bounds what
// a peer may send and how long a write to the peer may take, and has unknown methods answered by the method named Fallback of
// the service named Service.
type Handlers struct {
	// Limit bounds a received message, in bytes.
	Limit int
	// WriteTimeout is the longest time for a write to a connection. TTHeader Streaming has no flow control: all streams of a
	// connection wait for a write that its peer does not read, and only the end of the connection ends that.
	WriteTimeout time.Duration
	// Service is a registered service that has Fallback.
	Service *serviceinfo.ServiceInfo
	// Fallback answers calls of unknown methods.
	Fallback serviceinfo.MethodInfo
}

// NewTransHandler implements remote.ServerTransHandlerFactory.
func (f Handlers) NewTransHandler(o *remote.ServerOption) (remote.ServerTransHandler, error) {
	own := *o
	own.SvcSearcher = searcher{o.SvcSearcher, f}
	own.TTHeaderStreamingOptions.TransportOptions = append(own.TTHeaderStreamingOptions.TransportOptions, ttstream.WithServerHeaderFrameHandler(headers{}))
	made, err := ttstream.NewSvrTransHandlerFactory().NewTransHandler(&own)
	if err != nil {
		return nil, err
	}
	inner, ok := made.(kitexHandler)
	if !ok {
		return nil, fmt.Errorf("ttrpc: this Kitex has another handler of TTHeader Streaming: %T", made)
	}
	return &handler{kitexHandler: inner, limit: f.Limit, writeTimeout: f.WriteTimeout, conns: map[netpoll.Connection]struct{}{}}, nil
}

// A kitexHandler is Kitex's own.
type kitexHandler interface {
	detection.DetectableServerTransHandler
	remote.InvokeHandleFuncSetter
}

// headers puts the headers of a call into its context.
type headers struct{}

// OnReadStream implements ttstream.HeaderFrameReadHandler.
func (headers) OnReadStream(ctx context.Context, _ ttstream.IntHeader, h ttstream.StrHeader) (context.Context, error) {
	return incomingContext(ctx, h), nil
}

// A searcher finds a method for every call. Kitex does not answer a call without one.
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

// A handler guards the connections of Kitex's handler.
type handler struct {
	kitexHandler
	limit        int
	writeTimeout time.Duration

	mu    sync.Mutex // guards the following fields
	conns map[netpoll.Connection]struct{}
	calls int           // the methods that run
	idle  chan struct{} // closed when no method runs any more; nil until the server stops
}

var _ remote.GracefulShutdown = (*handler)(nil)

// SetInvokeHandleFunc implements remote.InvokeHandleFuncSetter.
func (h *handler) SetInvokeHandleFunc(call endpoint.Endpoint) {
	h.kitexHandler.SetInvokeHandleFunc(func(ctx context.Context, args, result any) error {
		h.count(1)
		defer h.count(-1)
		return call(ctx, args, result)
	})
}

// count adds n to the methods that run.
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
		return nil, fmt.Errorf("ttrpc: %T is no connection of netpoll", conn)
	}
	if err := polled.SetWriteTimeout(h.writeTimeout); err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.conns[polled] = struct{}{}
	h.mu.Unlock()
	err := polled.AddCloseCallback(func(netpoll.Connection) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.conns, polled)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return h.kitexHandler.OnActive(ctx, &boundedConn{polled, &frameReader{Reader: polled.Reader(), limit: framesPerMessage*h.limit + maxFrameHeader}})
}

// lingering is the time between the return of a handler and the end of its connection, when the server stops. Kitex writes the
// trailers of a stream after its handler has returned, and does not report it.
const lingering = 20 * time.Millisecond

// GracefulShutdown closes the connections. netpoll takes a connection with TTHeader Streaming for one that is in use.
func (h *handler) GracefulShutdown(ctx context.Context) error {
	h.count(1) // until idle is there
	idle := make(chan struct{})
	h.mu.Lock()
	h.idle = idle
	h.mu.Unlock()
	h.count(-1)
	select {
	case <-idle:
		time.Sleep(lingering)
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

// lengthField is the size of the length in front of each frame.
const lengthField = 4

// A frameReader follows the frames of a connection, and fails at a frame that is too large, before memory is allocated for it. Kitex
// reads with Next and Skip alone, and the length of a frame in one piece.
type frameReader struct {
	netpoll.Reader
	limit int
	left  int // bytes of the current frame that were not read yet
}

// Next implements netpoll.Reader.
func (r *frameReader) Next(n int) ([]byte, error) {
	b, err := r.Reader.Next(n)
	if err != nil {
		return b, err
	}
	return b, r.read(b, n)
}

// Skip implements netpoll.Reader.
func (r *frameReader) Skip(n int) error {
	b, err := r.Peek(n)
	if err != nil {
		return err
	}
	if err := r.read(b, n); err != nil {
		return err
	}
	return r.Reader.Skip(n)
}

// read counts n bytes, which begin with b.
func (r *frameReader) read(b []byte, n int) error {
	if r.left == 0 {
		if len(b) < lengthField {
			return errors.New(refusedFrame + "the length of a frame was read in pieces")
		}
		size := binary.BigEndian.Uint32(b)
		if uint64(size) > uint64(r.limit) {
			return fmt.Errorf(refusedFrame+"a frame of %d bytes; at most %d are read", size, r.limit)
		}
		r.left = lengthField + int(size)
	}
	if n > r.left {
		return errors.New(refusedFrame + "a frame ends within its header")
	}
	r.left -= n
	return nil
}
