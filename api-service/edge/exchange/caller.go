package exchange

import (
	"context"

	"github.com/cloudwego/hertz/pkg/app"

	"github.com/whence-dev/whence/api-service/access"
	"github.com/whence-dev/whence/api-service/keys"
	"github.com/whence-dev/whence/pkg/streamerr"
)

type callerKey struct{}

// Identify identifies the caller of a request, once for all of its handlers: Caller finds the caller in the
// context that Identify returns. A refusal tells the caller how to authenticate.
func Identify(ctx context.Context, c *app.RequestContext, g *access.Guard) (context.Context, error) {
	caller, err := g.Caller(ctx, string(c.GetHeader(keys.Header)))
	if err != nil {
		if how := challenge(streamerr.As(err)); how != "" {
			c.Header("WWW-Authenticate", how)
		}
		return ctx, err
	}
	return WithCaller(ctx, caller), nil
}

// challenge returns what tells a refused caller how to authenticate (RFC 6750), or "" for a caller whose key could not be
// checked.
func challenge(err *streamerr.Error) string {
	switch {
	case err.Reason == streamerr.Forbidden:
		return `Bearer error="insufficient_scope"`
	case err.Reason != streamerr.Unauthenticated:
		return ""
	case err.Code == streamerr.CodeInvalidKey:
		return `Bearer error="invalid_token"`
	default: // a request without a key has made no mistake
		return "Bearer"
	}
}

// WithCaller adds the caller of a request to its context.
func WithCaller(ctx context.Context, caller access.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, &caller)
}

// Caller returns the caller of a request. Every request has one, except for those of routes that need no key.
func Caller(ctx context.Context) access.Caller { return *ctx.Value(callerKey{}).(*access.Caller) }
