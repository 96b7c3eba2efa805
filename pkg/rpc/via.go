package rpc

import (
	"context"
	"strings"

	"google.golang.org/grpc/metadata"

	streamv1 "github.com/whence-dev/whence/idl/gen/whence/stream/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/streamerr"
	"github.com/whence-dev/whence/pkg/streamtrace"
)

// unnamedPeer is the origin of what a caller does that did not say its name.
const unnamedPeer = "client"

type viaKey struct{}

// withIncomingVia keeps the hops that the call has crossed, for this hop's own calls and for the path of a bare reset.
func withIncomingVia(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	via := streamerr.ParsePath(first(md, streamerr.ViaHeader))
	ctx = streamtrace.WithParent(ctx, streamtrace.ParseParent(first(md, streamtrace.Traceparent), strings.Join(md.Get(streamtrace.Tracestate), ",")))
	return context.WithValue(ctx, viaKey{}, via)
}

func first(md metadata.MD, key string) string {
	if values := md.Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
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
	ledger.Parent(ctx).Each(func(key, value string) { pairs = append(pairs, key, value) })
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
