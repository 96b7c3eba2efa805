//go:build kitex016

package kitexstream_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/rpcinfo"
	"github.com/cloudwego/kitex/pkg/streaming"
	"github.com/cloudwego/kitex/server"

	"github.com/whence-dev/whence/contrib/kitexstream"
	"github.com/whence-dev/whence/contrib/kitexstream/internal/kitextest"
	"github.com/whence-dev/whence/contrib/kitexstream/streamerr"
)

// eventHandlers are the options of a client that the handlers of Kitex's events need.
var eventHandlers = []client.Option{client.WithStreamOptions(client.WithStreamEventHandler(rpcinfo.ClientStreamEventHandler{
	HandleStreamRecvHeaderEvent: kitexstream.HeaderReceived[rpcinfo.StreamRecvHeaderEvent],
	HandleStreamFinishEvent:     kitexstream.StreamFinished[rpcinfo.StreamFinishEvent],
}))}

// TestACallerThatLeavesBeforeItReadsTheEnd: the trailer of a server without a suite does not say
// whether the call failed.
func TestACallerThatLeavesBeforeItReadsTheEnd(t *testing.T) {
	failed := streamerr.New(streamerr.Overloaded, "the feed is full")
	for _, b := range bindings {
		for _, plain := range []bool{true, false} {
			name, reason, path := b.system+" with a suite", streamerr.Overloaded, "leaf > root"
			if plain {
				name, reason, path = b.system+" without a suite", streamerr.PeerReset, "root"
			}
			t.Run(name, func(t *testing.T) {
				h := func(_ context.Context, send func(int64) error) error { return errors.Join(send(1), failed) }
				at, caller := newHop(t, "leaf", nil), newHop(t, "root", nil)
				options := []server.Option{server.WithSuite(kitexstream.Server(at.Monitor))}
				if plain {
					options = nil
				}
				addr, _ := b.servePlain(t, h, options...)
				finished := make(chan struct{}, 1)
				ctx, cancel := context.WithCancel(kitextest.Context(t))
				defer cancel()
				st, err := b.dial(t, addr, watching(caller), client.WithStreamOptions(
					client.WithStreamEventHandler(rpcinfo.ClientStreamEventHandler{
						HandleStreamFinishEvent: func(context.Context, rpcinfo.RPCInfo, rpcinfo.StreamFinishEvent) { finished <- struct{}{} },
					})))(ctx)
				if err == nil {
					_, err = st.recv(ctx)
				}
				if err != nil {
					t.Fatal(err)
				}
				<-finished
				cancel()
				span := only(t, caller.ended(t), "client")
				check(t, "root", span, reason, path)
				if got := kinds(span); slices.Contains(got, "send_rst") && !plain {
					t.Errorf("the root has the events %v", got)
				}
			})
		}
	}
}

// TestATimeoutOfRecvIsTheCallersEnding: the timeout is an option of Kitex's clients.
func TestATimeoutOfRecvIsTheCallersEnding(t *testing.T) {
	for _, b := range bindings {
		t.Run(b.system, func(t *testing.T) {
			caller := newHop(t, "root", nil)
			addr, _ := b.serveAt(t, newHop(t, "leaf", nil), func(ctx context.Context, _ func(int64) error) error { // may never run, because the timeout is short
				<-ctx.Done()
				return ctx.Err()
			})
			ctx, cancel := context.WithCancel(kitextest.Context(t))
			defer cancel()
			st, err := b.dial(t, addr, watching(caller), client.WithStreamOptions(
				client.WithStreamRecvTimeoutConfig(streaming.TimeoutConfig{Timeout: 20 * time.Millisecond})))(ctx)
			if err == nil {
				_, err = st.recv(ctx)
			}
			if err == nil {
				t.Fatal("Recv returned a message, not a timeout")
			}
			span := only(t, caller.ended(t), "client")
			check(t, "root", span, streamerr.Deadline, "root")
			if got := kinds(span); !slices.Contains(got, "send_rst") {
				t.Errorf("the root has the events %v", got)
			}
		})
	}
}
