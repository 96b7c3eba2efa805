// Package delivery tells the handler of a unary method whether its answer was sent. The server
// sends the answer after the handler has returned.
package delivery

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/whence-dev/whence/pkg/streamerr"
)

type key struct{}

// A hook is the function that a handler has registered. Only the call's goroutine uses it.
type hook struct{ f func(err error) }

// With returns a context for a handler, and a function that reports the delivery to the handler's
// hook. The server calls sent once: with nil if it has sent the answer, or with the error that
// prevented this.
func With(ctx context.Context) (handler context.Context, sent func(err error)) {
	h := &hook{}
	return context.WithValue(ctx, key{}, h), func(err error) {
		if h.f != nil {
			h.f(err)
		}
	}
}

// After registers f as the hook of the handler of ctx: the server calls f after it has sent the
// answer, or has failed to. After returns false, and does not register f, if the server does not
// report deliveries.
func After(ctx context.Context, f func(err error)) bool {
	h, ok := ctx.Value(key{}).(*hook)
	if ok {
		h.f = f
	}
	return ok
}

// ErrUnencodable is in the cause of the error that Fault returns for a message that cannot be
// encoded.
var ErrUnencodable = errors.New("the message cannot be encoded")

// Fault returns why message could not be sent. err is the error of Send. If message cannot be
// encoded, the hop that made message is at fault, and not its peer: Fault then returns an INTERNAL
// *streamerr.Error. Otherwise Fault returns err.
func Fault(message any, err error) error {
	m, ok := message.(proto.Message)
	if !ok || status.Code(err) != codes.Internal { // grpc-go and kitexrpc return Internal for a message that cannot be encoded
		return err
	}
	_, bad := proto.Marshal(m)
	if bad == nil {
		return err
	}
	e := streamerr.New(streamerr.Internal, "a message could not be encoded: %v", bad)
	e.Cause = fmt.Errorf("%w: %w", ErrUnencodable, err)
	return e
}

// Unary returns the stream handler of a unary method. It reports the delivery of the answer.
func Unary(m grpc.MethodDesc) grpc.StreamHandler {
	return func(impl any, st grpc.ServerStream) (err error) {
		ctx, sent := With(st.Context())
		err = errors.New("the handler panicked") // the error if the handler does not return
		defer func() { sent(err) }()
		resp, err := m.Handler(impl, ctx, st.RecvMsg, nil)
		if err == nil {
			err = Fault(resp, st.SendMsg(resp))
		}
		return err
	}
}
