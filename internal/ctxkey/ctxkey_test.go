package ctxkey_test

import (
	"context"
	"testing"

	"github.com/whence-dev/whence/internal/ctxkey"
)

type key struct{}

func TestOf(t *testing.T) {
	if got := ctxkey.Of(func(ctx context.Context) { ctx.Value(key{}) }); got != (key{}) {
		t.Error(got)
	}
	if got := ctxkey.Of(func(context.Context) {}); got != nil {
		t.Error(got)
	}
}

// TestCancel: package context finds itself with this key, and finds nothing below WithoutCancel.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if got := context.WithValue(ctx, key{}, 1).Value(ctxkey.Cancel); got != ctx {
		t.Error(got)
	}
	if got := context.WithoutCancel(ctx).Value(ctxkey.Cancel); got != nil {
		t.Error(got)
	}
}
