package rpc

import (
	"google.golang.org/grpc"

	"github.com/whence-dev/whence/internal/prefetch"
)

// touched returns the objects that Send touches.
func touched[In, Out any](st grpc.BidiStreamingServer[In, Out]) []prefetch.Memory {
	if generic, ok := st.(*grpc.GenericServerStream[In, Out]); ok {
		return append(prefetch.Touched(generic.ServerStream), prefetch.Of(generic))
	}
	return prefetch.Touched(st)
}
