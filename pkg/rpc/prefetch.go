package rpc

import (
	"context"

	"google.golang.org/grpc"

	"github.com/whence-dev/whence/internal/prefetch"
)

// touched returns ctx with the objects that Send touches.
func touched[In, Out any](ctx context.Context, st grpc.BidiStreamingServer[In, Out]) context.Context {
	if generic, ok := st.(*grpc.GenericServerStream[In, Out]); ok {
		return prefetch.With(prefetch.WithTouched(ctx, generic.ServerStream), prefetch.Of(generic))
	}
	return prefetch.WithTouched(ctx, st)
}
