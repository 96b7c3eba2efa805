package mux

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whence-dev/whence/pkg/rpc/link/frame"
)

// TestDoubtEndsTheConnectionOfASilentPeer: a peer that answers keeps its connection, also if the
// regular check of silence falls between the answer and the end of the doubt.
func TestDoubtEndsTheConnectionOfASilentPeer(t *testing.T) {
	check := Options{}.WithDefaults().PingTimeout // the check's interval
	for name, c := range map[string]struct {
		answers bool
		at      time.Duration // of the first Doubt
	}{
		"it answers":                           {true, 0},
		"it answers, and a check follows soon": {true, check - doubtTimeout/2},
		"it is silent":                         {false, 0},
		"it is silent, and a check follows":    {false, check - doubtTimeout/2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				defer far.Close()
				conn := New(near, frame.Greeting{Version: frame.Version, Window: 1 << 20, MaxMessage: 1 << 20}, nil, Options{}.WithDefaults())
				defer conn.Close(ErrClosed)
				conn.Start(nil)
				go func() {
					buf := make([]byte, 1<<10)
					for {
						if _, err := far.Read(buf); err != nil {
							return
						}
						if c.answers {
							_, _ = far.Write(frame.AppendPing(nil, frame.Pong, 0))
						}
					}
				}()
				time.Sleep(c.at)
				for range 5 { // each refused caller doubts the peer
					conn.Doubt()
					time.Sleep(doubtTimeout / 20)
				}
				time.Sleep(doubtTimeout)
				synctest.Wait()
				if conn.Lost() == c.answers {
					t.Errorf("its connection is lost: %t", conn.Lost())
				}
			})
		})
	}
}

// TestSilentPeerIsLostInTime: PingTimeout after the PING, however late in an interval the last
// frame arrived.
func TestSilentPeerIsLostInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		c := New(near, frame.Greeting{Version: frame.Version, Window: 1 << 20, MaxMessage: 1 << 30}, nil, Options{PingEvery: time.Second, PingTimeout: 2 * time.Second}.WithDefaults())
		t.Cleanup(func() { c.Close(ErrClosed); _ = far.Close() })
		c.Start(nil)
		go func() { _, _ = io.Copy(io.Discard, far) }()
		time.Sleep(1500 * time.Millisecond)
		_, _ = far.Write(frame.AppendPing(nil, frame.Pong, 0))
		last := time.Now()
		<-c.Done()
		if took := time.Since(last); took < 3*time.Second || took > 4*time.Second {
			t.Error("the peer was lost after", took)
		}
	})
}
