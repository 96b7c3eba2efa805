package kitexrpc

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"

	"github.com/cloudwego/kitex/pkg/remote/trans/nphttp2"
	kmetadata "github.com/cloudwego/kitex/pkg/remote/trans/nphttp2/metadata"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/pkg/streaming"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/whence-dev/whence/pkg/rpc/kitexrpc/kitexerr"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// sendCompressor is Kitex's key for the compressor of responses.
const sendCompressor = "send-compressor"

// A serverStream is grpc-go's view of a stream on a Kitex server.
type serverStream struct {
	ctx   context.Context
	st    streaming.Stream
	conn  nphttp2.GRPCConn
	codec messageCodec
	limit int
	skip  uint32 // unread bytes of a refused message; owned by the receiver
	from  *lossAddr
}

var _ grpc.ServerStream = (*serverStream)(nil)

func newServerStream(ctx context.Context, arg any, method string, limit int) (*serverStream, error) {
	args, ok := arg.(*streaming.Args)
	if !ok || args.Stream == nil {
		return nil, errors.New("kitexrpc: not a gRPC stream")
	}
	conn, err := nphttp2.GetServerConn(args.Stream) //nolint:staticcheck // deprecated for proxies; no other function returns the bytes before they are allocated
	if err != nil {
		return nil, err
	}
	if inv, ok := rpcinfo.GetRPCInfo(ctx).Invocation().(rpcinfo.InvocationSetter); ok {
		// Kitex compresses with any compressor that the client accepts, and many clients accept
		// gzip without wanting it.
		inv.SetExtra(sendCompressor, "")
	}
	md, _ := kmetadata.FromIncomingContext(ctx)
	ctx = metadata.NewIncomingContext(ctx, metadata.MD(md))
	addr := &lossAddr{call: ctx}
	if from := rpcinfo.GetRPCInfo(ctx).From(); from != nil && from.Address() != nil {
		addr.Addr = from.Address()
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: addr})
	}
	s := &serverStream{ctx: ctx, st: args.Stream, conn: conn, limit: limit, from: addr}
	s.ctx = grpc.NewContextWithServerTransportStream(ctx, transportStream{s, "/" + method})
	return s, nil
}

// A lossAddr is a caller's address that knows whether the connection broke. It implements
// connloss.Explainer.
type lossAddr struct {
	net.Addr
	call   context.Context // its end tells whether the connection broke
	broken atomic.Bool     // a message could not be sent, because the connection broke
}

// Lost reports whether the call is over because its connection broke.
func (l *lossAddr) Lost() bool {
	return l.broken.Load() || kitexerr.Lost(l.call.Err())
}

// Why implements connloss.Explainer. When a connection breaks while the server writes to it, Kitex may
// end its calls with the error of a graceful shutdown, which also stands for a shutdown of the caller
// or of this server.
func (l *lossAddr) Why() *streamerr.Error {
	if !kitexerr.ShutDown(l.call.Err()) {
		return nil
	}
	return &streamerr.Error{Reason: streamerr.PeerLost, Message: "the connection broke, or one of its ends has shut down"}
}

func (s *serverStream) Context() context.Context        { return s.ctx }
func (s *serverStream) SetHeader(md metadata.MD) error  { return s.st.SetHeader(kmetadata.MD(md)) }
func (s *serverStream) SendHeader(md metadata.MD) error { return s.st.SendHeader(kmetadata.MD(md)) }
func (s *serverStream) SetTrailer(md metadata.MD)       { s.st.SetTrailer(kmetadata.MD(md)) }

func (s *serverStream) SendMsg(m any) error {
	out, err := s.codec.encode(m)
	if err != nil {
		return err
	}
	err = s.st.SendMsg(out)
	if kitexerr.Lost(err) { // Kitex refuses messages shortly before it ends the call
		s.from.broken.Store(true)
	}
	return fromKitex(err)
}

const frameHeader = 5 // compressed flag, length

// RecvMsg reads a message from the connection itself, because Kitex's RecvMsg allocates any length
// that the caller claims.
func (s *serverStream) RecvMsg(m any) error {
	if err := s.skipRefused(); err != nil {
		return err
	}
	var header [frameHeader]byte
	if _, err := s.conn.Read(header[:]); err != nil {
		return recvError(err)
	}
	size := binary.BigEndian.Uint32(header[1:])
	if header[0] != 0 {
		s.skip = size
		return status.Error(codes.Unimplemented, "compressed messages are not supported; send with identity")
	}
	if uint64(size) > uint64(s.limit) {
		s.skip = size
		return status.Errorf(codes.ResourceExhausted, "received a message of %d bytes; at most %d are allowed", size, s.limit)
	}
	body, err := s.readBody(int(size))
	if err != nil {
		return recvError(err)
	}
	return s.codec.decode(body, m)
}

// trusted is the length of a message that is allocated before the message has arrived, in bytes.
const trusted = 16 << 10

// readBody reads the bytes of a message. It allocates at most trusted bytes, or three times as many
// as have arrived, because a caller may claim a length without sending the message.
func (s *serverStream) readBody(size int) ([]byte, error) {
	body := make([]byte, 0, min(size, trusted))
	for len(body) < size {
		have := len(body)
		body = slices.Grow(body, min(size-have, max(have, trusted)))
		body = body[:min(size, cap(body))]
		if _, err := s.conn.Read(body[have:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return body, nil
}

// skipRefused reads the rest of a message that was refused because of its header, so that the next
// message can be read.
func (s *serverStream) skipRefused() error {
	if s.skip == 0 {
		return nil
	}
	chunk := make([]byte, min(s.skip, 32<<10))
	for s.skip > 0 {
		n, err := s.conn.Read(chunk[:min(int(s.skip), len(chunk))])
		if err != nil {
			return recvError(err)
		}
		if n <= 0 {
			return status.Error(codes.Internal, "the rest of a refused message cannot be read")
		}
		s.skip -= uint32(n)
	}
	return nil
}

func recvError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return status.Error(codes.InvalidArgument, "the message ends before its length")
	}
	return fromKitex(err)
}

// A transportStream lets grpc.SetTrailer and similar functions work inside handlers.
type transportStream struct {
	st     grpc.ServerStream
	method string
}

var _ grpc.ServerTransportStream = transportStream{}

func (t transportStream) Method() string                  { return t.method }
func (t transportStream) SetHeader(md metadata.MD) error  { return t.st.SetHeader(md) }
func (t transportStream) SendHeader(md metadata.MD) error { return t.st.SendHeader(md) }
func (t transportStream) SetTrailer(md metadata.MD) error {
	t.st.SetTrailer(md)
	return nil
}
