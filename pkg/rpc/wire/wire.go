// Package wire has the data that a stream's calls carry in addition to their messages: in headers
// the hops that a call has crossed and the trace, in a Stop the cause, and in trailers the ending.
package wire

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/durationpb"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc/callctx"
	"github.com/whence-dev/whence/pkg/rpc/connloss"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// UnnamedPeer is the name of a caller that did not send its name.
const UnnamedPeer = "client"

type viaKey struct{}

// Incoming returns ctx with the hops that the call has crossed, for this hop's own calls and for
// the path of a bare reset.
func Incoming(ctx context.Context) context.Context {
	via := ""
	if values := callctx.Header(ctx, streamerr.ViaHeader); len(values) > 0 {
		via = values[0]
	}
	return context.WithValue(ctx, viaKey{}, streamerr.ParsePath(via))
}

func first(md metadata.MD, key string) string {
	if values := md.Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// traceHeaders returns the W3C Trace Context headers of a call, as pairs of key and value.
func traceHeaders(ctx context.Context) (pairs []string) {
	for _, key := range []string{"traceparent", "tracestate"} {
		for _, value := range callctx.Header(ctx, key) {
			pairs = append(pairs, key, value)
		}
	}
	return pairs
}

// Via returns the hops that the call of ctx has crossed, origin first, or nil if the caller did not
// say.
func Via(ctx context.Context) streamerr.Path {
	v, _ := ctx.Value(viaKey{}).(streamerr.Path)
	return v
}

// caller returns the name of the hop that called this hop.
func caller(ctx context.Context) string {
	if v := Via(ctx); len(v) > 0 {
		return v[len(v)-1]
	}
	return UnnamedPeer
}

// Callers returns the path of a call before this hop.
func Callers(ctx context.Context) streamerr.Path {
	if v := Via(ctx); len(v) > 0 {
		return v
	}
	return streamerr.NewPath(UnnamedPeer)
}

// Outgoing returns ctx for a call of this hop. Its headers tell the callee which hops the call has
// crossed, this hop included, and the trace of the call.
func Outgoing(ctx context.Context, hop string) context.Context {
	pairs := []string{streamerr.ViaHeader, Via(ctx).Append(hop).String()}
	flow := observer.Of(ctx)
	flow.Headers(func(key, value string) { pairs = append(pairs, key, value) })
	if flow == (observer.Nobody{}) { // a hop without an observer passes on its caller's trace
		pairs = append(pairs, traceHeaders(ctx)...)
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// ToStop returns the Stop that a hop sends to the hop below it.
func ToStop(e *streamerr.Error, grace time.Duration) *streamv1.Stop {
	return &streamv1.Stop{Reason: e.Reason.Proto(), Path: e.Path, Message: e.Text(), Grace: durationpb.New(grace)}
}

// FromStop returns the cause in a Stop of the hop above. If the Stop has no reason, the reason is
// unspecified. If the Stop has no path, the origin is the caller of ctx.
func FromStop(ctx context.Context, stop *streamv1.Stop, unspecified streamerr.Reason) *streamerr.Error {
	e := streamerr.New(streamerr.Reason(stop.GetReason()), "%s", stop.GetMessage())
	e.Path = streamerr.NewPath(stop.GetPath()...)
	if e.Reason == streamerr.Unspecified {
		e.Reason = unspecified
	}
	if len(e.Path) == 0 {
		e.Path = streamerr.NewPath(caller(ctx))
	}
	return e
}

// clockSlack is how much earlier a caller's timer may fire than ours for the same deadline, because
// our timer starts when the call arrives.
const clockSlack = 100 * time.Millisecond

// Lost returns why a call is over for which no Stop has arrived.
func Lost(call context.Context) *streamerr.Error {
	if why := connloss.Why(call); why != nil {
		if own := why.Reason == streamerr.SlowReader || why.Reason == streamerr.Invalid; len(why.Path) == 0 && !own {
			why.Path = streamerr.NewPath(caller(call))
		}
		return why
	}
	// A caller whose own timer fires first resets the call just before the same timer would fire
	// here.
	at, ok := call.Deadline()
	if errors.Is(call.Err(), context.DeadlineExceeded) || ok && time.Until(at) < clockSlack {
		return streamerr.New(streamerr.Deadline, "the deadline that the caller set on the call has passed")
	}
	e := &streamerr.Error{Reason: streamerr.PeerReset, Path: streamerr.NewPath(caller(call)), Message: "the caller reset the call without a reason"}
	if connloss.Lost(call) {
		e.Reason, e.Message = streamerr.PeerLost, "the caller's connection broke"
	}
	return e
}

// Address returns the network address of a call's caller.
func Address(call context.Context) string {
	if p, ok := peer.FromContext(call); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// EndTrailer returns the trailers of a stream that has ended. generated is the number of tokens
// that engines have generated for it, and consumed the number of tokens that engines got as input.
func EndTrailer(reason streamerr.Reason, path streamerr.Path, generated, consumed int) metadata.MD {
	pairs := [8]string{streamerr.ReasonTrailer, reason.String(), streamerr.PathTrailer, path.String(), generatedTrailer, strconv.Itoa(generated)}
	if consumed == 0 {
		return metadata.Pairs(pairs[:6]...)
	}
	pairs[6], pairs[7] = consumedTrailer, strconv.Itoa(consumed)
	return metadata.Pairs(pairs[:]...)
}

const (
	// generatedTrailer is the trailer with the number of tokens that engines have generated for the
	// stream.
	generatedTrailer = "whence-tokens-generated"
	// consumedTrailer is the trailer with the number of tokens that engines got as input for the
	// stream. It is absent if there are none.
	consumedTrailer = "whence-tokens-consumed"
)

// Unsaid reports whether e is the end of a call without a status of the server: a reset, or a
// broken connection.
func Unsaid(e *streamerr.Error) bool {
	return e.Reason == streamerr.PeerLost || e.Reason == streamerr.PeerReset
}

// OwnEnding reports whether the callee itself has ended a call that is over. Only status OK, the
// trailers of EndTrailer, and a status with the ErrorInfo of package streamerr prove this; any
// other status may come from a transport or a proxy. err is the error of Recv; st is nil if the
// call has no trailers.
func OwnEnding(st grpc.ClientStream, err error) bool {
	_, _, told := Trailer(st)
	return told || err == nil || errors.Is(err, io.EOF) || streamerr.FromHop(err)
}

// Trailer returns the ending in the trailers of a call that is over, as EndTrailer makes them. ok
// is false if the call has no such trailers. st may be nil.
func Trailer(st grpc.ClientStream) (reason streamerr.Reason, path streamerr.Path, ok bool) {
	if st == nil {
		return 0, nil, false
	}
	md := st.Trailer()
	reason = streamerr.ParseReason(first(md, streamerr.ReasonTrailer))
	return reason, streamerr.ParsePath(first(md, streamerr.PathTrailer)), reason != streamerr.Unspecified
}

// Generated returns the number of generated tokens in the trailers of a call that is over, or 0 if
// the trailers do not have it.
func Generated(trailers metadata.MD) int { return count(trailers, generatedTrailer) }

// Consumed returns the number of tokens that engines got as input, from the trailers of a call that
// is over, or 0 if the trailers do not have it.
func Consumed(trailers metadata.MD) int { return count(trailers, consumedTrailer) }

func count(trailers metadata.MD, key string) int {
	n, err := strconv.ParseUint(first(trailers, key), 10, 31)
	if err != nil {
		return 0
	}
	return int(n)
}
