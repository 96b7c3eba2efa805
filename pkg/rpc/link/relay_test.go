package link_test

import (
	"fmt"
	"sync"
	"testing"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/ledger"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestRelayedStreamThatIsNotReadDelaysNoOther: a hop between two links carries a message by the goroutine that reads it, until
// the next hop takes no more of one stream. Then only that stream waits.
func TestRelayedStreamThatIsNotReadDelaysNoOther(t *testing.T) {
	below, _, lower := serve(t, link.Options{}, count)
	relay, _, addr := serve(t, link.Options{}, engineAt(dial(t, lower, link.Options{Links: 1})))
	client := dial(t, addr, link.Options{Links: 1})
	unread := begin(t, t.Context(), client, "unread", 1<<30, 100)
	var reading sync.WaitGroup
	for i := range 8 {
		reading.Go(func() {
			for range 5 {
				at := uint32(0)
				for out, err := range engineAt(client)(t.Context(), &workerv1.TokenRequest{StreamId: fmt.Sprintf("read-%d", i), Prompt: []uint32{1000, 100}}) {
					if err != nil {
						t.Error(err)
						return
					}
					for _, id := range out.GetTokens().GetIds() {
						if id != at {
							t.Errorf("token %d instead of %d", id, at)
							return
						}
					}
					at++
				}
				if at != 1001 {
					t.Errorf("%d messages", at)
				}
			}
		})
	}
	reading.Wait()
	for at := range uint32(2000) { // what has waited comes in order
		out, err := unread.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if ids := out.GetTokens().GetIds(); ids[0] != at || ids[99] != at {
			t.Fatalf("tokens %d instead of %d", ids[0], at)
		}
	}
	relay.hop.Live.Stop("unread", streamerr.New(streamerr.UserStop, "enough"))
	awaitNone(t, relay.hop)
	awaitNone(t, below.hop)
	for _, w := range []*worker{relay, below} {
		if r := ledger.At(w.hop).Get("unread"); streamerr.Reason(r.GetReason()) != streamerr.UserStop {
			t.Error(r)
		}
	}
}
