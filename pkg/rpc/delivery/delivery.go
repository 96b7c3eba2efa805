// Package delivery tells the handler of a unary method whether its answer was sent. The server that runs the handler sends the
// answer after the handler has returned.
package delivery

import "context"

type key struct{}

// A hook is what a handler has registered. Only the goroutine of the call uses it.
type hook struct{ f func(err error) }

// With returns a context for a handler, and a function that the server calls once: with nil when the answer was sent, and
// otherwise with the reason why it was not.
func With(ctx context.Context) (handler context.Context, sent func(err error)) {
	h := &hook{}
	return context.WithValue(ctx, key{}, h), func(err error) {
		if h.f != nil {
			h.f(err)
		}
	}
}

// After has f called when the answer was sent or could not be. It reports false, and f is not called, if the server does
// not tell.
func After(ctx context.Context, f func(err error)) bool {
	h, ok := ctx.Value(key{}).(*hook)
	if ok {
		h.f = f
	}
	return ok
}
