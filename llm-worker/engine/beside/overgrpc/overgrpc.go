// Package overgrpc calls a model server over gRPC, for services that stream answers and accept
// aborts.
//
// All streams share one connection. A stopped stream is aborted by its id and then always reset,
// because a server that had not yet begun the request ignores the abort but not the reset. An
// ending quotes the server's status. If the connection breaks without a status, the stream ends
// with PEER_LOST, or with UNAVAILABLE if no message had come.
package overgrpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"

	"github.com/whence-dev/whence/llm-worker/engine/beside"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/streamerr"
)

const (
	// redialEvery is the time between attempts to connect to a lost server. It equals the probe
	// interval.
	redialEvery = time.Second
	// These two detect a host that vanished without closing its connections. Pings are sent only
	// while there are streams: servers close connections that ping more often than every five
	// minutes without streams.
	pingEvery   = 30 * time.Second
	pingTimeout = 10 * time.Second
	// maxMessage bounds one message, in bytes. A typical piece of an answer has some hundred.
	maxMessage = 4 << 20
)

// Validate checks an address. Its error names the flag.
func Validate(upstream string) error {
	if host, port, err := net.SplitHostPort(upstream); err != nil || host == "" || port == "" || strings.Contains(upstream, "/") {
		return fmt.Errorf("--upstream is %.64q; it must be a host:port such as 127.0.0.1:50051", upstream)
	}
	return nil
}

// Dial returns a connection to a server, a valid host:port. It connects on first use, and calls
// fail while the server is unreachable.
func Dial(upstream string) (*grpc.ClientConn, error) {
	return grpc.NewClient(upstream,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: redialEvery / 10, Multiplier: 2, MaxDelay: redialEvery}, MinConnectTimeout: redialEvery}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout}),
		// A server that may use gzip might compress every token.
		grpc.WithDefaultCallOptions(experimental.AcceptCompressors(), grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithStatsHandler(trailerHandler{}),
		grpc.WithNoProxy(), // the server is beside the worker
	)
}

// outgoing returns the context of a call, with the values of ctx and the trace headers for the
// server.
func outgoing(ctx context.Context) (context.Context, context.CancelFunc) {
	var trace []string
	ledger.Parent(ctx).Each(func(key, value string) { trace = append(trace, key, value) })
	return context.WithCancel(metadata.AppendToOutgoingContext(context.WithoutCancel(ctx), trace...))
}

// Ask probes the server within timeout. The error is an ending that names no addresses.
func Ask(ctx context.Context, timeout time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return unary(ctx, ctx, nil, ask)
}

// AbortTimeout is the time in which a server must answer an abort.
const AbortTimeout = minGrace

// Do makes a unary call, which ends with ctx. The call has the trace of ctx. The error is an ending that names
// no addresses; dialect completes it.
func Do(ctx context.Context, dialect beside.Dialect, call func(context.Context) error) error {
	outer, cancel := outgoing(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	return unary(ctx, outer, dialect, call)
}

// unary makes unary calls with the context outer. If they fail after ctx is done, the server counts as away.
func unary(ctx, outer context.Context, dialect beside.Dialect, call func(context.Context) error) error {
	var heard trailerFlag
	err := call(context.WithValue(outer, trailerKey{}, &heard))
	if err == nil {
		return nil
	}
	if ending, ok := errors.AsType[*streamerr.Error](err); ok {
		return ending
	}
	if ctx.Err() != nil {
		return beside.Unavailable(fmt.Errorf("%w: %w", ctx.Err(), err))
	}
	return failure(err, heard.trailer.Load(), false, dialect)
}

// A trailerHandler sets the trailerFlag of a call. Without a trailer, grpc-go made up the status of
// the call because the connection broke.
type trailerHandler struct{}

// trailerKey is the key of a *trailerFlag in the context of a call.
type trailerKey struct{}

func (trailerHandler) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (trailerHandler) HandleRPC(ctx context.Context, s stats.RPCStats) {
	heard, ok := ctx.Value(trailerKey{}).(*trailerFlag)
	if !ok {
		return
	}
	switch s.(type) {
	case *stats.Begin: // a probe may make several calls
		heard.trailer.Store(false)
	case *stats.InTrailer:
		heard.trailer.Store(true)
	}
}

func (trailerHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (trailerHandler) HandleConn(context.Context, stats.ConnStats) {}

// IDs converts token ids, and drops negative ones, which are invalid.
func IDs(ids []int32) []uint32 {
	var out []uint32
	for _, id := range ids {
		if id >= 0 {
			out = append(out, uint32(id))
		}
	}
	return out
}
