package rpc

import (
	"context"

	"google.golang.org/grpc/metadata"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/rpc/observer"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// unnamedPeer is the origin of what a caller does that did not say its name.
const unnamedPeer = "client"

type viaKey struct{}

// withIncomingVia keeps the hops that the call has crossed, for this hop's own calls and for the path of a bare reset.
func withIncomingVia(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	via := streamerr.ParsePath(first(md, streamerr.ViaHeader))
	return context.WithValue(ctx, viaKey{}, via)
}

func first(md metadata.MD, key string) string {
	if values := md.Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// traceHeaders returns the headers of W3C's Trace Context that came with a call, in pairs.
func traceHeaders(ctx context.Context) (pairs []string) {
	md, _ := metadata.FromIncomingContext(ctx)
	for _, key := range []string{"traceparent", "tracestate"} {
		for _, value := range md.Get(key) {
			pairs = append(pairs, key, value)
		}
	}
	return pairs
}

func via(ctx context.Context) streamerr.Path {
	v, _ := ctx.Value(viaKey{}).(streamerr.Path)
	return v
}

// caller names the hop that called this one.
func caller(ctx context.Context) string {
	if v := via(ctx); len(v) > 0 {
		return v[len(v)-1]
	}
	return unnamedPeer
}

// callers is the path of a call up to here.
func callers(ctx context.Context) streamerr.Path {
	if v := via(ctx); len(v) > 0 {
		return v
	}
	return streamerr.NewPath(unnamedPeer)
}

// withOutgoingVia tells the callee which hops the call has crossed, this one included, and of which trace it is.
func withOutgoingVia(ctx context.Context, hop string) context.Context {
	pairs := []string{streamerr.ViaHeader, via(ctx).Append(hop).String()}
	flow := observer.Of(ctx)
	flow.Headers(func(key, value string) { pairs = append(pairs, key, value) })
	if flow == (observer.Nobody{}) { // a hop without an observer passes on the trace that it was told
		pairs = append(pairs, traceHeaders(ctx)...)
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// toStop is what a hop says to the one below it.
func toStop(e *streamerr.Error) *streamv1.Stop {
	return &streamv1.Stop{Reason: e.Reason.Proto(), Path: e.Path, Message: e.Text()}
}

// fromStop is what a hop hears from the one above it. A stop that says nothing is the caller's.
func fromStop(ctx context.Context, stop *streamv1.Stop, unspecified streamerr.Reason) *streamerr.Error {
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
