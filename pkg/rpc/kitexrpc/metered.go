package kitexrpc

import (
	"context"
	"errors"
	"math"
	"net"

	"github.com/cloudwego/kitex/pkg/endpoint"
	"github.com/cloudwego/kitex/pkg/remote"
	"github.com/cloudwego/kitex/pkg/remote/trans/detection"
	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2"
	"github.com/cloudwego/netpoll"

	"github.com/whence-dev/whence/pkg/rpc/guard/flood"
)

// meteredGRPC makes the handlers of gRPC connections that end after a flood of frames. Kitex itself
// keeps all bytes of a header block, however long, bounds no streams, and keeps a connection open
// after it has sent the GOAWAY for too many pings.
type meteredGRPC struct {
	maxStreams uint32
	flooded    flood.Report
}

func (s *Server) meteredGRPC() meteredGRPC {
	if s.MaxStreams == 0 {
		return meteredGRPC{math.MaxUint32, s.Flooded}
	}
	return meteredGRPC{s.MaxStreams, s.Flooded}
}

// NewTransHandler implements remote.ServerTransHandlerFactory.
func (m meteredGRPC) NewTransHandler(opt *remote.ServerOption) (remote.ServerTransHandler, error) {
	h, err := nphttp2.NewSvrTransHandlerFactory().NewTransHandler(opt)
	if err != nil {
		return nil, err
	}
	return &grpcHandler{ServerTransHandler: h, meteredGRPC: m}, nil
}

type grpcHandler struct {
	remote.ServerTransHandler
	meteredGRPC
}

var (
	_ detection.DetectableServerTransHandler = (*grpcHandler)(nil)
	_ remote.InvokeHandleFuncSetter          = (*grpcHandler)(nil)
	_ remote.GracefulShutdown                = (*grpcHandler)(nil)
)

// ProtocolMatch implements detection.DetectableServerTransHandler.
func (h *grpcHandler) ProtocolMatch(ctx context.Context, conn net.Conn) error {
	detect, ok := h.ServerTransHandler.(detection.DetectableServerTransHandler)
	if !ok {
		return errors.New("kitexrpc: this Kitex does not detect gRPC")
	}
	return detect.ProtocolMatch(ctx, conn)
}

// SetInvokeHandleFunc implements remote.InvokeHandleFuncSetter.
func (h *grpcHandler) SetInvokeHandleFunc(f endpoint.Endpoint) {
	if s, ok := h.ServerTransHandler.(remote.InvokeHandleFuncSetter); ok {
		s.SetInvokeHandleFunc(f)
	}
}

// GracefulShutdown implements remote.GracefulShutdown.
func (h *grpcHandler) GracefulShutdown(ctx context.Context) error {
	if g, ok := h.ServerTransHandler.(remote.GracefulShutdown); ok {
		return g.GracefulShutdown(ctx)
	}
	return nil
}

// OnActive implements remote.ServerTransHandler. The transport of conn gets a metered connection.
func (h *grpcHandler) OnActive(ctx context.Context, conn net.Conn) (context.Context, error) {
	polled, ok := conn.(netpoll.Connection)
	if !ok {
		return h.ServerTransHandler.OnActive(ctx, flood.FromConn(conn, h.maxStreams, h.flooded))
	}
	c := newPolledConn(polled, h.meteredGRPC)
	active, err := h.ServerTransHandler.OnActive(ctx, c)
	if err == nil {
		c.onClose(func() { h.OnInactive(active, c) })
	}
	return active, err
}
