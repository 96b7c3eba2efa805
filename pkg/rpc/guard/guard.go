// Package guard bounds the resources that callers use between a gRPC server and its methods. It
// ends a call without a first message, bounds the open calls of one connection and of all
// connections, and confines a panic in a method to its call.
//
// The server is grpc-go's or kitexrpc's. The guard registers every method as a stream, which is the
// same on the wire: grpc-go reads the message of a unary call before any interceptor runs, and
// would wait for the message as long as the connection lasts.
package guard

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/whence-dev/whence/internal/panicvalue"
	"github.com/whence-dev/whence/pkg/rpc/delivery"
	"github.com/whence-dev/whence/pkg/rpc/inprocess"
	"github.com/whence-dev/whence/pkg/rpc/loop"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A Server registers services and lists them, as grpc-go's server does.
type Server interface {
	grpc.ServiceRegistrar
	GetServiceInfo() map[string]grpc.ServiceInfo
}

// A Limit names a bound on calls.
type Limit string

// The limits.
const (
	FirstMessage  Limit = "first_message"
	PerConnection Limit = "connection"
	Total         Limit = "total"
	Frames        Limit = "frames" // a flood of frames; see package flood
)

// An Observer counts calls. All methods are called concurrently.
type Observer interface {
	// CallOpened counts a call that was admitted and waits for its first message.
	CallOpened()
	// CallBegun counts a first message.
	CallBegun()
	// CallClosed counts the end of an admitted call. begun reports whether the first message had
	// arrived.
	CallClosed(begun bool)
	// CallRefused counts a call, or a connection, that exceeded a limit.
	CallRefused(limit string)
}

// Options configure a guard. The zero value bounds nothing.
type Options struct {
	// Name is the hop's name, in the path of refusals.
	Name     string
	Limits   Limits
	Observer Observer     // may be nil
	Log      *slog.Logger // may be nil
}

// New returns a registrar that registers services with s behind a guard. Register all services of a
// server with the same guard, because a guard counts only its own calls.
func New(s Server, o Options) Server {
	o.setDefaults()
	return &guard{Server: s, Options: o, calls: newCalls(o.Limits), lines: newLines()}
}

type guard struct {
	Server
	Options
	calls *calls
	lines *lines
}

// RegisterService implements grpc.ServiceRegistrar.
func (g *guard) RegisterService(desc *grpc.ServiceDesc, impl any) {
	guarded := *desc
	guarded.Methods, guarded.Streams = nil, nil
	for _, m := range desc.Methods {
		guarded.Streams = append(guarded.Streams, grpc.StreamDesc{StreamName: m.MethodName, Handler: g.handler(delivery.Unary(m))})
	}
	for _, m := range desc.Streams {
		m.Handler = g.handler(m.Handler)
		guarded.Streams = append(guarded.Streams, m)
	}
	g.Server.RegisterService(&guarded, impl)
}

func (g *guard) handler(next grpc.StreamHandler) grpc.StreamHandler {
	return func(impl any, st grpc.ServerStream) (err error) {
		from := connection(st.Context())
		if limit, full := g.calls.open(from); full {
			return g.refuse(st.Context(), limit)
		}
		c := &call{ServerStream: st, guard: g, from: from}
		g.Observer.CallOpened()
		if sink := loop.SinkOfStream(st); sink != nil {
			sink.OnFinish(c.close)
		}
		defer func() {
			if v := recover(); v != nil {
				err = g.panicked(st.Context(), v)
			}
			if !errors.Is(err, loop.ErrLeft) {
				c.close()
			}
		}()
		err = next(impl, c)
		if expired := c.expired.Load(); expired != nil {
			return streamerr.Via(g.Name, expired)
		}
		return err
	}
}

// retryAfter is the Retry-After of a refused call. After that time, calls that send nothing have
// probably ended.
const retryAfter = time.Second

func (g *guard) refuse(ctx context.Context, limit Limit) error {
	g.met(ctx, limit)
	e := &streamerr.Error{Reason: streamerr.Overloaded, RetryAfter: retryAfter}
	if limit == Total {
		e.Message = "too many calls are open on this server; end calls that are not needed, and try again later"
	} else {
		e.Message = "too many calls are open on this connection; end calls that are not needed, or open another connection"
	}
	return streamerr.Via(g.Name, e)
}

// met counts a call that exceeded a limit, and logs it unless that limit was logged recently.
func (g *guard) met(ctx context.Context, limit Limit) {
	g.Observer.CallRefused(string(limit))
	if g.lines.due(limit) {
		g.Log.WarnContext(ctx, "grpc calls are refused", "hop", g.Name, "limit", string(limit), "peer", connection(ctx),
			"first_message_timeout", g.Limits.FirstMessage, "max_calls_per_connection", g.Limits.PerConnection, "max_calls", g.Limits.Total)
	}
}

func (g *guard) panicked(ctx context.Context, v any) error {
	method, _ := grpc.Method(ctx)
	g.Log.ErrorContext(ctx, "panic in a grpc method", "hop", g.Name, "method", method, "panic", panicvalue.Text(v), "stack", string(debug.Stack()))
	return streamerr.Via(g.Name, streamerr.New(streamerr.Internal, "a bug in %s ended this call; its log has the details", g.Name))
}

// nameless has the networks whose connections all share one address.
var nameless = []string{"unix", inprocess.Network}

// connection returns the name of a call's connection, or "" if connections have no distinct names.
func connection(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil || slices.Contains(nameless, p.Addr.Network()) {
		return ""
	}
	return p.Addr.String()
}

// nobody is an Observer that counts nothing.
type nobody struct{}

func (nobody) CallOpened()        {}
func (nobody) CallBegun()         {}
func (nobody) CallClosed(bool)    {}
func (nobody) CallRefused(string) {}
