package link_test

import (
	"errors"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	workerv1 "github.com/whence-dev/whence/idl/gen/whence/worker/v1"
	"github.com/whence-dev/whence/pkg/rpc/link"
	"github.com/whence-dev/whence/pkg/rpc/link/frame"
	"github.com/whence-dev/whence/pkg/rpc/link/mux"
)

// TestPeersThatOnlySendAreCutOff: a peer sends frames that the server must answer, and reads nothing.
// The server keeps a bounded number of answers, closes the connection, and serves others meanwhile.
func TestPeersThatOnlySendAreCutOff(t *testing.T) {
	for name, write := range map[string]func(b []byte, i uint32) []byte{
		"pings": func(b []byte, i uint32) []byte { return frame.AppendPing(b, frame.Ping, uint64(i)) },
		"refused streams": func(b []byte, i uint32) []byte {
			b, _ = frame.AppendOpen(b, frame.Call{Stream: i + 1, Method: "/nobody/" + strings.Repeat("x", 900)}) // the answer has the name
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { floodAnswers(t, write) })
		})
	}
}

func floodAnswers(t *testing.T, write func(b []byte, i uint32) []byte) {
	_, _, ln := serveInMemory(t, link.Options{Mux: mux.Options{PingEvery: time.Hour}}, count)
	engine := engineAt(dialInMemory(t, ln, link.Options{}))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	nc, err := ln.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	b := frame.AppendHello(nil, frame.Greeting{Version: frame.Version, Window: 1 << 10, MaxMessage: 1 << 10})
	_ = nc.SetWriteDeadline(time.Now().Add(time.Hour))
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
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		t.Errorf("after %d bytes the connection is still open", sent)
	}
	for _, err := range engine.Range(t.Context(), &workerv1.TokenRequest{Prompt: []uint32{3, 1}}) {
		if err != nil {
			t.Errorf("another caller: %v", err)
		}
	}
	synctest.Wait() // until the server has closed the connection
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
		t.Errorf("%d MiB are kept afterwards", grown>>20)
	}
}
