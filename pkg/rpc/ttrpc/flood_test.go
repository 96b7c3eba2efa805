package ttrpc_test

import (
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cloudwego/gopkg/protocol/ttheader"

	twin "github.com/whence-dev/whence/idl/gen/thrift/chatv1"
	"github.com/whence-dev/whence/internal/polltest"
	"github.com/whence-dev/whence/pkg/rpc/kitexrpc"
)

// TestFloodOfOpenedStreamsIsBounded: a caller opens streams without end, and sends no requests. The
// server closes its connection, and serves other callers meanwhile.
func TestFloodOfOpenedStreamsIsBounded(t *testing.T) {
	const streams = 100_000
	flooded := make(chan error, 1)
	addr := serve(t, newService("chat"), func(s *kitexrpc.Server) {
		s.MaxStreams, s.Flooded = 200, func(_ net.Addr, err error) { flooded <- err }
	})
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() { _, _ = io.Copy(io.Discard, conn) }() // the refusals
	runtime.GC()
	before := runtime.NumGoroutine()
	var memory, later runtime.MemStats
	runtime.ReadMemStats(&memory)
	_ = conn.SetWriteDeadline(time.Now().Add(polltest.Patience))
	most, closed := 0, false
	for id := int32(1); id <= streams; {
		var b []byte
		for range 100 {
			b = append(b, frame(t, id, ttheader.FrameTypeHeader, nil)...)
			id++
		}
		if _, err := conn.Write(b); err != nil {
			closed = true
			break
		}
		most = max(most, runtime.NumGoroutine()-before)
	}
	if !closed {
		t.Errorf("the server has taken %d streams", streams)
	}
	if err := <-flooded; !strings.Contains(err.Error(), "more than 200 open streams") {
		t.Error(err)
	}
	st, err := kitexClient(t, addr, tt).Generate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Send(t.Context(), &twin.GenerateRequest{Chat: &twin.ChatRequest{}}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Recv(t.Context()); err != nil {
		t.Errorf("another caller: %v", err)
	}
	runtime.GC()
	runtime.ReadMemStats(&later)
	if grown := int64(later.HeapAlloc) - int64(memory.HeapAlloc); grown > 32<<20 {
		t.Errorf("%d MiB are kept for %d streams", grown>>20, streams)
	}
	if most > 1000 {
		t.Errorf("%d goroutines serve the streams of one connection", most)
	}
}

// TestStreamsInTurnAreNoFlood: streams that have ended do not count.
func TestStreamsInTurnAreNoFlood(t *testing.T) {
	addr := serve(t, newService("chat"), func(s *kitexrpc.Server) {
		s.MaxStreams, s.Flooded = 10, func(_ net.Addr, err error) { t.Error(err) }
	})
	c := kitexClient(t, addr, tt)
	for range 100 {
		st, err := c.Generate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Send(t.Context(), &twin.GenerateRequest{Chat: &twin.ChatRequest{Model: "completes"}}); err != nil {
			t.Fatal(err)
		}
		_ = st.CloseSend(t.Context())
		_, _ = drain(t.Context(), st)
	}
}
