// Package stream defines the parts of a hop: an Engine answers a request by passing items and an ending
// to a Reader, stages build engines on engines, and a Control ends a stream from outside, in two steps
// and with a cause.
//
// The four kinds of RPC are one type with different arguments. A unary engine passes one item, a
// server-streaming engine passes many. If Req is itself a sequence, such as an Inbox, the engine is
// client-streaming or bidirectional.
//
// # The contract of a stream
//
//  1. End is called exactly once, and nothing is called after it.
//  2. Item and End are never called at the same time, but any goroutine may call them. Each call
//     happens after the previous call has returned.
//  3. An item is valid until Item returns. A Reader that keeps an item copies it.
//  4. When Item returns false, the engine passes no more items, releases what it holds, and calls End:
//     with nil, or with the cause if the stream was stopped.
//  5. End is called when everything below is released. Only the lowest engine decides that the time has
//     come. A stage ends the Reader above it in its own End, as its last act, and at no other time. So a
//     stream is released from the bottom to the top.
//  6. A stream whose first call is End never started.
//  7. A stopped stream (Control.Stop) ends with the first cause, within the grace. The engine may pass
//     the items that it has. A killed stream ends as soon as its engine notices. A Reader may stop its
//     own stream within Item: the stop goes down on the same goroutine, and its ending comes after Item
//     has returned.
//  8. A panic of an Item, or an exit of its goroutine (runtime.Goexit), becomes an End with a Failure, in
//     the Entry that carried the item, and so does a panic of the engine. A Reader whose Item did not
//     return gets no more items, from anybody, but it gets its End.
//  9. An Engine may call the Reader before it returns, and may return before the stream ends. It may also
//     run the whole stream on the goroutine that starts it. So the caller holds no lock that its Reader
//     takes, and is not on a Loop; a stage calls the engine below last.
//
// Package streamtest tests the contract.
//
// # Goroutines
//
// The goroutine that reads a connection of many streams is a Loop. It passes itself to Item, and Item
// passes it up. Code that must wait calls Loop.Wait first, and a buffer for another connection registers
// with Loop.Later; a nil Loop is a goroutine that serves only this stream. A Reader that may wait for
// every item says so when the stream starts (WithBlocking), and then no Loop carries the stream. End is
// never called on a Loop: it may block.
//
// The package knows no transport and imports nothing but the standard library.
package stream

import "context"

// A Reader takes the answer of one stream.
type Reader[Item any] interface {
	// Item takes an item, and reports whether the Reader wants more. on is the Loop that calls, or nil
	// if the calling goroutine serves no other stream. on is valid until Item returns, on the calling
	// goroutine.
	Item(on *Loop, item Item) (more bool)
	// End ends the stream. nil means that the stream is complete, or that the Reader has left.
	End(err error)
}

// An Engine answers one request: it starts a stream, whose answer goes to a Reader. The stream's Control
// is in ctx. Code that starts a stream calls Start; a stage calls the engine below itself.
type Engine[Req, Item any] func(ctx context.Context, req Req, to Reader[Item])

// Start calls an engine for the Reader that starts the stream. If the stream was stopped before, the
// engine ends it with the cause. If the engine panics or exits, the stream breaks (Control.Break), because
// nobody knows whether its Reader has been or will be ended.
func Start[Req, Item any](ctx context.Context, engine Engine[Req, Item], req Req, to Reader[Item]) {
	Guard(func() { engine(ctx, req, to) }, func(failure *Failure) { ControlOf(ctx).Break(failure) })
}

// Unary returns the engine of answer, which returns the engine's only item. It runs on the goroutine that
// starts the stream.
func Unary[Req, Item any](answer func(context.Context, Req) (Item, error)) Engine[Req, Item] {
	return func(ctx context.Context, req Req, to Reader[Item]) {
		var e Entry[Item]
		e.Init(ctx, to)
		e.Run(func() error {
			if cause := Cause(ctx); cause != nil {
				return cause
			}
			item, err := answer(ctx, req)
			if err == nil && !e.Item(nil, item) {
				return Cause(ctx)
			}
			return err
		})
	}
}

type blockingKey struct{}

// WithBlocking returns the context of a stream whose Reader may wait for every item. No Loop carries the
// items of such a stream, and of the streams below it.
func WithBlocking(ctx context.Context) context.Context {
	return context.WithValue(ctx, blockingKey{}, true)
}

// Blocks reports whether the Reader of ctx's stream may wait for every item.
func Blocks(ctx context.Context) bool { return ctx.Value(blockingKey{}) != nil }
