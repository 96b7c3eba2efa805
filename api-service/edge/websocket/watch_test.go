package websocket

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/pkg/streamerr"
)

// TestClientThatSendsBytesIsAlive: a client cannot send a pong in the middle of a long message, so any
// byte counts as an answer to a ping. A client that sends none is given up.
func TestClientThatSendsBytesIsAlive(t *testing.T) {
	for name, c := range map[string]struct{ interval, patience time.Duration }{
		"pings are frequent": {20 * time.Millisecond, 2 * time.Second},
		"pings are rare":     {30 * time.Second, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const size = 100
				frame := append([]byte{final | byte(Text), 0x80 | size, 0, 0, 0, 0}, make([]byte, size)...)
				rest := frame
				in := &inbound{parser: parser{limit: size}, next: func() ([]byte, error) {
					b := rest[:1:1]
					rest = rest[1:]
					time.Sleep(c.patience - time.Millisecond)
					return b, nil
				}}
				conn := &Conn{in: in, closed: true} // a closed Conn writes no ping
				var lost atomic.Pointer[streamerr.Error]
				stop := conn.Watch(c.interval, c.patience, lost.Store)
				defer stop()
				for what := more; what != whole; {
					var err error
					if _, what, err = in.read(); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				if cause := lost.Load(); cause != nil {
					t.Fatalf("while it sends bytes: %v", cause)
				}
				time.Sleep(c.interval + 2*c.patience)
				synctest.Wait()
				if cause := lost.Load(); cause == nil || cause.Reason != streamerr.ClientGone || cause.Message != "the client has not answered a ping for 2s" {
					t.Errorf("while it sends nothing: %v", cause)
				}
			})
		})
	}
}
