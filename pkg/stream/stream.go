package stream

import "iter"

// A Stage builds an engine on the engine below it: it rewrites the request on the way down and the
// items on the way up. An item is valid until yield returns. A Stage must not block while it has an
// item, because the goroutine that runs it may read other streams of the same connection.
type Stage[Req, Item, DownReq, DownItem any] func(next Sequence[DownReq, DownItem]) Sequence[Req, Item]

// Fail returns the sequence of a stream that never starts: one pair with err.
func Fail[Item any](err error) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		var zero Item
		yield(zero, err)
	}
}
