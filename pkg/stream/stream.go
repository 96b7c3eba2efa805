// Package stream defines the parts of a hop: an Engine answers a request with a sequence of items,
// Stages build engines on engines, and a Control ends a stream from outside, in two steps and with
// a cause.
//
// The four kinds of RPC are one type with different arguments. A unary engine yields one item, a
// server-streaming engine yields many. If Req is itself a sequence, such as an Inbox, the engine is
// client-streaming or bidirectional. Package streamtest tests the contract that every engine must
// pass.
//
// The package knows no transport and imports nothing but the standard library.
package stream

import (
	"context"
	"iter"
)

// An Engine answers one request with a sequence of items.
//
// Nothing happens until the sequence is ranged over, once, by one goroutine. Leaving the loop (at
// its end, or by break, return or panic) releases everything that the engine holds, on this hop and
// on every hop below, before the loop is left. A non-nil error comes with the last pair, whose item
// is the zero value. In the first pair, an error means that the stream never started.
//
// An engine watches Stopping(ctx): once that channel closes, the engine finishes the current item
// and ends the sequence with Cause(ctx), within the Control's grace. When ctx itself is done, the
// engine ends the sequence at once.
type Engine[Req, Item any] func(ctx context.Context, req Req) iter.Seq2[Item, error]

// A Stage builds an engine on the engine below it: it rewrites the request on the way down and the
// items on the way up. An item is valid until yield returns. A Stage must not block while it has an
// item, because the goroutine that runs it may read other streams of the same connection.
type Stage[Req, Item, DownReq, DownItem any] func(next Engine[DownReq, DownItem]) Engine[Req, Item]

// Fail returns the sequence of a stream that never starts: one pair with err.
func Fail[Item any](err error) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		var zero Item
		yield(zero, err)
	}
}

// Unary makes an engine of answer, which returns the engine's only item.
func Unary[Req, Item any](answer func(context.Context, Req) (Item, error)) Engine[Req, Item] {
	return func(ctx context.Context, req Req) iter.Seq2[Item, error] {
		return func(yield func(Item, error) bool) {
			if cause := Cause(ctx); cause != nil {
				var zero Item
				yield(zero, cause)
				return
			}
			yield(answer(ctx, req))
		}
	}
}
