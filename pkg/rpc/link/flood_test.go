package link_test

import (
	"errors"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/rpc/link/frame"
	"github.com/whence-dev/whence/pkg/rpc/link/mux"
)

// TestPeersThatOnlySendAreCutOff: a peer sends frames that the server must answer, and reads nothing.
// The server keeps a bounded number of answers, closes the connection, and serves others meanwhile.
func TestPeersThatOnlySendAreCutOff(t *testing.T) {
	_, _, addr := serve(t, link.Options{Mux: mux.Options{PingEvery: time.Hour}}, count)
	engine := engineAt(dial(t, addr, link.Options{}))
	for name, write := range map[string]func(b []byte, i uint32) []byte{
		"pings": func(b []byte, i uint32) []byte { return frame.AppendPing(b, frame.Ping, uint64(i)) },
		"refused streams": func(b []byte, i uint32) []byte {
			b, _ = frame.AppendOpen(b, frame.Call{Stream: i + 1, Method: "/nobody/Nothing"})
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			b := frame.AppendHello(nil, frame.Greeting{Version: frame.Version, Window: 1 << 10, MaxMessage: 1 << 10})
			_ = nc.SetWriteDeadline(time.Now().Add(5 * time.Minute))
			sent := 0
			for i := uint32(0); err == nil; sent += len(b) {
				if sent > 1<<30 {
					t.Fatal("the server takes every frame")
				}
				if i > 0 {
					b = b[:0]
				}
				for range 1000 {
					b = write(b, i)
					i++
				}
				_, err = nc.Write(b)
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("after %d bytes the connection is still open", sent)
			}
			for _, err := range engine(t.Context(), &workerv1.TokenRequest{Prompt: []uint32{3, 1}}) {
				if err != nil {
					t.Errorf("another caller: %v", err)
				}
			}
			grown := func() int64 {
				runtime.GC()
				runtime.ReadMemStats(&after)
				return int64(after.HeapAlloc) - int64(before.HeapAlloc)
			}
			for late := time.Now().Add(time.Minute); grown() > 16<<20; time.Sleep(10 * time.Millisecond) { // the server may still be closing the connection
				if time.Now().After(late) {
					t.Fatalf("%d MiB are kept afterwards", grown()>>20)
				}
			}
		})
	}
}
