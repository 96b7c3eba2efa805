package rpc

import (
	"context"
	"sync/atomic"

	"github.com/whence-dev/whence/pkg/stream"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// A delivery passes the items of a stream to its caller. One that does not read holds up Send, which heeds no context: a stream
// that is killed meanwhile is abandoned.
type delivery[Out any] struct {
	send  func(*Out) error
	lost  func() *streamerr.Error
	state atomic.Int32
}

const (
	resting   = iota
	sending   // send runs
	abandoned // nothing more is sent
)

// pass sends an item, or returns why the stream ends.
func (d *delivery[Out]) pass(ctx context.Context, out *Out) error {
	if !d.state.CompareAndSwap(resting, sending) {
		return stream.Cause(ctx)
	}
	err := d.send(out)
	if !d.state.CompareAndSwap(sending, resting) {
		return stream.Cause(ctx)
	}
	if err == nil {
		return nil
	}
	gone := d.lost()
	gone.Cause = err
	return gone
}

// abandon has nothing more sent, and reports whether an item is on its way.
func (d *delivery[Out]) abandon() bool { return d.state.Swap(abandoned) == sending }
